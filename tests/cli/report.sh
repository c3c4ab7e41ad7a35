#!/bin/bash
# halley report as a person uses it: one run, several, a picture, and every refusal.
set -u
halley=$1
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
fail() { echo "FAIL: $*"; exit 1; }
# expect CODE TEXT COMMAND...: the exit status, and TEXT somewhere in what it prints
expect() {
    local code=$1 text=$2 said; shift 2
    said=$("$@" 2>&1); local got=$?
    [ $got -eq "$code" ] || fail "$*: exit $got, not $code: $said"
    case $said in *"$text"*) ;; *) fail "$*: no '$text' in: $said" ;; esac
}

mkdir "$dir/a" "$dir/b" "$dir/empty" "$dir/bare"
for i in 1 2 3 4 5; do echo "{\"step\": $i, \"loss\": $((9 - i)).25, \"tokens_per_second\": 1000}"; done >"$dir/a/metrics.jsonl"
cp "$dir/a/metrics.jsonl" "$dir/b/metrics.jsonl"
echo 'half a li' >>"$dir/b/metrics.jsonl"
: >"$dir/empty/metrics.jsonl"

expect 0 "$dir/a/report.html" "$halley" report "$dir/a"
grep -q 4.2500 "$dir/a/report.html" || fail "the final loss is not on the page"
expect 0 "$dir/a/report.html" "$halley" report "$dir/a/"
expect 0 "p.svg" "$halley" report "$dir/a" --svg "$dir/p.svg"
head -c 4 "$dir/p.svg" | grep -q '<svg' || fail "no picture"
expect 0 "metrics.jsonl:6: no metrics in this line; 1 of 6 lines skipped" "$halley" report "$dir/a" "$dir/b" --html="$dir/two.html"
grep -q 'b: 1 of 6 lines' "$dir/two.html" || fail "the page does not say that a line was skipped"
expect 0 "nothing logged yet" "$halley" report "$dir/empty"
expect 0 "usage: halley report" "$halley" report --help
expect 2 "which run?" "$halley" report
expect 2 "--html FILE" "$halley" report "$dir/a" "$dir/b"
expect 2 "no option '--htlm'" "$halley" report "$dir/a" --htlm x
expect 2 "--svg needs a file name" "$halley" report "$dir/a" --svg
expect 1 "no run at $dir/none" "$halley" report "$dir/none"
expect 1 "output_dir of halley train" "$halley" report "$dir/bare"
expect 1 "cannot write" "$halley" report "$dir/a" --html "$dir/none/x.html"
cmp -s <("$halley" report "$dir/a" --svg /dev/stdout) <(LC_ALL=de_DE.UTF-8 "$halley" report "$dir/a" --svg /dev/stdout) ||
    fail "the picture depends on the locale"
echo "report: all as expected"
