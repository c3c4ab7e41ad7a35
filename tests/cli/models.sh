#!/bin/bash
# Folders with models of others: trained from, and refused by the name of what is not understood.
set -u
halley=$1
source=$(cd "$(dirname "$0")/../.." && pwd)
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1
failed=0
fail() { echo "FAILED: $*"; failed=1; }
for i in $(seq 1 300); do echo "the cat number $((i * 37 % 101)) saw the dog number $((i * 53 % 89))"; done > story.txt
# train STATUS TEXT WORD...: exit status, and TEXT somewhere in what it says
train() {
    local status=$1 text=$2 said; shift 2
    said=$("$halley" train --data story.txt --block_size 8 --per_device_train_batch_size 4 --threads 1 --max_steps 1 --overwrite_output_dir \
        --output_dir run "$@" 2>&1); local got=$?
    [ $got = "$status" ] || fail "status $got instead of $status: $*: $said"
    [[ $said == *"$text"* ]] || fail "no '$text': $*: $said"
}
sizes="--num_hidden_layers 1 --hidden_size 32 --num_attention_heads 2"
for family in gpt2 llama; do
    train 0 'step 1/1' --model $family $sizes
    mkdir $family; cp run/checkpoint-1/{config.json,model.safetensors,tokenizer.json} $family
done
# changed FAMILY SED: a copy with another config.json
changed() { rm -rf other; cp -r "$1" other; sed -i "$2" other/config.json; }

# as transformers writes them: dropout is left out and said, other keys are named
train 0 'step 1/1' --model ./gpt2
changed gpt2 's/"attn_pdrop": 0.0/"attn_pdrop": 0.1, "odd_key": 1/'; train 0 'attn_pdrop is left out: Halley trains without dropout' --model ./other
train 0 'key '"'odd_key'"' is not known and left out' --model ./other

# what is not computed here
changed llama 's/"model_type": "[a-z0-9]*"/"model_type": "bert"/'
train 2 "model_type 'bert' is not computed by Halley; gpt2, llama, qwen2 and qwen3 are" --model ./other
changed llama 's/"hidden_act": "silu"/"hidden_act": "relu"/'
train 2 "hidden_act 'relu' is not computed by Halley; gpt2 has gelu_new, the llama family silu" --model ./other
changed llama 's/"hidden_size": 32/"hidden_size": "wide"/'; train 1 'hidden_size' --model ./other
echo '{"a": }' > other/config.json; train 1 'other/config.json:1:' --model ./other

# weights that are not there, not safe to read, or not these
changed llama ''; rm other/model.safetensors; train 1 'other: holds no model.safetensors' --model ./other
echo > other/pytorch_model.bin
train 2 'other: the weights are PyTorch pickles; convert them to safetensors first (save_pretrained does)' --model ./other
changed llama ''; sed -i 's/model.norm.weight/model.norm.weighs/' other/model.safetensors
train 1 'other: missing tensors: model.norm.weight' --model ./other
changed llama 's/"num_hidden_layers": 1/"num_hidden_layers": 2/'; train 1 'missing tensors: model.layers.1.' --model ./other
changed llama 's/"tie_word_embeddings": true/"tie_word_embeddings": false/'
train 1 'lm_head.weight is missing while tie_word_embeddings is false; set it to true in config.json' --model ./other
changed llama 's/"intermediate_size": [0-9]*/"intermediate_size": 64/'; train 1 'by config.json it must be [64, 32]' --model ./other
changed llama ''; printf 'version https://git-lfs.github.com/spec/v1\noid sha256:12\nsize 5\n' > other/model.safetensors; train 1 'git lfs pull' --model ./other
# sizes that are said again must be the same
train 2 'hidden_size: the weights in ./llama are for 32, not 64; leave hidden_size out' --model ./llama --hidden_size 64
train 2 "block_size 9 is longer than the model's max_position_embeddings 8; use a smaller block_size" --model ./gpt2 --block_size 9
# a tokenizer with more tokens than the model has
"$halley" data --train-tokenizer 300 --data story.txt --out tok.json > /dev/null 2>&1 || fail "tokenizer"
train 2 "but the model's vocabulary is 257; use the tokenizer the data was made with, or a larger vocab_size" --model ./llama --tokenizer tok.json
for command in "eval llama --data story.txt --block_size 8" "generate llama --prompt the_cat_number"; do
    said=$("$halley" $command --tokenizer tok.json 2>&1); got=$?
    [ $got = 2 ] && [[ $said == *"is outside the model's vocabulary of 257; do data and model use the same tokenizer?"* ]] || fail "$command: status $got: $said"
done

# real ones, made by transformers
for family in gpt2 llama qwen2 qwen3; do
    model=$source/tests/golden/models/$family
    "$halley" generate "$model" --tokenizer byte --prompt '!' --max_new_tokens 3 --ignore_eos > log 2>&1; status=$?
    [ $status = 0 ] || fail "generate from $family: $status: $(cat log)"
done

[ $failed = 0 ] && echo ok
exit $failed
