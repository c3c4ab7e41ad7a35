#!/bin/bash
# Going on: from what, what it refuses, what it passes over, and what it warns of. That the bits are the same is tested in
# train.sh, disks and kills in disk.sh.
set -u
halley=$1
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1
failed=0
fail() { echo "FAILED: $*"; failed=1; }
for i in $(seq 1 300); do echo "the cat number $((i * 37 % 101)) saw the dog number $((i * 53 % 89))"; done > story.txt
sed 's/cat/fox/' story.txt > other.txt
small="--model llama --num_hidden_layers 1 --hidden_size 32 --num_attention_heads 2 --per_device_train_batch_size 4 --threads 1
    --lr_scheduler_type constant --logging_steps 1"
# train STATUS TEXT WORD...: exit status, and TEXT somewhere in what it says
train() {
    local status=$1 text=$2 said; shift 2
    said=$("$halley" train --data story.txt --block_size 16 $small "$@" 2>&1); local got=$?
    [ $got = "$status" ] || fail "status $got instead of $status: $*: $said"
    [[ $said == *"$text"* ]] || fail "no '$text': $*: $said"
}
train 0 'step 3/3' --max_steps 3 --save_steps 1 --output_dir run
at=run/checkpoint-3 new="to start a new run from its weights use --model run/checkpoint-3"

# a used folder
train 2 'output_dir: run holds a run already; go on with --resume, start over with --overwrite_output_dir, or name another folder' --output_dir run
train 2 'output_dir: story.txt is a file; name a folder' --output_dir story.txt
train 0 'no complete checkpoint to resume from: starting at step 0' --max_steps 1 --output_dir fresh --resume
train 0 "going on from $at, step 3: all steps are done; a larger --max_steps goes further" --max_steps 3 --output_dir run --resume
train 2 "resume goes on with the run in run, and overwrite_output_dir removes it: leave one of them out" --output_dir run --resume --overwrite_output_dir
train 2 "resume_from_checkpoint goes on with the run in run, and overwrite_output_dir" --output_dir run --resume_from_checkpoint $at --overwrite_output_dir
[ -e $at ] || fail "$at is gone"
train 0 'step 4/4' --max_steps 4 --output_dir over --resume_from_checkpoint $at --overwrite_output_dir # another run's

# another run than the one that was saved
train 2 "$at: was made with block_size 16, but this run has 8; $new" --block_size 8 --output_dir run --resume
train 2 "$at: was made with seed 42, but this run has 7; $new" --seed 7 --output_dir run --resume
train 2 "$at: was made with optimizer 'adamw', but this run has 'sgd'; $new" --optim sgd --output_dir run --resume
for word in "--data other.txt" "--validation_split 0.2" "--document_mask false"; do
    train 2 "$at: was made with other data, or with another tokenizer, validation_split or document_mask (data_hash " $word --output_dir run --resume
done
train 2 "$at: its model has hidden_size 32, but this run asks for 64; give the same model" --hidden_size 64 --output_dir run --resume
train 2 "$at: its model has num_hidden_layers 1, but this run asks for 2; give the same model" --num_hidden_layers 2 --output_dir run --resume
train 2 "$at: holds a model of another family than this run's" --model gpt2 --output_dir run --resume
train 2 "nowhere: holds no config.json: this is not a checkpoint or model folder" --output_dir none --resume_from_checkpoint nowhere
cp -r $at weights; rm weights/manifest.json
train 2 "weights: holds weights but no training state; start a new run from them with --model weights" --output_dir none --resume_from_checkpoint weights
[ -e none ] && fail "a refused run left its folder"
[ "$(cat run/latest)" = checkpoint-3 ] && [ "$(wc -l < run/metrics.jsonl)" = 3 ] || fail "a refused run changed the older one"

# metrics past the resumed step are cut, and half a last line
train 0 'step 3/3' --max_steps 3 --output_dir run --resume_from_checkpoint run/checkpoint-1
[ "$(grep -o '"step": [0-9]*' run/metrics.jsonl | tr -dc '0-9')" = 123 ] || fail "metrics: $(cat run/metrics.jsonl)"
printf '{"step": 4, "lo' >> run/metrics.jsonl
train 0 'step 4/4' --max_steps 4 --output_dir run --resume
[ "$(grep -o '^{"step": [0-9]*.*}$' run/metrics.jsonl | cut -c 10 | tr -d '\n')" = 1234 ] || fail "half a line: $(cat run/metrics.jsonl)"

# checkpoints that are not whole are passed over, with the reason
cp -r run half; truncate -s 1000 half/checkpoint-4/model.safetensors
train 0 'passing over a broken checkpoint: half/checkpoint-4' --max_steps 5 --output_dir half --resume
cp -r run half2; rm half2/checkpoint-4/manifest.json
train 0 'half2/checkpoint-4 holds no manifest.json: it is not one of our complete checkpoints and is passed over' --max_steps 5 --output_dir half2 --resume
for run in half half2; do grep -q '"step": 5,' $run/metrics.jsonl || fail "$run did not go on: $(cat $run/metrics.jsonl)"; done
cp -r run seal; sed -i 's/"step": 4/"step": 5/' seal/checkpoint-4/manifest.json
train 0 "the manifest's checksum does not match its text; the checkpoint is damaged, take an older one" --max_steps 5 --output_dir seal --resume
cp -r run left; mkdir left/.checkpoint-9.partial; echo x > left/.checkpoint-9.partial/model.safetensors
train 0 'left/.checkpoint-9.partial is left over from an interrupted save; the next save removes it' --max_steps 5 --output_dir left --resume
[ -e left/.checkpoint-9.partial ] && fail "what was left over is still there"
# changed under the same size: not ours to guess
cp -r run flip; printf '\xff' | dd of=flip/checkpoint-4/state.safetensors bs=1 seek=900 conv=notrunc status=none
train 1 'flip/checkpoint-4/state.safetensors: the content is not what was saved (checksum); take an older checkpoint' --max_steps 5 --output_dir flip --resume
train 0 'step 5/5' --max_steps 5 --output_dir flip --resume_from_checkpoint flip/checkpoint-2
sed -i 's/"version": 1/"version": 2/' flip/checkpoint-5/manifest.json
train 2 'checkpoint version 2; this Halley reads version 1: use a newer Halley' --max_steps 6 --output_dir flip --resume_from_checkpoint flip/checkpoint-5

# what the bits depend on has changed since: said, and training goes on
isa=$(grep -o '"isa": "[a-z0-9]*"' run/checkpoint-4/manifest.json | cut -d'"' -f4)
if [ "$isa" != ref ]; then
    export HALLEY_ISA=ref
    train 0 "isa was '$isa' and is 'ref' now: going on, but not with the same bits" --max_steps 5 --output_dir run --resume
    unset HALLEY_ISA
    train 0 "isa was 'ref' and is '$isa' now: going on, but not with the same bits" --max_steps 6 --output_dir run --resume
fi
train 0 "threads was 1 and is 2 now: going on, but perhaps not with the same bits" --threads 2 --max_steps 7 --output_dir run --resume
train 0 "compute was 'f32' and is 'bf16' now: going on, but not with the same bits" --threads 2 --bf16 --max_steps 8 --output_dir run --resume
said=$("$halley" train --data story.txt --block_size 16 $small --threads 2 --bf16 --max_steps 9 --output_dir run --resume 2>&1)
grep -q ' was .* now' <<< "$said" && fail "nothing has changed, and yet: $said"
# nobody says how many threads: as many as before
"$halley" train --data story.txt --block_size 16 $small --max_steps 3 --output_dir cores > /dev/null 2>&1
said=$("$halley" train --data story.txt --block_size 16 ${small/--threads 1/} --max_steps 4 --output_dir cores --resume 2>&1)
grep -q ' was .* now' <<< "$said" && fail "threads are not those of before: $said"
grep -q '"threads": 1' cores/checkpoint-4/manifest.json || fail "not one thread: $(cat cores/checkpoint-4/manifest.json)"
# what multiplies matrices, with its version
if [ "$isa" != ref ]; then
    HALLEY_PRODUCTS=own train 0 " now: going on, but not with the same bits" --threads 2 --bf16 --max_steps 10 --output_dir run --resume
    train 0 "products was 'own $isa kernels' and is '" --threads 2 --bf16 --max_steps 11 --output_dir run --resume
fi

[ $failed = 0 ] && echo ok
exit $failed
