#!/bin/bash
# Live recovery (--elastic): ranks that are killed, stopped or hang are replaced and training goes on with the same bits as if
# nothing had happened; without a replacement fewer ranks go on, as if they had resumed. What cannot be healed ends at once.
# Nothing is left behind.
set -u
halley=$1
source=$(cd "$(dirname "$0")/../.." && pwd)
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1
failed=0
fail() { echo "FAILED: $*"; failed=1; }
for i in $(seq 1 300); do echo "the cat number $((i * 37 % 101)) saw the dog number $((i * 53 % 89))"; done > story.txt
small="--data story.txt --num_hidden_layers 1 --hidden_size 32 --num_attention_heads 2 --block_size 32 --per_device_train_batch_size 2
    --threads 1 --max_steps 6 --eval_steps 3 --save_steps 4 --logging_steps 1"
export ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}handle_segv=0 # a sanitizer would end with a status of its own

# launch STATUS RANKS [--flag ...] [-- --flag of the run ...]; what it says in the file log
launch() {
    local status=$1 ranks=$2 own=() got; shift 2
    while [ $# -gt 0 ] && [ "$1" != -- ]; do own+=("$1"); shift; done
    [ $# -gt 0 ] && shift
    rm -rf run
    timeout 60 "$halley" launch -n "$ranks" --timeout 4 --elastic "${own[@]}" train $small --output_dir run "$@" > log 2>&1; got=$?
    [ $got = "$status" ] || fail "${HALLEY_FAULT:-} $*: status $got instead of $status: $(cat log)"
    nothing_left "${HALLEY_FAULT:-} $*"
}
nothing_left() {
    local pid pool
    for pid in $(sed -n 's/^rank [0-9] pid \([0-9]*\)$/\1/p' log); do [ -e "/proc/$pid" ] && fail "$1: process $pid is left: $(cat log)"; done
    for pool in /dev/shm/halley-*/snapshot; do # others run here too: theirs are locked, or go with their next launch
        [ -e "$pool" ] && { flock -n 0 < "${pool%/*}/lock"; } 2> /dev/null && stays "$pool" && fail "$1: $pool is left: $(cat log)"
    done
}
stays() { local i; for i in $(seq 1 20); do sleep 1; [ -e "$1" ] || return 1; done; }
said() { grep -qE "$2" log || fail "$1: no '$2' in $(cat log)"; }
# The weights, and what of the metrics does not depend on time, are those of the folder.
same_state() { # WHAT FOLDER
    local last
    last=$(cat run/latest) || fail "$1: no checkpoint"
    cmp -s "run/$last/model.safetensors" "$2/$last/model.safetensors" || fail "$1: other weights: $(cat log)"
    cmp -s "run/$last/state.safetensors" "$2/$last/state.safetensors" || fail "$1: other state: $(cat log)"
}
same() { # WHAT FOLDER
    same_state "$@"
    diff <(rows run) <(rows "$2") > difference || fail "$1: other metrics: $(cat difference) $(cat log)"
}
rows() { grep -o '"step": [0-9]*, "loss": [0-9.e-]*\|"eval_loss": [0-9.e-]*' "$1/metrics.jsonl"; }

# unbroken
launch 0 2; mv run two
said unbroken '^\[rank 0\] elastic: two copies of the state in shared memory, [0-9.]+ [KM]iB; [0-9.]+ [KM]iB per rank and step written$'
launch 0 3; mv run three

# FAULT RANKS FOLDER FLAG ...
while read -r fault ranks like flags; do
    HALLEY_FAULT=$fault launch 0 "$ranks" -- $flags
    same "$fault $flags" "$like"
    said "$fault $flags" "going on from the last committed step, step [0-9]"
done <<CASES
kill:1:forward:3 2 two --strategy ddp
kill:0:backward:5 2 two --strategy zero1
kill:1:update:2 2 two --strategy zero2
kill:0:update:4 2 two --strategy zero3
kill:2:data:1 3 three --strategy zero3
segv:0:evaluation:3 3 three --strategy zero2
exit:1:forward:6 3 three --strategy ddp
kill:0:save:4 3 three --strategy zero1
kill:0:save:6 2 two --strategy zero1
kill:1:save:6 3 three --strategy zero2
kill:0:forward:2,kill:1:forward:3:2,kill:0:update:3:3 2 two --strategy zero1
kill:1:update:4,kill:1:start:0:2 2 two --strategy zero3
kill:0:update:4,kill:1:data:4:2 3 three --strategy zero3
kill:0:forward:3,kill:1:forward:3,kill:2:forward:3 3 three --strategy zero1
stop:1:backward:3 2 two --strategy zero1
CASES

# one that computes for ever: the others wait for two seconds, and one more for it to come back
HALLEY_FAULT=hang:1:backward:3 launch 0 2 --timeout 2 -- --strategy zero1
same hang two
said hang 'rank 1 .* did not come back in time in the phase backward of step 3; 2 ranks go on'

# in a run that was resumed, over a pool that was there
"$halley" pool create elastic-$$ --size 32M > log 2>&1 || fail "pool create: $(cat log)"
HALLEY_FAULT=kill:1:forward:5 launch 0 2 --pool elastic-$$ -- --resume_from_checkpoint "$PWD/two/checkpoint-4"
cmp run/checkpoint-6/model.safetensors two/checkpoint-6/model.safetensors || fail "resumed: other weights: $(cat log)"
[ -e /dev/shm/halley-elastic-$$/dev0 ] && [ ! -e /dev/shm/halley-elastic-$$/snapshot ] || fail "the pool that was there: $(ls /dev/shm/halley-elastic-$$)"
"$halley" pool free elastic-$$ > log 2>&1 || fail "pool free: $(cat log)"

# before anything was committed
HALLEY_FAULT=kill:1:start:0 launch 0 2
same "kill at the start" two
# when all was done
HALLEY_FAULT=kill:1:shutdown:6 launch 0 2
same "kill at the end" two

# fewer ranks go on, as if they had resumed
resume() { # FROM RANKS STEP FLAG ...
    local at=$PWD/$1/checkpoint-$3 ranks=$2; shift 3
    "$halley" launch -n "$ranks" train $small "$@" --output_dir fewer --resume_from_checkpoint "$at" > log 2>&1 || fail "resume: $(cat log)"
}
HALLEY_FAULT=kill:1:forward:5 launch 0 3 --max_restarts 0 -- --strategy zero3
said fewer '2 ranks go on from the last committed step'
mv run less
resume three 2 4; mv less run
cmp run/checkpoint-6/model.safetensors fewer/checkpoint-6/model.safetensors || fail "fewer ranks: other weights: $(cat log)"
rm -rf fewer
HALLEY_FAULT=kill:0:forward:5 launch 0 2 --max_restarts 0 -- --strategy zero1
mv run less
resume two 1 4; mv less run
cmp run/checkpoint-6/model.safetensors fewer/checkpoint-6/model.safetensors || fail "one rank: other weights: $(cat log)"

# state of a rank's own: with a replacement the bits of the run that was left alone; without one those that are left keep theirs, as
# those that have their number do on resuming; a dead one's is left out
own() { # FLAG ...
    rm -rf own fewer
    launch 0 3 -- "$@"; mv run own
    HALLEY_FAULT=kill:1:forward:2,kill:0:update:4:2,kill:2:backward:6:3,kill:1:data:6:4 launch 0 3 -- "$@"
    same "$2" own
    HALLEY_FAULT=kill:2:forward:5 launch 0 3 --max_restarts 0 -- "$@"
    said "fewer: $2" '2 ranks go on from the last committed step'
    mv run less
    resume own 2 4 "$@"; mv less run
    same_state "fewer: $2" fewer
}
own --strategy diloco --sync_every 3
own --strategy streaming_diloco --sync_every 3 --streaming_diloco.fragments 3 --streaming_diloco.delay 2
own --strategy acco --gradient_accumulation_steps 2 --acco.micro_batches_per_round 1
HALLEY_FAULT=kill:1:forward:2 launch 0 3 --max_restarts 0 -- --strategy acco --max_steps 400 --save_steps 0 # at its own pace
said "own pace" '2 ranks go on from the last committed step'

# what does not heal
HALLEY_FAULT=kill:0:forward:2 launch 137 1 --max_restarts 0
said "none left" "no other ranks follow: none is left"
launch 3 2 -- --learning_rate 1e6 --max_grad_norm 0 --optim sgd --max_steps 100
said "not a number" "first failure: rank [01] .* ended with status 3"
grep -q "go on from the last committed step" log && fail "a number that is none was tried again: $(cat log)"
launch 2 2 --wire threads
said threads "elastic: the state outlives a rank in the memory of one machine's pool, and the wire is 'threads'"
launch 2 2 --wire wan
launch 2 2 --wire mpi
"$halley" launch -n 2 --elastic bench-net > log 2>&1
[ $? = 2 ] || fail "bench-net: $(cat log)"

# not enough memory for the state: before anything is trained
if unshare -m true 2> /dev/null; then
    unshare -m bash -c 'mount -t tmpfs -o size=12m none /dev/shm && exec "$@"' - "$halley" launch -n 2 --elastic train $small \
        --hidden_size 256 --output_dir run2 > log 2>&1
    [ $? = 1 ] || fail "full /dev/shm: $(cat log)"
    said "full /dev/shm" "elastic keeps two copies of the state in memory: it needs [0-9.]+ MiB in /dev/shm, where .* are free: enlarge it"
    [ -e run2/metrics.jsonl ] && fail "full /dev/shm: it began all the same"
else
    echo "SKIP: no private mounts here, so no full /dev/shm"
fi

# asked to stop
env --default-signal=INT "$halley" launch -n 2 --elastic train $small --max_steps 1000000 --output_dir asked > log 2>&1 & launcher=$!
for i in $(seq 1 300); do [ -s asked/metrics.jsonl ] && break; sleep 0.1; done
kill -INT $launcher; wait $launcher; got=$?
[ $got = 130 ] && [ -s asked/latest ] || fail "asked to stop: status $got: $(cat log)"
nothing_left "asked to stop"

# the launcher itself is killed: the next launch removes what it left
"$halley" launch -n 2 --elastic train $small --max_steps 1000000 --output_dir killed > log 2>&1 & launcher=$!
for i in $(seq 1 300); do [ -s killed/metrics.jsonl ] && break; sleep 0.1; done
[ -s killed/metrics.jsonl ] || fail "to be killed: $(cat log)"
kill -9 $launcher; wait $launcher 2> /dev/null
for i in $(seq 1 300); do
    left=0; for pid in $(sed -n 's/^rank [0-9] pid \([0-9]*\)$/\1/p' log); do [ -e "/proc/$pid" ] && left=1; done
    [ $left = 0 ] && break; sleep 0.1
done
launch 0 2; same "after a killed launcher" two

# kills at random instants
soak() { [ -z "${HALLEY_SOAK:-}" ] || bash "$source/tools/soak_elastic.sh" "$halley" "$@" || fail "soak $*"; }
soak 200
soak 30 3 streaming_diloco --sync_every 9 --streaming_diloco.delay 4
soak 30 3 acco --gradient_accumulation_steps 2 --acco.micro_batches_per_round 1
exit $failed
