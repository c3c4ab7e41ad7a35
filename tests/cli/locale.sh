#!/bin/bash
# The same bytes in every file under a locale that writes 1,5 for 1.5, in a program that asks for its locale (as one that
# embeds the library may): a preloaded constructor does it here.
set -u
halley=$1
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1
failed=0
fail() { echo "FAILED: $*"; failed=1; }
skip() { echo "SKIP: $*"; exit 77; }

mkdir locales
localedef -i de_DE -f UTF-8 locales/de_DE.UTF-8 2> log || [ -d locales/de_DE.UTF-8 ] || skip "no German locale can be made here: $(tail -n 1 log)"
cat > ask.c <<'C'
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
__attribute__((constructor)) static void ask(void) {
    char text[16];
    setlocale(LC_ALL, "");
    snprintf(text, sizeof text, "%.1f", 1.5);
    if (strcmp(text, "1,5")) abort();
}
C
nm -D "$halley" 2>/dev/null | grep -q __asan_init && skip "a preloaded library and AddressSanitizer do not mix"
cc -shared -fPIC -o ask.so ask.c 2> log || skip "cc cannot build the preloaded constructor"
german() { env LOCPATH="$folder/locales" LC_ALL=de_DE.UTF-8 LD_PRELOAD="$folder/ask.so" "$@"; }
german true || skip "the locale is not used"

for i in $(seq 1 300); do echo "{\"text\": \"the cat number $((i * 37 % 101)) saw 1.5 dogs number $((i * 53 % 89))\", \"x\": 1.25e-3}"; done > story.jsonl
cat > run.yaml <<'Y'
data: ../story.jsonl
tokenizer: ../tok-plain.json
num_hidden_layers: 1
hidden_size: 32
num_attention_heads: 2
block_size: 16
per_device_train_batch_size: 4
learning_rate: 1.5e-3
validation_split: 0.25
lr_scheduler_type: cosine
min_lr_ratio: 0.05
warmup_ratio: 0.1
adam_beta2: 0.995
max_steps: 12
save_steps: 6
logging_steps: 1
eval_steps: 4
sample_steps: 6
tensorboard: false
threads: 1
output_dir: run
Y
run() { # NAME COMMAND...: everything that halley writes, in a folder of its own
    local name=$1; shift
    mkdir "$name"
    "$@" "$halley" data --train-tokenizer 300 --data story.jsonl --out "tok-$name.json" > "$name/said" 2>&1 || fail "$name tokenizer"
    cd "$name" || exit 1
    {
        "$@" "$halley" train ../run.yaml --print_config
        "$@" "$halley" data --data ../story.jsonl --tokenizer ../tok-plain.json --out shards | sed 's/ in [0-9].*//'
        "$@" "$halley" data --inspect shards/data-000000.hls
    } > text 2>&1 || fail "$name: $(cat text)"
    "$@" "$halley" train ../run.yaml > log 2>&1 || fail "$name: $(cat log)"
    "$@" "$halley" train ../run.yaml --max_steps 14 --resume > log 2>&1 || fail "$name: $(cat log)"
    "$@" "$halley" eval run --data ../story.jsonl 2>/dev/null | grep -o '"eval_loss": [^,]*' >> text || fail "$name eval"
    "$@" "$halley" generate run --prompt the --max_new_tokens 20 --temperature 0.7 --top_p 0.9 --seed 1 >> text 2>&1 || fail "$name generate: $(cat text)"
    "$@" "$halley" report run > /dev/null 2>&1 || fail "$name report"
    grep -o '"step": [^,]*, "loss": [^,]*, "grad_norm": [^,]*, "learning_rate": [^,]*, "epoch": [^,]*' run/metrics.jsonl >> text
    grep -o '"eval_loss": [^,]*' run/metrics.jsonl >> text
    cd ..
}
run plain env LC_ALL=C
run german german
cmp tok-plain.json tok-german.json || fail "tokenizers differ"
diff plain/text german/text || fail "texts differ"
for file in checkpoint-14/model.safetensors checkpoint-14/state.safetensors checkpoint-14/config.json checkpoint-14/loop.json run.yaml samples.jsonl; do
    cmp plain/run/$file german/run/$file || fail "$file differs"
done
cmp plain/shards/data-000000.hls german/shards/data-000000.hls || fail "shards differ"
picture() { grep -o ' d="M[^"]*"\| points="[^"]*"' "$1/run/report.html" | head -n 1; } # the loss
[ -n "$(picture plain)" ] && [ "$(picture plain)" = "$(picture german)" ] || fail "the pictures of the loss differ"
[ $failed = 0 ] && echo ok
exit $failed
