#!/bin/bash
# halley launch: several ranks of one run, how they end, and that nothing is left behind.
set -u
halley=$1
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1
failed=0
fail() { echo "FAILED: $*"; failed=1; }
# expect STATUS 'TEXT' command...: exit status, and TEXT somewhere in what it says
expect() {
    local status=$1 text=$2; shift 2
    local said; said=$("$@" 2>&1); local got=$?
    [ "$got" = "$status" ] || fail "status $got instead of $status: $* said: $said"
    [[ $said == *"$text"* ]] || fail "no '$text' in what $* said: $said"
}

for i in $(seq 1 300); do echo "the cat number $((i * 37 % 101)) saw the dog number $((i * 53 % 89))"; done > story.txt
small="--data story.txt --num_hidden_layers 1 --hidden_size 32 --num_attention_heads 2 --block_size 32 --per_device_train_batch_size 2 --threads 1"

# mistakes are told once, before a rank is started
expect 2 'how many ranks' "$halley" launch train $small
expect 2 'nothing to start' "$halley" launch -n 2
expect 2 "'plan' is no command" "$halley" launch -n 2 plan
expect 2 'allowed is from 1 to 64' "$halley" launch -n 65 train $small
expect 2 'unknown option' "$halley" launch -n 2 --wire threads train $small --learnin_rate 3
expect 0 'halley launch -n RANKS' "$halley" launch --help
expect 0 'learning_rate' "$halley" launch -n 2 train --help
expect 0 'max_steps: 3' "$halley" launch -n 2 train $small --max_steps 3 --print_config

# threads: one run, rank 0 speaks
expect 0 'step 6/6' "$halley" launch -n 2 --wire threads train $small --max_steps 6 --output_dir two
[ -s two/checkpoint-6/manifest.json ] || fail "no checkpoint of two ranks"
[ "$(grep -c '"step": 6' two/metrics.jsonl)" = 1 ] || fail "metrics of two ranks: $(cat two/metrics.jsonl)"
# the wire may stand behind train too; other strategies; the same bits
expect 0 'step 6/6' "$halley" launch --nproc-per-node=2 train $small --wire threads --max_steps 6 --output_dir sharded --strategy zero1
cmp two/checkpoint-6/model.safetensors sharded/checkpoint-6/model.safetensors || fail "ddp and zero1 differ"
# one rank of a launcher is a run like any other
expect 0 'step 6/6' "$halley" launch -n 1 --wire threads train $small --max_steps 6 --output_dir one
expect 2 'holds a run already' "$halley" launch -n 2 --wire threads train $small --max_steps 6 --output_dir two
expect 0 'going on from' "$halley" launch -n 3 --wire threads train $small --max_steps 8 --output_dir two --resume
expect 3 'rank 1: step' "$halley" launch -n 2 --wire threads train $small --max_steps 200 --learning_rate 1e6 --max_grad_norm 0 --optim sgd --output_dir nan
expect 2 "is for one rank, but there are 2" "$halley" launch -n 2 --wire threads train $small --strategy single --output_dir none

# signals: all ranks finish the same step, one checkpoint is written
for signal in INT TERM; do
    env --default-signal=INT timeout 150 "$halley" launch -n 2 --wire threads train $small --max_steps 1000000 --output_dir "sig$signal" > log 2>&1 &
    pid=$!
    for i in $(seq 1 1000); do [ -s "sig$signal/metrics.jsonl" ] && break; sleep 0.1; done
    kill -s $signal "$(pgrep -P $pid)"
    wait $pid; status=$?
    want=130; [ $signal = TERM ] && want=143
    [ $status = $want ] || fail "SIG$signal ended with $status: $(cat log)"
    [ -s "sig$signal/latest" ] || fail "SIG$signal saved nothing: $(cat log)"
done

# processes over a pool: lines with a prefix, a log for each rank, the bits of threads, no pool afterwards
expect 0 '[rank 0] step 6/6' "$halley" launch -n 2 train $small --max_steps 6 --output_dir pool
cmp two/checkpoint-6/model.safetensors pool/checkpoint-6/model.safetensors || fail "threads and pool differ"
grep -q '^step 6/6' pool/logs/rank-0.log || fail "rank 0's log: $(cat pool/logs/rank-0.log)"
said=$("$halley" launch -n 2 --log_dir logs train $small --max_steps 6 --output_dir pool 2>&1); status=$?
[ $status = 2 ] || fail "a used folder: status $status: $said"
[ "$(grep -cE '^rank [01] pid [0-9]+$' <<< "$said")" = 2 ] || fail "no pids: $said"
grep -qE '^\[rank 1\] halley train: rank 0 \(host .* gave up: output_dir: pool holds a run' <<< "$said" || fail "rank 1 does not say why: $said"
grep -q 'first failure: rank 0 .* ended with status 2 .*pool holds a run already' <<< "$said" || fail "no first failure: $said"
grep -q 'holds a run' logs/rank-0.log || fail "--log_dir: $(ls logs)"
expect 0 'step 6/6' "$halley" launch -n 1 train $small --max_steps 6 --output_dir alone
cmp one/checkpoint-6/model.safetensors alone/checkpoint-6/model.safetensors || fail "one rank over a pool differs"
env --default-signal=INT timeout 150 "$halley" launch -n 2 train $small --max_steps 1000000 --output_dir poolsig > log 2>&1 &
pid=$!
for i in $(seq 1 1000); do [ -s poolsig/metrics.jsonl ] && break; sleep 0.1; done
kill -s INT "$(pgrep -P $pid)"
wait $pid; status=$?
[ $status = 130 ] && [ -s poolsig/latest ] || fail "SIGINT to the launcher: $status: $(cat log)"

# a pool that is there already
mine=launch-$$
"$halley" pool create $mine --size 64M > log 2>&1 || fail "pool create: $(cat log)"
expect 0 'step 6/6' "$halley" launch -n 2 --pool $mine train $small --max_steps 6 --output_dir there
cmp two/checkpoint-6/model.safetensors there/checkpoint-6/model.safetensors || fail "a pool that was there: other bits"
"$halley" pool free $mine > log 2>&1 || fail "the pool is gone or in use after the run: $(cat log)"
expect 2 "$mine" "$halley" launch -n 2 --pool $mine train $small --output_dir none

# the cores are shared
expect 0 'shared by 2 ranks' env -u OMP_NUM_THREADS "$halley" launch -n 2 train ${small/--threads 1/} --max_steps 1 --output_dir cores

# a wire with something in front of it
expect 0 'step 2/2' "$halley" launch -n 2 train $small --max_steps 2 --output_dir slow --wire_wrappers count,delay=1ms
expect 2 "wrapper" "$halley" launch -n 2 train $small --wire_wrappers slowly --output_dir none

# mpirun, of each MPI that is here: the bits of the pool; the ranks' own words; asked to stop, they save
for mpi in openmpi mpich; do
    command -v mpirun.$mpi > /dev/null && [ -e "$(dirname "$halley")/modules/mpi-$mpi.so" ] || { echo "SKIP: no mpirun.$mpi here, or no module for it"; continue; }
    export HALLEY_MPI=$mpi ASAN_OPTIONS=detect_leaks=0 # MPI's own
    expect 0 'step 6/6' "$halley" launch -n 2 --wire mpi train $small --max_steps 6 --output_dir $mpi
    cmp two/checkpoint-6/model.safetensors $mpi/checkpoint-6/model.safetensors || fail "threads and $mpi differ"
    grep -q '^step 6/6' $mpi/logs/ranks.log || fail "$mpi: $(cat $mpi/logs/ranks.log)"
    expect 2 'holds a run already' "$halley" launch -n 2 --wire mpi train $small --max_steps 6 --output_dir $mpi
    printf '#!/bin/sh\nmpirun.%s "$@"\nexit 0\n' $mpi > forgetful; chmod +x forgetful # MPICH's may lose a status
    HALLEY_FAULT=kill:1:forward:2 HALLEY_MPIRUN=./forgetful "$halley" launch -n 2 --wire mpi train $small --max_steps 6 --output_dir $mpi-killed > log 2>&1 && fail "a rank that was killed: $(cat log)"
    grep -qE 'first failure: rank 1 |a rank broke' log || fail "a rank that was killed: $(cat log)"
    expect 2 'first failure: rank 0 in the phase start' env HALLEY_MPIRUN=./forgetful "$halley" launch -n 2 --wire mpi train $small --max_steps 6 --output_dir $mpi
    timeout 150 "$halley" launch -n 2 --wire mpi train $small --max_steps 1000000 --output_dir $mpi-sig > log 2>&1 &
    pid=$!
    for i in $(seq 1 1000); do [ -s $mpi-sig/metrics.jsonl ] && break; sleep 0.1; done
    kill -s TERM "$(pgrep -P $pid)"
    wait $pid; status=$?
    [ $status = 143 ] && [ -s $mpi-sig/latest ] || fail "SIGTERM to the launcher of $mpi: $status: $(cat log)"
    unset HALLEY_MPI ASAN_OPTIONS
done
HALLEY_MPIRUN=/nothing PATH=/nothing expect 2 'needs mpirun' "$halley" launch -n 2 --wire mpi train $small --output_dir none

# several machines: what is missing is named
expect 2 'node_rank: which of the 2 machines' "$halley" launch -n 2 --nnodes 2 train $small --output_dir none
expect 2 'node_rank: 2 is not below nnodes' "$halley" launch -n 2 --nnodes 2 --node_rank 2 train $small --output_dir none
expect 2 'which one do all machines map? --pool POOL' "$halley" launch -n 2 --nnodes 2 --node_rank 0 --wire pool train $small --output_dir none
expect 2 'over wan' "$halley" launch -n 2 --nnodes 2 --node_rank 0 --wire mpi train $small --output_dir none
expect 2 'standalone' "$halley" launch -n 2 --nnodes 2 --standalone train $small --output_dir none
expect 2 '80 ranks in all' "$halley" launch -n 40 --nnodes 2 --node_rank 0 train $small --output_dir none
expect 0 'step 2/2' "$halley" launch --standalone --nnodes 1 --nproc-per-node 2 train $small --max_steps 2 --output_dir standalone

# ranks by variables: a wire that needs more than variables, halves of a pair
expect 2 "is for the ranks of one process" env RANK=0 WORLD_SIZE=2 MASTER_ADDR=localhost MASTER_PORT=29500 "$halley" train $small --wire threads
expect 2 'WORLD_SIZE is not' env RANK=0 "$halley" train $small
expect 0 'step 2/2' env RANK=0 WORLD_SIZE=1 "$halley" train $small --max_steps 2 --output_dir env
exit $failed
