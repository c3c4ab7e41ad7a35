#!/bin/bash
# The commands as such: how each explains itself, what it says when it is asked for the wrong thing, and what plan, eval and
# generate print.
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
    local said; said=$("$@" 2>&1 < /dev/null); local got=$?
    [ "$got" = "$status" ] || fail "status $got instead of $status: $* said: $said"
    [[ $said == *"$text"* ]] || fail "no '$text' in what $* said: $said"
}
for i in $(seq 1 300); do echo "the cat number $((i * 37 % 101)) saw the dog number $((i * 53 % 89))"; done > story.txt
small="--model llama --num_hidden_layers 1 --hidden_size 32 --num_attention_heads 2 --block_size 16 --per_device_train_batch_size 4 --threads 1"

# ---- the program ----
expect 2 'usage: halley COMMAND' "$halley"
expect 0 'usage: halley COMMAND' "$halley" --help
expect 2 "halley: no command 'trian'; did you mean 'train'?" "$halley" trian
expect 2 "halley: no command 'xyzzy'; 'halley --help' lists them" "$halley" xyzzy
commands=$("$halley" --help | sed -n 's/^  \([a-z-]*\) .*/\1/p')
for command in doctor train generate eval plan bench bench-net compare report version help data; do
    grep -qx $command <<< "$commands" || fail "halley --help does not list $command"
    [ $command = version ] || expect 0 "halley $command" "$halley" $command --help
done
[[ "$("$halley" --version)" =~ ^halley\ [0-9]+\.[0-9]+\.[0-9]+$ ]] || fail "--version says $("$halley" --version)"
expect 0 'products ' "$halley" version
for topic in checkpoints compare data formats memory models numerics optimizers options signals strategies threads; do
    "$halley" help | grep -q "^  $topic " || fail "halley help does not list $topic"
done
"$halley" help signals | tr '\n' ' ' | grep -q '130 (SIGINT), 143 (SIGTERM) or 129 (SIGHUP)' || fail "halley help signals"

# ---- train ----
expect 2 'no data: name text files or shards with --data' "$halley" train
expect 2 "story.txt:1: lines of the form 'key: value' were expected; if it is text to learn from, it stands behind --data" "$halley" train story.txt
echo 'max_steps: 1' > run.yaml
expect 2 "--data: 'run.yaml' is called like a configuration, which stands in front of the flags" "$halley" train --data story.txt run.yaml
expect 0 'max_steps: 1' "$halley" train --data run.yaml --text_format document run.yaml --print_config
expect 2 'dropout: Halley has no dropout; leave it out or set it to 0' "$halley" train --data story.txt --attn-pdrop 0.1
printf 'data: story.txt\nresid_pdrop: 0.1\n' > dropout.yaml
expect 2 'dropout: Halley has no dropout; leave it out or set it to 0' "$halley" train dropout.yaml
expect 2 "model: no preset or folder is called 'gpt2-124n'; did you mean 'gpt2-124m'?" "$halley" train --data story.txt --model gpt2-124n
expect 2 "model: no preset or folder is called 'xyzzy'; 'halley help models' lists the presets" "$halley" train --data story.txt --model xyzzy
expect 2 'nowhere/model: there is no such folder' "$halley" train --data story.txt --model nowhere/model
expect 2 'qk_norm' "$halley" train --data story.txt --model gpt2 --qk_norm true
expect 2 'num_attention_heads 4 is not a multiple of num_key_value_heads 3; give a divisor of 4' "$halley" train --data story.txt --num_key_value_heads 3
expect 2 'nesterov needs momentum above 0, such as --momentum 0.9' "$halley" train --data story.txt --optim sgd --nesterov --momentum 0
expect 2 "strategy: unknown 'singel'; did you mean single" "$halley" train --data story.txt --strategy singel
expect 2 "schedule: unknown 'micro_mayor'; did you mean micro_major" "$halley" train --data story.txt --schedule micro_mayor
expect 2 "'cosin' is not one of: constant linear cosine wsd; did you mean 'cosine'?" "$halley" train --data story.txt --lr_scheduler_type cosin
expect 2 "gradient_checkpointing_layers: '0-9' is no list of layers 0 to 3, such as 0-3" "$halley" train --data story.txt --recompute_layers 0-9
expect 2 "output_dir: empty; name a folder" "$halley" train --data story.txt --output_dir ''
[ -e halley-run ] && fail "a refused run left its folder"

# the last step is always evaluated, the first always logged
expect 0 'step 10/10' "$halley" train --data story.txt $small --max_steps 10 --eval_steps 7 --logging_steps 4 --output_dir run
[ "$(grep eval_loss run/metrics.jsonl | grep -o '"step": [0-9]*' | tr '\n' ' ')" = '"step": 7 "step": 10 ' ] || fail "evaluated at $(grep eval_loss run/metrics.jsonl)"
[ "$(grep -o '"step": [0-9]*' run/metrics.jsonl | tr -dc '0-9\n' | tr '\n' ' ')" = '1 4 7 8 10 ' ] || fail "logged at $(cut -c 1-12 run/metrics.jsonl)"

# ---- an instruction set that is none, and each that there is ----
for command in "train --data story.txt $small --output_dir no" "generate run --prompt a" "eval run" "plan --memory" "bench --model gpt2-tiny"; do
    expect 2 'HALLEY_ISA: there is no instruction set "AVX2"; use ref, avx2, avx512 or avx512bf16, or leave it out' env HALLEY_ISA=AVX2 "$halley" $command
done
expect 2 'HALLEY_PRODUCTS: there is no engine "mkl"; use own or library, or leave it out' env HALLEY_PRODUCTS=mkl "$halley" train --data story.txt $small --output_dir no
[ -e no ] && fail "a refused run left its folder"
available=$("$halley" doctor | sed -n 's/^kernels .*(available:\(.*\))$/\1 /p')
for isa in ref avx2 avx512 avx512bf16; do
    case $available in
    *" $isa "*) expect 0 "$isa kernels" env HALLEY_ISA=$isa "$halley" train --data story.txt $small --max_steps 1 --output_dir "isa-$isa" ;;
    *) expect 2 "this processor has no $isa kernels; choose HALLEY_ISA=ref or leave it out" env HALLEY_ISA=$isa "$halley" train --data story.txt $small --output_dir no ;;
    esac
done
expect 0 '' env HALLEY_ISA= "$halley" eval run

# ---- plan ----
"$halley" plan --memory --model gpt2-124m --block_size 64 > plan || fail "plan"
for class in parameters gradients optimizer activations buffers process total; do
    grep -Eq "^$class +[0-9]+ bytes   [0-9.]+ [KMG]iB$" plan || fail "plan has no $class: $(cat plan)"
done
grep -q '^parameters *497903616 bytes' plan || fail "the weights of gpt2-124m: $(cat plan)"
sum=$(awk '$1 != "total" && $3 == "bytes" { sum += $2 } END { printf "%.0f", sum }' plan)
grep -Eq "^total +$sum bytes" plan || fail "the classes are $sum together: $(cat plan)"
expect 0 'process, data' "$halley" plan --memory --data story.txt $small
expect 0 'fits: ' "$halley" plan --memory --data story.txt $small
expect 0 'does not fit: ' "$halley" plan --memory --model llama --n_layer 80 --n_embd 16384 --n_head 64
expect 2 'say what to plan: --memory' "$halley" plan
expect 2 'has no dropout' "$halley" plan --memory --dropout 0.1

# ---- eval and generate ----
expect 2 "name a run's output_dir, a checkpoint or a Hugging Face folder first" "$halley" eval
expect 2 "name a run's output_dir, a checkpoint or a Hugging Face folder" "$halley" generate
for command in eval generate; do
    expect 2 "nowhere: there is no such folder; name a run's output_dir, a checkpoint or a Hugging Face folder" "$halley" $command nowhere
    mkdir -p bare; expect 2 'bare: holds neither a model (config.json) nor a complete checkpoint' "$halley" $command bare
done
expect 2 "'b' is one word too many; quote a text with blanks" "$halley" generate run b
expect 0 '"bigram_loss": ' "$halley" eval run
expect 0 '"perplexity": ' "$halley" eval run --data story.txt
: > empty.txt; expect 2 "--data 'empty.txt' is empty" "$halley" eval run --data empty.txt
cp -r run/checkpoint-10 imported; rm imported/manifest.json imported/run.yaml
expect 2 '--data is missing: imported holds no run.yaml to take it from' "$halley" eval imported
expect 0 'step 1/1' "$halley" train --data story.txt $small --max_steps 1 --validation_split 0 --output_dir whole
expect 2 'the run held nothing out; name a file with --data' "$halley" eval whole
expect 0 'tokens/s' "$halley" generate run --prompt the --max_new_tokens 5 --stats
[ "$("$halley" generate run --prompt the --greedy --max_new_tokens 9)" = "$("$halley" generate run --prompt the --temperature 0 --max_new_tokens 9 --seed 5)" ] || fail "greedy is not temperature 0"

[ $failed = 0 ] && echo ok
exit $failed
