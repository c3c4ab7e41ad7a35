#!/bin/bash
# Ranks that are killed, stopped, broken or hang in every phase, over the pool and over TCP: the others end, name the rank, its host,
# what it did and the step; the launcher exits with the status of the one that failed first; nothing is left behind.
# Cases run side by side, each in a folder of its own: most of them wait. HALLEY_SOAK=1: every fault in every phase.
set -u
halley=$1
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1
failed=0
fail() { echo "FAILED: $*"; failed=1; }
for i in $(seq 1 300); do echo "the cat number $((i * 37 % 101)) saw the dog number $((i * 53 % 89))"; done > story.txt
small="--data $folder/story.txt --num_hidden_layers 1 --hidden_size 32 --num_attention_heads 2 --block_size 32 --per_device_train_batch_size 2 --threads 1"
host=$(hostname)
patience=6 # of those who wait for a rank that does not answer
export ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}handle_segv=0 # a sanitizer would end with a status of its own
export TSAN_OPTIONS=${TSAN_OPTIONS:+$TSAN_OPTIONS:}handle_segv=0

# ---- side by side ----
n_cases=0
# at_once MOST COMMAND...: as another process, when fewer than MOST are at work
at_once() {
    local most=$1; shift
    while [ "$(jobs -rp | wc -l)" -ge "$most" ]; do sleep 0.05; done
    n_cases=$((n_cases + 1))
    mkdir "case$n_cases"
    (cd "case$n_cases" && failed=0 && "$@"; exit $failed) > "case$n_cases.out" 2>&1 &
    cases[n_cases]=$!
}
finish() {
    for i in $(seq 1 $n_cases); do wait "${cases[i]}" || failed=1; cat "case$i.out"; done
}

# ---- one launch ----
# A launch of three ranks, in the background: its pid in $launcher, what it says in the file log.
launch() { env --default-signal=INT "$halley" launch -n 3 "$@" > log 2>&1 & launcher=$!; }
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
# ends STATUS WHAT: the launcher, within two minutes
ends() {
    local status=$1 what=$2 n=0
    while kill -0 $launcher 2>/dev/null; do
        n=$((n + 1))
        [ $n -gt 1200 ] && { fail "$what: hangs: $(cat log)"; kill -9 $launcher; break; }
        sleep 0.1
    done
    wait $launcher 2>/dev/null; local got=$?
    [ $got = "$status" ] || fail "$what: status $got instead of $status: $(cat log)"
}
said() { grep -qE "$2" log || fail "$1: no '$2' in $(cat log)"; }
# The run has begun.
wait_for_metrics() { for i in $(seq 1 600); do [ -s run/metrics.jsonl ] && break; sleep 0.1; done; }

# ---- a rank breaks ----
fault() { # WIRE KIND PHASE STEP
    local wire=$1 kind=$2 phase=$3 step=$4 what="$2 in $3 of step $4 over $1" status words pool= timeout=60 rank
    case $kind in
    kill) status=137 words="was ended by signal 9" ;;
    segv) status=139 words="was ended by signal 11" ;;
    exit) status=1 words="ended with status 1" ;;
    stop) status=137 words="was stopped" timeout=$patience ;;
    esac
    HALLEY_FAULT=$kind:1:$phase:$step launch --wire "$wire" --timeout $timeout train $small --max_steps 4 --eval_steps 2 --save_steps 2 --output_dir run
    [ "$wire" = pool ] && pool=$(pool_of)
    ends "$status" "$what"
    nothing_left "$what" "$pool"
    said "$what" "first failure: rank 1 \(host $host, pid [0-9]+\) $words.* in the phase $phase of step $step"
    [ "$phase" = shutdown ] && return # the others may be done
    # those who still wait to meet it over TCP are ended by the launcher, five seconds later
    [ "$wire:$phase" = wan:start ] && return
    # a message over TCP that was not sent yet goes with the process
    local seen="$phase of step $step"; [ "$wire" = wan ] && seen='.* of step [0-9]+'
    for rank in 0 2; do
        said "$what" "^\[rank $rank\] halley train: .*rank 1 \(host $host, pid [0-9]+; last seen: $seen\)"
    done
}
in_exchange() { # WIRE: at its 40th operation
    launch --wire "$1" --timeout 60 train $small --max_steps 100 --output_dir run --wire_wrappers fault=kill:1:40
    ends 137 "kill in an exchange over $1"
    said "kill in an exchange over $1" "first failure: rank 1 .* was ended by signal 9"
}
# one that computes for ever: the others wait, then it is killed
hang() { # WIRE
    HALLEY_FAULT=hang:2:forward:2 launch --wire "$1" --timeout $patience train $small --max_steps 100 --output_dir run
    ends 137 "hang over $1"
    said "hang over $1" "^\[rank 0\] halley train: .*waited $patience s for rank 2 "
    said "hang over $1" "first failure: rank 2 .* (did not end in time|gave no sign of life) in the phase forward of step 2"
}
not_a_number() { # WIRE STRATEGY
    launch --wire "$1" --timeout 60 train $small --strategy "$2" --max_steps 100 --learning_rate 1e6 --max_grad_norm 0 --optim sgd --output_dir run
    ends 3 "not a number, $2 over $1"
    said "not a number, $2 over $1" "first failure: rank [0-2] \(host $host, pid [0-9]+\) ended with status 3 in the phase .*: step [0-9]+: .* began in "
    for rank in 0 1 2; do said "not a number, $2 over $1" "^\[rank $rank\] halley train: .*step [0-9]+: the (loss|gradient) .* began in "; done
}

# ---- a disk that is full for the rank that writes (the others write nothing) ----
on_small_disk() { # STATUS, options of the run
    local status=$1; shift
    mkdir small-disk
    unshare -m bash -c 'mount -t tmpfs -o size=100k none small-disk && head -c "$2" /dev/zero > small-disk/filler && shift 2 && exec "$0" "$@"' \
        "$halley" "$@" > log 2>&1
    local got=$?
    [ $got = "$status" ] || fail "full disk: status $got instead of $status: $(cat log)"
}
full_at_save() {
    on_small_disk 1 x 1 launch -n 2 --wire "$1" --log_dir logs train $small --max_steps 4 --output_dir small-disk/run
    said "full disk over $1" "first failure: rank 0 .* ended with status 1 in the phase save of step 4: .*No space left"
}
# nothing but rows of metrics is written at an evaluation: the run goes on, says what is missing, and fails where it must save
full_at_evaluation() {
    on_small_disk 1 x 90000 launch -n 2 --log_dir logs train $small --max_steps 400 --eval_steps 1 --logging_steps 1 --tensorboard false \
        --max_eval_batches 1 --output_dir small-disk/run
    said "full disk at evaluation" "^\[rank 0\] warning: .*No space left"
    said "full disk at evaluation" "^\[rank 0\] step 400/400"
    said "full disk at evaluation" "first failure: rank 0 .* in the phase save of step 400: "
}

# ---- the launcher ----
# it is killed: the ranks save and leave; the next launch removes the pool
killed_launcher() {
    launch --timeout 60 train $small --max_steps 1000000 --output_dir run
    local pool i left pid; pool=$(pool_of)
    wait_for_metrics
    kill -9 $launcher; wait $launcher 2> /dev/null
    for i in $(seq 1 600); do
        left=0; for pid in $(pids); do [ -e "/proc/$pid" ] && left=1; done
        [ $left = 0 ] && break; sleep 0.1
    done
    nothing_left "killed launcher" ""
    [ -s run/latest ] || fail "killed launcher: the ranks saved nothing: $(cat log)"
    "$halley" launch -n 2 train $small --max_steps 2 --output_dir after > log2 2>&1 || fail "after a killed launcher: $(cat log2)"
    [ -n "$pool" ] && [ ! -e "$pool" ] || fail "the pool '$pool' of a killed launcher is left: $(cat log2)"
}
# a second signal does not wait
second_signal() {
    HALLEY_FAULT=hang:2:forward:2 launch --timeout 60 train $small --max_steps 100 --output_dir run
    for i in $(seq 1 600); do grep -q 'step *1/100' log && break; sleep 0.1; done
    sleep 0.3; kill -TERM $launcher
    for i in $(seq 1 100); do grep -qE '^S(ig|hd)Pnd:.*[1-9a-f]' "/proc/$launcher/status" || break; sleep 0.1; done
    sleep 0.3; kill -INT $launcher
    ends 130 "second signal"
    nothing_left "second signal" ""
}
# Ctrl-Z and fg: ranks stand still with their launcher, for longer than the timeout, and nobody is blamed
ctrl_z() {
    launch --timeout $patience train $small --max_steps 1000000 --logging_steps 1000 --output_dir run
    wait_for_metrics
    kill -TSTP $launcher
    state() { sed 's/.*) \(.\).*/\1/' "/proc/$1/stat"; }
    for pid in $launcher $(pids); do
        for i in $(seq 1 300); do [ "$(state "$pid")" = T ] && break; sleep 0.1; done
        [ "$(state "$pid")" = T ] || fail "Ctrl-Z: process $pid goes on"
    done
    sleep $((patience + 1)); kill -CONT $launcher; sleep 1
    kill -INT $launcher
    ends 130 "Ctrl-Z and fg"
    [ -s run/latest ] || fail "Ctrl-Z and fg: $(cat log)"
}
# again from the newest checkpoint, although the first start was to overwrite the folder
restart() {
    HALLEY_FAULT=kill:1:forward:5 launch --timeout 60 --max_restarts 1 train $small --max_steps 6 --save_steps 2 --output_dir run --overwrite_output_dir
    ends 137 "restart into the same fault"
    said "restart" "started again from the newest checkpoint \(--max_restarts: 0 left\)"
    said "restart" "going on from run/checkpoint-4, step 4"
    [ "$(grep -c 'first failure' log)" = 2 ] || fail "restart: $(cat log)"
}

# ---- all of them: what only waits first ----
waiting=40
at_once $waiting ctrl_z
at_once $waiting hang pool
at_once $waiting hang wan
for case in "pool start 0" "pool update 3" "pool evaluation 2" "pool save 2" "pool shutdown 4" "wan forward 3" "wan save 2"; do
    read -r wire phase step <<< "$case"
    at_once $waiting fault "$wire" stop "$phase" "$step"
done
busy=$((n_cases + 4))
at_once $busy killed_launcher
at_once $busy second_signal
at_once $busy restart
phases="start:0 data:3 forward:3 backward:3 update:3 evaluation:2 save:2 shutdown:4"
while read -r wire kind which; do
    [ -n "${HALLEY_SOAK:-}" ] && which=$phases
    for at in $which; do at_once $busy fault "$wire" "$kind" "${at%:*}" "${at#*:}"; done
done << CASES
pool kill start:0 data:3 forward:3 update:3 evaluation:2 save:2 shutdown:4
pool segv start:0 forward:3 backward:3 evaluation:2 save:2 shutdown:4
pool exit forward:2 evaluation:2
wan kill start:0 backward:3 evaluation:2 save:2
wan segv start:0 forward:3 evaluation:2 save:2 shutdown:4
wan exit update:2 save:2
CASES
[ -n "${HALLEY_SOAK:-}" ] && for wire in pool wan; do for at in $phases; do at_once $busy fault $wire stop "${at%:*}" "${at#*:}"; done; done
at_once $busy in_exchange pool
at_once $busy in_exchange wan
at_once $busy not_a_number pool ddp
at_once $busy not_a_number pool zero3
at_once $busy not_a_number wan zero1
if unshare -m true 2> /dev/null; then
    at_once $busy full_at_save pool
    at_once $busy full_at_save wan
    at_once $busy full_at_evaluation
else
    echo "SKIP: no private mounts here, so no full disk"
fi
finish
exit $failed
