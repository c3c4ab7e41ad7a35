#!/bin/bash
# halley train under each MPI's mpirun: the bits of threads, and an end within seconds when a rank breaks.
set -u
halley=$1
modules=$(dirname "$halley")/modules
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
# Under AddressSanitizer: whole stacks, in which tests/lsan.supp finds the MPI libraries (they keep no frame pointers).
export ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}fast_unwind_on_malloc=0"
cd "$folder" || exit 1
failed=0 tried=0
fail() { echo "FAILED: $*"; failed=1; }
# expect STATUS 'TEXT' command...: exit status (- for any but 0 and the end of patience; of the mpirun of MPICH 4.2.1, which
# forgot it in 5 of 120 runs, 0 will do), and TEXT somewhere in what it says
expect() {
    local status=$1 text=$2; shift 2
    local said; said=$("$@" < /dev/null 2>&1); local got=$?
    [ "$got" = "$status" ] || { [ "$status" = - ] && [ "$got" != 124 ] && { [ "$got" != 0 ] || [[ $* == *mpirun.mpich* ]]; }; } || fail "status $got instead of $status: $* said: $said"
    [[ $said == *"$text"* ]] || fail "no '$text' in what $* said: $said"
}

for i in $(seq 1 300); do echo "the cat number $((i * 37 % 101)) saw the dog number $((i * 53 % 89))"; done > story.txt
small="--data story.txt --num_hidden_layers 1 --hidden_size 32 --num_attention_heads 2 --block_size 32 --per_device_train_batch_size 2 --threads 1"
train="$halley train $small --max_steps 6"
# strategy:accumulation:bf16, each over threads first
cells="ddp:1:false zero1:2:true zero2:4:false zero3:2:true zero3:1:false"
cell() { echo "--strategy ${1%%:*} --gradient_accumulation_steps $(cut -d: -f2 <<< "$1") --bf16 ${1##*:}"; }
for c in $cells; do
    "$halley" launch -n 3 --wire threads train $small --max_steps 6 $(cell $c) --output_dir threads-$c > log 2>&1 || fail "threads, $c: $(cat log)"
done

# all MPIRUN...: what holds with every MPI
all() {
    local c
    for c in $cells; do
        expect 0 'step 6/6' "$@" $train $(cell $c) --output_dir mpi
        cmp threads-$c/checkpoint-6/model.safetensors mpi/checkpoint-6/model.safetensors || fail "$*, $c: other bits than threads"
        rm -rf mpi
    done
    expect - 'holds a run already' "$@" $train --output_dir threads-zero3:1:false
    expect - '' env HALLEY_FAULT=kill:1:backward:3 "$@" $train --output_dir killed
    expect - '' env HALLEY_FAULT=exit:1:forward:3 "$@" $train --output_dir ended
    expect - 'waited 5 s for rank 1' env HALLEY_FAULT=stop:1:forward:3 "$@" $train --output_dir stopped --timeout 5
    expect - 'no module mpi-' env HALLEY_MODULES="$folder" "$@" $train --output_dir none
    [ ! -e killed/checkpoint-6 ] && [ ! -e ended/checkpoint-6 ] || fail "$1: a run without rank 1 went on to its end"
    rm -rf killed ended stopped none
}

if command -v mpirun.openmpi > /dev/null && [ -e "$modules/mpi-openmpi.so" ]; then
    tried=1
    openmpi="timeout 120 mpirun.openmpi --allow-run-as-root --oversubscribe --bind-to none --mca plm isolated --mca btl self,vader -np 3"
    all $openmpi
    # the survivors can speak: Open MPI 4 sends SIGTERM before SIGKILL, by default one second, which is short on a busy machine; 5,
    # which takes a quarter, leaves them alone until one has ended
    expect - 'rank 1 (host ' env OMPI_MCA_odls_base_sigkill_timeout=5 PRTE_MCA_state_base_recoverable=1 HALLEY_FAULT=kill:1:backward:3 $openmpi $train --output_dir killed
else
    echo "SKIP: no Open MPI"
fi
if command -v mpirun.mpich > /dev/null && [ -e "$modules/mpi-mpich.so" ]; then
    tried=1
    all timeout 120 mpirun.mpich -np 3
else
    echo "SKIP: no MPICH"
fi
expect 2 'was not started by mpirun' env RANK=0 WORLD_SIZE=2 MASTER_ADDR=localhost MASTER_PORT=29500 "$halley" train $small --wire mpi
[ $tried = 1 ] || [ $failed = 1 ] || exit 77
exit $failed
