#!/bin/bash
# Ranks that are killed, stopped, broken or hang in every phase, over the pool: the others end, name the rank, its host, what it
# did and the step; the launcher exits with the status of the one that failed first; nothing is left behind.
set -u
halley=$1
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1
failed=0
fail() { echo "FAILED: $*"; failed=1; }
for i in $(seq 1 300); do echo "the cat number $((i * 37 % 101)) saw the dog number $((i * 53 % 89))"; done > story.txt
small="--data story.txt --num_hidden_layers 1 --hidden_size 32 --num_attention_heads 2 --block_size 32 --per_device_train_batch_size 2 --threads 1"
host=$(hostname)
export ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}handle_segv=0 # a sanitizer would end with a status of its own
export TSAN_OPTIONS=${TSAN_OPTIONS:+$TSAN_OPTIONS:}handle_segv=0

# A launch of three ranks, in the background: its pid in $launcher, what it says in the file log.
launch() { rm -rf run; env --default-signal=INT "$halley" launch -n 3 --timeout 4 "$@" > log 2>&1 & launcher=$!; }
pids() { sed -n 's/^rank [0-9] pid \([0-9]*\)$/\1/p' log; }
# Once per launch, while it runs: where its pool lies.
pool_of() {
    local pid address
    for _ in $(seq 1 200); do
        pid=$(pids | tail -n 1)
        address=$([ -n "$pid" ] && cat "/proc/$pid/environ" 2>/dev/null | tr '\0' '\n' | sed -n 's/^HALLEY_ADDRESS=//p')
        [ -n "$address" ] && { echo "$address"; return; }
        kill -0 $launcher 2>/dev/null || return
        sleep 0.02
    done
}
nothing_left() { # WHAT POOL
    local pid
    for pid in $(pids); do [ -e "/proc/$pid" ] && fail "$1: process $pid is left: $(cat log)"; done
    [ -n "$2" ] && [ -e "$2" ] && fail "$1: $2 is left"
}
# ends STATUS WHAT: the launcher, within a minute
ends() {
    local status=$1 what=$2 n=0
    while kill -0 $launcher 2>/dev/null; do
        n=$((n + 1))
        [ $n -gt 600 ] && { fail "$what: hangs: $(cat log)"; kill -9 $launcher; break; }
        sleep 0.1
    done
    wait $launcher 2>/dev/null; local got=$?
    [ $got = "$status" ] || fail "$what: status $got instead of $status: $(cat log)"
}
said() { grep -qE "$2" log || fail "$1: no '$2' in $(cat log)"; }

# KIND:PHASE:STEP, the status, how the launcher says it
while read -r kind phase step status words; do
    export HALLEY_FAULT=$kind:1:$phase:$step
    launch train $small --max_steps 4 --eval_steps 2 --save_steps 2 --output_dir run
    pool=$(pool_of)
    ends "$status" "$HALLEY_FAULT"
    nothing_left "$HALLEY_FAULT" "$pool"
    said "$HALLEY_FAULT" "first failure: rank 1 \(host $host, pid [0-9]+\) ${words//_/ }.* in the phase $phase of step $step"
    [ "$phase" = shutdown ] && continue # the others may be done
    for rank in 0 2; do
        said "$HALLEY_FAULT" "^\[rank $rank\] halley train: .*rank 1 \(host $host, pid [0-9]+; last seen: $phase of step $step\)"
    done
done <<CASES
kill start 0 137 was_ended_by_signal_9
kill data 3 137 was_ended_by_signal_9
kill forward 3 137 was_ended_by_signal_9
kill update 3 137 was_ended_by_signal_9
kill evaluation 2 137 was_ended_by_signal_9
kill save 2 137 was_ended_by_signal_9
kill shutdown 4 137 was_ended_by_signal_9
segv backward 3 139 was_ended_by_signal_11
exit forward 2 1 ended_with_status_1
stop start 0 137 was_stopped
stop update 3 137 was_stopped
stop evaluation 2 137 was_stopped
stop save 2 137 was_stopped
stop shutdown 4 137 was_stopped
CASES
unset HALLEY_FAULT

# in the middle of an exchange: at its 40th operation on the wire
launch train $small --max_steps 100 --output_dir run --wire_wrappers fault=kill:1:40
ends 137 "kill in an exchange"
said "kill in an exchange" "first failure: rank 1 .* was ended by signal 9"
# one that computes for ever: the others wait for four seconds, then it is killed
HALLEY_FAULT=hang:2:forward:2 launch train $small --max_steps 100 --output_dir run
ends 137 hang
said hang "^\[rank 0\] halley train: .*waited 4 s for rank 2 "
said hang "first failure: rank 2 .* (did not end in time|gave no sign of life) in the phase forward of step 2"

# a disk that is full for the rank that writes
if unshare -m true 2> /dev/null; then
    mkdir small-disk
    unshare -m bash -c "mount -t tmpfs -o size=100k none small-disk && cd . && exec \"\$0\" launch -n 2 --log_dir logs train $small --max_steps 4 --output_dir small-disk/run" \
        "$halley" > log 2>&1
    [ $? = 1 ] || fail "full disk: status $?: $(cat log)"
    said "full disk" "first failure: rank 0 .* ended with status 1 in the phase save of step 4: .*No space left"
else
    echo "SKIP: no private mounts here, so no full disk"
fi

# the launcher itself is killed: the ranks save and leave; the next launch removes the pool
launch train $small --max_steps 1000000 --output_dir run
pool=$(pool_of)
for i in $(seq 1 300); do [ -s run/metrics.jsonl ] && break; sleep 0.1; done
kill -9 $launcher; wait $launcher 2> /dev/null
for i in $(seq 1 300); do
    left=0; for pid in $(pids); do [ -e "/proc/$pid" ] && left=1; done
    [ $left = 0 ] && break; sleep 0.1
done
nothing_left "killed launcher" ""
[ -s run/latest ] || fail "killed launcher: the ranks saved nothing: $(cat log)"
"$halley" launch -n 2 train $small --max_steps 2 --output_dir after > log2 2>&1 || fail "after a killed launcher: $(cat log2)"
[ -n "$pool" ] && [ ! -e "$pool" ] || fail "the pool '$pool' of a killed launcher is left: $(cat log2)"

# a second signal does not wait
HALLEY_FAULT=hang:2:forward:2 launch --timeout 60 train $small --max_steps 100 --output_dir run
for i in $(seq 1 300); do grep -q 'step *1/100' log && break; sleep 0.1; done
sleep 0.3; kill -TERM $launcher; sleep 0.3; kill -INT $launcher
ends 130 "second signal"
nothing_left "second signal" ""

# Ctrl-Z and fg: ranks stand still with their launcher, for longer than the timeout, and nobody is blamed
launch train $small --max_steps 1000000 --logging_steps 1000 --output_dir run
for i in $(seq 1 300); do [ -s run/metrics.jsonl ] && break; sleep 0.1; done
kill -TSTP $launcher
state() { sed 's/.*) \(.\).*/\1/' "/proc/$1/stat"; }
for i in $(seq 1 100); do [ "$(state $launcher)" = T ] && break; sleep 0.1; done
for pid in $(pids); do [ "$(state "$pid")" = T ] || fail "Ctrl-Z: process $pid goes on"; done
sleep 5; kill -CONT $launcher; sleep 1
kill -INT $launcher
ends 130 "Ctrl-Z and fg"
[ -s run/latest ] || fail "Ctrl-Z and fg: $(cat log)"

# a number that is none
launch train $small --max_steps 100 --learning_rate 1e6 --max_grad_norm 0 --optim sgd --output_dir run
ends 3 "not a number"
said "not a number" "first failure: rank [0-2] \(host $host, pid [0-9]+\) ended with status 3 in the phase .*: step [0-9]+: "

# again from the newest checkpoint
HALLEY_FAULT=kill:1:forward:5 launch --max_restarts 1 train $small --max_steps 6 --save_steps 2 --output_dir run
ends 137 "restart into the same fault"
said "restart" "started again from the newest checkpoint \(--max_restarts: 0 left\)"
said "restart" "going on from run/checkpoint-4, step 4"
[ "$(grep -c 'first failure' log)" = 2 ] || fail "restart: $(cat log)"
exit $failed
