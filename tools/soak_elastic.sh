#!/bin/bash
# 200 kills at random instants in one run (--elastic): the weights are those of the run that was left alone, nothing hangs, nothing
# is left behind. Part of tests/cli/elastic.sh under HALLEY_SOAK.
# usage: [SEED=N] tools/soak_elastic.sh HALLEY [KILLS [RANKS [STRATEGY [--flag of the run ...]]]]
set -u
halley=$(readlink -f "$1") kills=${2:-200} ranks=${3:-3} strategy=${4:-zero2} flags=("${@:5}")
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1
RANDOM=${SEED:=$$}
for i in $(seq 1 300); do echo "the cat number $((i * 37 % 101)) saw the dog number $((i * 53 % 89))"; done > story.txt
run() { # FOLDER STEPS WORD ...
    local out=$1 steps=$2; shift 2
    "$halley" launch -n "$ranks" --timeout 20 "$@" train --data story.txt --num_hidden_layers 2 --hidden_size 64 --num_attention_heads 2 \
        --block_size 64 --per_device_train_batch_size 4 --threads 1 --strategy "$strategy" --learning_rate 1e-4 --logging_steps 50 \
        --eval_steps 100 --save_steps 500 --save_total_limit 1 --max_steps "$steps" --output_dir "$out" "${flags[@]}"
}
steps=$((kills * 40))
run alone "$steps" > alone.log 2>&1 || { echo "the run without kills failed"; tail -5 alone.log; exit 1; }
run killed "$steps" --elastic --max_restarts 1000000 > log 2>&1 & launcher=$!
done=0
while [ $done -lt "$kills" ] && kill -0 $launcher 2> /dev/null; do
    sleep "0.$((RANDOM % 9))$((RANDOM % 10))"
    # the newest process of a random rank: it may be starting, reading the state, training, or waiting for the others
    victim=$(sed -n "s/^rank $((RANDOM % ranks)) pid \([0-9]*\)$/\1/p" log | tail -n 1)
    [ -n "$victim" ] && kill -9 "$victim" 2> /dev/null && done=$((done + 1))
done
wait $launcher; status=$?
recoveries=$(grep -c 'go on from the last committed step' log)
echo "seed $SEED, $ranks ranks, $strategy ${flags[*]}: $done kills, $recoveries recoveries, status $status, $SECONDS s"
[ $status = 0 ] || { tail -20 log; exit 1; }
[ $done = "$kills" ] || { echo "the run ended before all kills were made: give it more steps"; exit 1; }
last=$(cat alone/latest) || exit 1
cmp {alone,killed}/"$last"/model.safetensors && cmp {alone,killed}/"$last"/state.safetensors || exit 1
for pid in $(sed -n 's/^rank [0-9] pid \([0-9]*\)$/\1/p' log); do [ ! -e "/proc/$pid" ] || { echo "process $pid is left"; exit 1; }; done
