#!/bin/sh
# make demo: a language model from nothing, in a few minutes on two cores. Takes the King James Bible as Debian packages it,
# learns a tokenizer, trains a small Llama on two ranks, compares it with a bigram model, and writes a page and a sample into demo/.
# usage: tools/demo.sh        HALLEY: the program, DEMO_DIR: where everything goes, DEMO_STEPS: steps of training
set -eu
cd "$(dirname "$0")/.."
halley=${HALLEY:-build/${PRESET:-release}/halley}
out=${DEMO_DIR:-demo}
steps=${DEMO_STEPS:-800}

# Threads that wait hand their core over soon: on a busy machine this makes training three times as fast.
[ -n "${OMP_WAIT_POLICY:-}" ] || export GOMP_SPINCOUNT="${GOMP_SPINCOUNT:-10000}"

[ -x "$halley" ] || { echo "demo: $halley is not there; 'make build' makes it" >&2; exit 1; }
command -v bible >/dev/null 2>&1 || {
    echo "demo: the program 'bible' is missing; Debian and Ubuntu have it in the package bible-kjv." >&2
    echo "      Any other text does as well: $halley train --data FILE.txt" >&2
    exit 1
}
mkdir -p "$out"

say() { printf '\n== %s\n' "$*"; }
show() { printf '$ %s\n' "$*"; "$@"; }

# One JSONL row for each of the 1,189 chapters, without the numbers of the verses, so that whole chapters are held out.
say "the text: the King James Bible, one document for each chapter"
bible -f gen1:1-rev22:21 | awk '
    { chapter = $1; sub(/:.*/, "", chapter); sub(/^[^ ]+ +/, ""); gsub(/[\\"]/, "\\\\&") }
    chapter != last { if (NR > 1) print "\"}"; printf "{\"text\": \"%s", $0; last = chapter; next }
    { printf "\\n%s", $0 }
    END { print "\"}" }' >"$out/kjv.jsonl"
echo "$out/kjv.jsonl: $(wc -l <"$out/kjv.jsonl") documents, $(wc -c <"$out/kjv.jsonl") bytes"

say "a tokenizer: byte-level BPE"
show "$halley" data --train-tokenizer 2048 --data "$out/kjv.jsonl" --out "$out/tokenizer.json"

# max_minutes is a net for slow machines: what was learned by then is evaluated, saved and shown.
say "a small Llama, $steps steps on two ranks that share a memory pool"
show "$halley" launch -n 2 --wire pool train examples/demo.yaml --data "$out/kjv.jsonl" --tokenizer "$out/tokenizer.json" \
    --strategy zero1 --output_dir "$out/run" --overwrite --max_steps "$steps" --max_minutes 2.5

say "held-out loss beside that of a bigram model of the same tokens (nats per token, lower is better)"
show "$halley" eval "$out/run" | tee "$out/eval.json"
value() { sed -n "s/.*\"$1\": \([0-9.]*\).*/\1/p" "$out/eval.json"; }
loss=$(value eval_loss) bigram=$(value bigram_loss)
result=0
awk -v loss="$loss" -v bigram="$bigram" 'BEGIN {
    printf "transformer %.3f   bigram %.3f\n", loss, bigram
    exit !(loss + 0 < bigram - 0.3)
}' || result=1

say "a picture of the run"
show "$halley" report "$out/run" --html "$out/report.html" --svg "$out/loss.svg"

say "what it writes"
show "$halley" generate "$out/run" --prompt "And it came to pass" --max_new_tokens 120 --seed 1

if [ "$result" != 0 ]; then
    say "the transformer is not clearly better than a bigram model"
    echo "This machine is slow or busy, so that max_minutes cut the run short. Go on without the limit, the same bits as if never stopped:"
    echo "$halley launch -n 2 --wire pool train $out/run/run.yaml --resume --max_minutes 0"
    exit 1
fi
say "done. Open $out/report.html in a browser; go on with:"
echo "$halley generate $out/run --prompt 'In the beginning'"
echo "$halley train --data YOUR.txt"
