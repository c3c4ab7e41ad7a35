#!/bin/bash
# What people and machines do to a training run that is not right: odd files, a model far too large, closed outputs, signals
# while data is read, an older run in the way. Every case ends, and says why.
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
    local said; said=$(timeout -k 1 60 "$@" 2>&1 </dev/null); local got=$?
    [ "$got" = "$status" ] || fail "status $got instead of $status: $* said: $said"
    [[ $said == *"$text"* ]] || fail "no '$text' in what $* said: $said"
}
for i in $(seq 1 300); do echo "the cat number $((i * 37 % 101)) saw the dog number $((i * 53 % 89))"; done > story.txt
small="--model llama --num_hidden_layers 1 --hidden_size 32 --num_attention_heads 2 --block_size 16 --per_device_train_batch_size 4 --threads 1"
train() { expect "$1" "$2" "$halley" train $small --max_steps 3 "${@:3}"; }

# data that is none
: > empty; printf a > one; mkdir folder; mkfifo pipe
train 2 'is empty' --data empty --output_dir no
train 2 'fewer than one row' --data one --output_dir no
train 2 'is a folder' --data folder --output_dir no
train 2 'is a pipe or a device' --data pipe --output_dir no
train 2 'is a pipe or a device' --data /dev/zero --output_dir no
train 2 'fewer than one row of block_size 100000' --data story.txt --block_size 100000 --output_dir no
train 2 'larger vocab_size' --data story.txt --vocab_size 100 --output_dir no
train 2 'is not a regular file' --data story.txt --tokenizer pipe --output_dir no
expect 2 'is not a regular file' "$halley" data --inspect pipe
expect 2 'is not a regular file' "$halley" data --inspect /dev/zero
[ -e no ] && fail "a refused run left its folder"

# data that is odd, and is learnt from all the same
head -c 9000 /dev/urandom > bytes.dat
train 0 'step 3/3' --data bytes.dat --output_dir bytes
head -c 20000000 /dev/zero | tr '\0' x > line.txt
train 0 'step 3/3' --data line.txt --output_dir line --max_eval_batches 1
printf '\xef\xbb\xbfone\r\ntwo\0three\xff\r\n%.0s' $(seq 1 300) > crlf.txt
train 0 'step 3/3' --data crlf.txt --output_dir crlf

# far too large for any memory: said before anything is touched
expect 1 'this run needs' "$halley" train --data story.txt --model llama --n_layer 80 --n_embd 16384 --n_head 64 --block_size 16 --output_dir no
[ -e no ] && fail "a run that does not fit left its folder"

# names
mkdir "it's a \"färm\""
cp story.txt "it's a \"färm\"/störy of 1.txt"
train 0 'step 3/3' --data "it's a \"färm\"/störy of 1.txt" --output_dir "it's a \"färm\"/rün/"
expect 0 'the' "$halley" generate "it's a \"färm\"/rün" --prompt the --max_new_tokens 3
ln -s "it's a \"färm\"" link
expect 0 'step 4/4' "$halley" train $small --max_steps 4 --data 'link/störy of 1.txt' --output_dir link/rün --resume
expect 0 'step 5/5' "$halley" train $small --max_steps 5 --data "$folder/link/störy of 1.txt" --output_dir "$folder/link/rün/" --resume
expect 0 'all steps are done already' "$halley" train $small --max_steps 3 --data 'link/störy of 1.txt' --output_dir link/rün --resume
expect 0 'step 3/3' env -u HOME "$halley" train $small --max_steps 3 --data story.txt --output_dir homeless

# models that do not fit each other, and sizes at their ends
train 0 'step 3/3' --data story.txt --output_dir wide --vocab_size 1000
expect 0 'the' "$halley" generate wide --prompt the --max_new_tokens 30 --temperature 5 --ignore_eos --stats
expect 0 '30 tokens' "$halley" generate wide --prompt the --max_new_tokens 30 --temperature 5 --ignore_eos --stats
train 2 'has hidden_size 32, but this run asks for 64' --data story.txt --output_dir wide --vocab_size 1000 --hidden_size 64 --resume
train 2 'another family' --data story.txt --output_dir wide --vocab_size 1000 --model gpt2 --resume
train 2 "made with optimizer 'adamw'" --data story.txt --output_dir wide --vocab_size 1000 --optim lion --resume
train 2 'wide/checkpoint-3: was made with other data, or with another tokenizer, validation_split or document_mask (data_hash ' --data bytes.dat --output_dir wide --vocab_size 1000 --resume
train 0 'step 3/3' --data story.txt --output_dir short --block_size 1 --sample_steps 2
expect 0 'the' "$halley" generate short --prompt the --max_new_tokens 30
cp -r wide/checkpoint-3 changed; sed -i 's/"hidden_size": 32/"hidden_size": 64/' changed/config.json
expect 1 'delete manifest.json' "$halley" generate changed --prompt the
rm changed/manifest.json
expect 1 'by config.json it must be [1000, 64]' "$halley" generate changed --prompt the
head -c 5000 wide/checkpoint-3/model.safetensors > changed/model.safetensors
expect 1 'damaged or cut off' "$halley" generate changed --prompt the
expect 2 'holds neither a model' "$halley" generate folder --prompt the
expect 2 'use a smaller block_size' "$halley" eval wide --data story.txt --block_size 9999
train 2 'not a checkpoint or model folder' --data story.txt --output_dir no --resume_from_checkpoint folder
train 2 'out of range' --data story.txt --output_dir no --per_device_train_batch_size 0
train 2 'is too large' --data story.txt --output_dir no --per_device_train_batch_size 99999999999999999999
train 2 'is not a number' --data story.txt --output_dir no --learning_rate nan
train 2 'not a multiple of num_attention_heads' --data story.txt --output_dir no --hidden_size 33
train 1 'Not a directory' --data story.txt --output_dir story.txt/run
train 2 'is a file' --data story.txt --output_dir story.txt

# what the bits depend on has changed since: said, and training goes on
train 0 'step 3/3' --data story.txt --output_dir changing
expect 0 "isa was" env HALLEY_ISA=ref "$halley" train $small --max_steps 4 --data story.txt --output_dir changing --resume
expect 0 "isa was 'ref' and is" "$halley" train $small --max_steps 5 --data story.txt --output_dir changing --resume
expect 0 "threads was 1 and is 2 now" "$halley" train $small --threads 2 --max_steps 6 --data story.txt --output_dir changing --resume
expect 0 "compute was 'f32' and is 'bf16' now" "$halley" train $small --bf16 --max_steps 7 --data story.txt --output_dir changing --resume
expect 2 'there is no instruction set "pdp11"' env HALLEY_ISA=pdp11 "$halley" train $small --data story.txt --output_dir no

# an older run is removed only when the new one can begin
train 0 'step 3/3' --data story.txt --output_dir old
train 2 'adamx' --data story.txt --output_dir old --overwrite_output_dir --optim adamx
train 2 'is empty' --data empty --output_dir old --overwrite_output_dir
[ -s old/checkpoint-3/model.safetensors ] || fail "a run that could not begin removed the older one"
train 2 'holds a run already' --data story.txt --output_dir old
expect 0 'step 3/3' "$halley" train --data story.txt --block_size 16 --max_steps 3 --threads 1 --model old/checkpoint-3 --output_dir old --overwrite_output_dir

# outputs that are closed, full or no longer read
expect 1 'cannot write to standard output' bash -c "$halley --version >/dev/full"
expect 1 'cannot write to standard output' bash -c "$halley generate old --prompt the --max_new_tokens 3 >/dev/full"
expect 0 '' bash -c "$halley generate old --prompt the --max_new_tokens 1000000 --ignore_eos true | head -c 10"
(exec 2>&- ; "$halley" train $small --max_steps 3 --data story.txt --output_dir mute) || fail "no standard error: status $?"
[ -s mute/latest ] || fail "no standard error: nothing saved"
(exec 0<&- 1>&- 2>&- ; "$halley" train $small --max_steps 3 --data story.txt --output_dir closed) || fail "nothing open: status $?"
grep -v "^{" mute/*.jsonl closed/*.jsonl && fail "progress went into a file"
"$halley" train $small --max_steps 300 --logging_steps 1 --data story.txt --output_dir piped 2>&1 >/dev/null | head -n 1 >/dev/null
[ "$(cat piped/latest)" = checkpoint-300 ] || fail "training ended with the reader of its progress"

[ $failed = 0 ] && echo ok
exit $failed
