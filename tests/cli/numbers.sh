#!/bin/bash
# Numbers that are none: the loss, the gradient, a model's output. Exit status 3, with step, block and pass; the step is not
# applied, and training goes on from the checkpoint before it.
set -u
halley=$1
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1
failed=0
fail() { echo "FAILED: $*"; failed=1; }
for i in $(seq 1 300); do echo "the cat number $((i * 37 % 101)) saw the dog number $((i * 53 % 89))"; done > story.txt
sizes="--num_hidden_layers 1 --hidden_size 32 --num_attention_heads 2"
batch="--data story.txt --block_size 16 --per_device_train_batch_size 4 --threads 1 --lr_scheduler_type constant"

# ---- the loss ----
"$halley" train --model llama $sizes $batch --max_steps 200 --logging_steps 1 --save_steps 1 --optim sgd --learning_rate 1e6 --max_grad_norm 0 \
    --output_dir loss > log 2>&1; status=$?
[ $status = 3 ] || fail "a loss that is none ends with $status: $(tail -n 1 log)"
tail -n 1 log | grep -Eq '^halley train: step [0-9]+: the loss is not a finite number; it began in (the embedding|layer 0|the head), in the forward pass; the step was not applied. Try a lower learning_rate' ||
    fail "a loss that is none: $(tail -n 1 log)"
lost=$(tail -n 1 log | sed 's/.*: step \([0-9]*\):.*/\1/')
[ "$(cat loss/latest)" = "checkpoint-$((lost - 1))" ] || fail "step $lost was lost, and latest is $(cat loss/latest)"
grep -q "\"step\": $lost," loss/metrics.jsonl && fail "a step that was not applied is in the metrics"
"$halley" train --model llama $sizes $batch --max_steps $((lost + 1)) --optim sgd --learning_rate 1e-9 --resume_from_checkpoint loss/checkpoint-1 \
    --output_dir loss > log 2>&1 || fail "from a checkpoint before: $(tail -n 2 log)"

# ---- a model's weights, changed by hand: no manifest, so that it is a model of anybody's ----
"$halley" train --model llama $sizes $batch --max_steps 0 --initializer_range 10 --output_dir base > log 2>&1 || fail "base: $(cat log)"
mkdir model; cp base/checkpoint-0/{config.json,tokenizer.json} model
# fill TENSOR BYTES: all values of a tensor become the f32 that the bytes spell
fill() {
    local file=model/model.safetensors n begin end
    n=$(od -An -tu8 -N8 $file | tr -d ' ')
    read -r begin end <<< "$(head -c $((n + 8)) $file | tail -c "$n" | sed "s/.*\"$1\":{[^}]*\"data_offsets\":\[\([0-9]*\),\([0-9]*\)\].*/\1 \2/")"
    printf "$2%.0s" $(seq 1 $(((end - begin) / 4))) | dd of=$file bs=65536 oflag=seek_bytes seek=$((n + 8 + begin)) conv=notrunc status=none
}

# ---- the gradient: gains of 3e37 before weights of 1e-37 leave the forward pass finite, and the weights' gradient not ----
cp base/checkpoint-0/model.safetensors model
fill model.layers.0.post_attention_layernorm.weight '\x52\x8e\xb4\x7d'
fill model.layers.0.mlp.gate_proj.weight '\xea\x1c\x08\x02'
fill model.layers.0.mlp.up_proj.weight '\xea\x1c\x08\x02'
fill model.layers.0.mlp.down_proj.weight '\x6f\x12\x03\x3a'
fill model.norm.weight '\x00\x50\xc3\x47'
"$halley" train --model ./model $batch --max_steps 3 --output_dir gradient > log 2>&1; status=$?
[ $status = 3 ] || fail "a gradient that is none ends with $status: $(tail -n 1 log)"
tail -n 1 log | grep -q '^halley train: step 1: the gradient is not finite; it began in layer 0, in the backward pass; the step was not applied. Try a lower learning_rate' ||
    fail "a gradient that is none: $(tail -n 1 log)"
ls -d gradient/checkpoint-* 2>/dev/null && fail "nothing was trained, and yet something saved"

# ---- weights that are none are said by whoever reads them ----
cp base/checkpoint-0/model.safetensors model
fill model.norm.weight '\x00\x00\xc0\x7f'
"$halley" train --model ./model $batch --max_steps 3 --output_dir broken > log 2>&1; status=$?
[ $status = 3 ] && tail -n 1 log | grep -q 'step 1: the loss is not a finite number; it began in the head, in the forward pass' || fail "NaN in the last norm: $status: $(tail -n 1 log)"
"$halley" generate model --prompt the > log 2>&1; status=$?
[ $status = 3 ] && grep -q "the model's output is not finite after" log || fail "generate with NaN: $status: $(cat log)"
"$halley" eval model --data story.txt --block_size 16 > log 2>&1; status=$?
[ $status = 3 ] && grep -q 'the loss is not a finite number' log || fail "eval with NaN: $status: $(cat log)"

[ $failed = 0 ] && echo ok
exit $failed
