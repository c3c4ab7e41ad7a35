#!/bin/bash
# halley train, generate, eval and plan as a person uses them: one run, its ends, its mistakes.
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
value() { tail -n 1 "$1" | grep -o "\"$2\": [^,}]*" | cut -d' ' -f2; }

for i in $(seq 1 400); do echo "the cat number $((i * 37 % 101)) saw the dog number $((i * 53 % 89))"; done > story.txt
small="--num_hidden_layers 1 --hidden_size 32 --num_attention_heads 2 --block_size 32 --per_device_train_batch_size 4 --threads 1"

# a run, and what it leaves
expect 0 'step 20/20' "$halley" train --data story.txt $small --max_steps 20 --output_dir run --eval_steps 10 --sample_steps 20 --save_steps 5 --save_total_limit 2
for file in metrics.jsonl run.yaml run.json samples.jsonl latest checkpoint-20/model.safetensors checkpoint-20/config.json \
    checkpoint-20/tokenizer.json checkpoint-20/manifest.json; do
    [ -s "run/$file" ] || fail "no run/$file"
done
[ "$(ls -d run/checkpoint-* | wc -l)" = 2 ] || fail "save_total_limit 2 left: $(ls run)"
[ "$(cat run/latest)" = checkpoint-20 ] || fail "latest is $(cat run/latest)"
for key in step loss grad_norm learning_rate eval_loss tokens_per_second data_wait_ms; do
    [ -n "$(value run/metrics.jsonl $key)" ] || fail "no $key in metrics.jsonl"
done

# the same evaluation again; the same text again
[ "$("$halley" eval run | grep -o '"eval_loss": [^,]*' | cut -d' ' -f2)" = "$(value run/metrics.jsonl eval_loss)" ] ||
    fail "eval says $("$halley" eval run), the run said $(value run/metrics.jsonl eval_loss)"
expect 0 '"tokens": ' "$halley" eval run/checkpoint-20 --data story.txt
printf 'the cat' > short.txt # shorter than a row
expect 0 '"tokens": 7' "$halley" eval run --data short.txt
a=$("$halley" generate run --prompt 'the cat' --max_new_tokens 40 --seed 3); b=$("$halley" generate run/checkpoint-20 --prompt 'the cat' --max_new_tokens 40 --seed 3)
[ "$a" = "$b" ] && [[ $a == "the cat"* ]] || fail "generate: '$a' and '$b'"
expect 0 '' "$halley" generate run --prompt 'the' --max_new_tokens 100 --greedy

# a new run from a run's newest checkpoint, and from a folder whose sizes are said again, right and wrong
expect 0 'step 1/1' "$halley" train --data story.txt --model run --block_size 32 --max_steps 1 --output_dir tuned
cmp -s run/checkpoint-20/tokenizer.json tuned/checkpoint-1/tokenizer.json || fail "the tokenizer did not come along"
expect 0 'step 1/1' "$halley" train --data story.txt --model run/checkpoint-20 $small --max_steps 1 --output_dir tuned2
expect 2 'leave hidden_size out' "$halley" train --data story.txt --model run --hidden_size 64 --output_dir tuned3
mkdir llama-tiny # a folder called like a preset
expect 0 'step 1/1' "$halley" train --data story.txt --model llama-tiny $small --max_steps 1 --output_dir preset

# a checkpoint of another folder starts a new folder; it does not cut the metrics of a third run
expect 0 'going on from run/checkpoint-20, step 20' "$halley" train --data story.txt $small --max_steps 20 --output_dir moved --resume_from_checkpoint run/checkpoint-20
[ -s moved/checkpoint-20/model.safetensors ] || fail "a run that was moved has no checkpoint of its own"
rows=$(wc -l < tuned/metrics.jsonl)
expect 2 'holds a run already' "$halley" train --data story.txt $small --max_steps 21 --output_dir tuned --resume_from_checkpoint run/checkpoint-20
[ "$(wc -l < tuned/metrics.jsonl)" = "$rows" ] || fail "a refused run changed another one's metrics"

expect 0 'max_steps: 3' "$halley" plan --memory --data story.txt --max_steps 3 --print_config
expect 0 'total' "$halley" plan --memory --model run --block_size 32

# how often one evaluates, samples, logs and saves changes no bit of the weights
"$halley" train --data story.txt $small --max_steps 6 --output_dir quiet > /dev/null 2>&1 || fail "quiet run"
"$halley" train --data story.txt $small --max_steps 6 --output_dir busy --eval_steps 1 --sample_steps 1 --sample_tokens 40 --logging_steps 1 --save_steps 1 \
    --per_device_eval_batch_size 9 > /dev/null 2>&1 || fail "busy run"
for file in model state; do
    cmp -s quiet/checkpoint-6/$file.safetensors busy/checkpoint-6/$file.safetensors || fail "$file.safetensors depends on how often one looks"
done

# mistakes are told before data is read
expect 2 'adamw' "$halley" train --data nowhere.txt $small --optim adam --output_dir none
expect 2 'no list of layers' "$halley" train --data nowhere.txt $small --gradient_checkpointing_layers 7 --output_dir none
# numbers that are none, with nothing saved yet: the weights before are kept
expect 3 'not a finite number' "$halley" train --data story.txt $small --optim sgd --learning_rate 1e6 --max_grad_norm 0 --max_steps 50 --output_dir lost
ls lost/checkpoint-*/model.safetensors >/dev/null 2>&1 || fail "nothing was saved before numbers were lost"
# beside a commit there are no weights of one step
expect 3 'not a finite number' "$halley" train --data story.txt $small --optim sgd --learning_rate 1e6 --max_grad_norm 0 --max_steps 50 --strategy acco --output_dir between
ls -d between/checkpoint-* >/dev/null 2>&1 && fail "a state between two steps was saved"

mkdir elsewhere
(cd elsewhere && expect 0 '"tokens": 7' "$halley" eval ../run --data ../short.txt; exit $failed) || failed=1
grep -q '^resume: false' run/run.yaml || fail "run.yaml keeps resume"

# configuration: file, flags that win, print, mistakes
cat > run.yaml <<Y
data: story.txt
num-hidden-layers: 1
hidden_size: 32
n_head: 2
seq_length: 32
micro_batch_size: 4
train_iters: 3
output_dir: from-yaml
threads: 1
Y
expect 0 'step 4/4' "$halley" train run.yaml --max-steps 4
[ -s from-yaml/run.yaml ] || fail "no saved configuration"
"$halley" train run.yaml --print_config > resolved.yaml || fail "print_config"
grep -q '^max_steps: 3' resolved.yaml || fail "aliases are not resolved: $(grep steps resolved.yaml)"
"$halley" train resolved.yaml --print_config | diff - resolved.yaml || fail "the printed configuration does not read back to itself"
printf 'data: story.txt\nlearnin_rate: 3\n' > wrong.yaml
expect 2 "wrong.yaml:2: unknown option 'learnin_rate'; did you mean 'learning_rate'?" "$halley" train wrong.yaml
expect 2 "did you mean" "$halley" train --learnin-rate 3 --data story.txt
expect 2 "dropout" "$halley" train --data story.txt --dropout 0.1
expect 2 "did you mean" "$halley" train --data story.txt --model gpt2-124n
expect 2 "multiple" "$halley" train --data story.txt --hidden_size 32 --num_attention_heads 3 --output_dir x1
expect 2 "did you mean adamw" "$halley" train --data story.txt $small --optim adamx --output_dir x2
expect 1 "No such file" "$halley" train --data nothing.txt --output_dir x3
expect 2 "holds a run already" "$halley" train run.yaml
expect 0 'step 3/3' "$halley" train run.yaml --overwrite_output_dir
grep -q '^overwrite_output_dir: false' from-yaml/run.yaml || fail "run.yaml keeps overwrite_output_dir"
expect 0 'all steps are done' "$halley" train run.yaml --resume

# a run that stops is the run that never stopped
expect 0 'step 10/10' "$halley" train --data story.txt $small --max_steps 10 --lr_scheduler_type constant --output_dir straight --logging_steps 1
expect 0 'step 4/4' "$halley" train --data story.txt $small --max_steps 4 --lr_scheduler_type constant --output_dir stopped --logging_steps 1
expect 0 'step 10/10' "$halley" train --data story.txt $small --max_steps 10 --lr_scheduler_type constant --output_dir stopped --logging_steps 1 --resume
cmp straight/checkpoint-10/model.safetensors stopped/checkpoint-10/model.safetensors || fail "resumed weights differ"
cmp straight/checkpoint-10/state.safetensors stopped/checkpoint-10/state.safetensors || fail "resumed state differs"
bits() { grep -o '"step": [^,]*, "loss": [^,]*, "grad_norm": [^,]*, "learning_rate": [^,]*' "$1"; }
diff <(bits straight/metrics.jsonl) <(bits stopped/metrics.jsonl) || fail "resumed metrics differ"
# going back: metrics past the resumed step are cut
expect 0 'step 10/10' "$halley" train --data story.txt $small --max_steps 10 --lr_scheduler_type constant --output_dir stopped --logging_steps 1 --resume_from_checkpoint stopped/checkpoint-4
diff <(bits straight/metrics.jsonl) <(bits stopped/metrics.jsonl) || fail "metrics past the resumed step were not cut"

# signals: the step is finished, saved, and the run goes on later
for signal in INT TERM; do
    # a shell's background jobs ignore SIGINT; a person's do not
    env --default-signal=INT timeout 150 "$halley" train --data story.txt $small --max_steps 1000000 --output_dir "sig$signal" > log 2>&1 &
    pid=$!
    for i in $(seq 1 1000); do [ -s "sig$signal/metrics.jsonl" ] && break; sleep 0.1; done
    kill -s $signal "$(pgrep -P $pid)"
    wait $pid; status=$?
    want=130; [ $signal = TERM ] && want=143
    [ $status = $want ] || fail "SIG$signal ended with $status: $(cat log)"
    [ -s "sig$signal/latest" ] || fail "SIG$signal saved nothing: $(cat log)"
done
expect 0 "going on from" "$halley" train --data story.txt $small --max_minutes 0.002 --max_steps 1000000 --output_dir sigINT --resume

# numbers that are none: exit status 3, step and block named
expect 3 "step " "$halley" train --data story.txt $small --max_steps 200 --learning_rate 1e6 --warmup_steps 0 --max_grad_norm 0 --lr_scheduler_type constant --output_dir nan
# weights that the last step ruined show in nothing but the held-out loss
wild="--data story.txt $small --learning_rate 1e6 --warmup_steps 0 --max_grad_norm 0 --lr_scheduler_type constant"
first_bad=$("$halley" train $wild --max_steps 200 --output_dir nan --overwrite_output_dir 2>&1 | sed -n 's/^halley train: step \([0-9]*\): the loss is not.*/\1/p')
if [ "${first_bad:-0}" -gt 1 ]; then
    expect 0 "warning: the held-out loss after step $((first_bad - 1)) is not a finite number" "$halley" train $wild --max_steps $((first_bad - 1)) --output_dir ruined
    grep -qE '"eval_loss": "?(NaN|-?Infinity)' ruined/metrics.jsonl || fail "no eval_loss in $(cat ruined/metrics.jsonl)"
else
    fail "no step whose loss is not a number: '$first_bad'"
fi

# other languages of the environment change no byte
if locale -a 2>/dev/null | grep -qi '^de_DE.utf8$'; then
    expect 0 'step 10/10' env LC_ALL=de_DE.UTF-8 "$halley" train --data story.txt $small --max_steps 10 --lr_scheduler_type constant --output_dir german --logging_steps 1
    cmp straight/checkpoint-10/model.safetensors german/checkpoint-10/model.safetensors || fail "weights depend on the locale"
    diff <(bits straight/metrics.jsonl) <(bits german/metrics.jsonl) || fail "metrics depend on the locale"
else
    echo "SKIP: no de_DE.UTF-8 locale here"
fi

# plan
expect 0 'total' "$halley" plan --memory --model gpt2-124m --block_size 64
expect 2 '--memory' "$halley" plan
expect 2 '--ranks: how many?' "$halley" plan --ranks --memory
expect 2 '--ranks: how many?' "$halley" plan --memory --ranks=0
expect 2 "'single' is for one rank, but there are 3" "$halley" plan --memory --ranks 3 --strategy single
expect 0 'each of 4 ranks:' "$halley" plan --memory --ranks 4 --model gpt2-124m --block_size 64
row() { "$halley" plan --memory --model gpt2-124m --block_size 64 --per_device_train_batch_size 1 "${@:2}" | awk -v row="$1" '$1 == row { print $2 }'; }
[ "$(($(row optimizer --ranks 4 --strategy zero1) * 4))" = "$(row optimizer)" ] || fail "zero1's state on 4 ranks is no quarter"
[ "$(row gradients --ranks 4 --strategy zero2)" -lt "$(row gradients --ranks 4 --strategy zero1)" ] || fail "zero2's gradients are not less"
whole=$(row gradients --ranks 4 --strategy zero2 --gradient_accumulation_steps 2)
[ "$(row gradients --ranks 4 --strategy zero2 --gradient_accumulation_steps 2 --reduce every_micro_batch)" -lt "$whole" ] || fail "reduce every_micro_batch saves nothing"
exit $failed
