#!/bin/bash
# halley help: a list of topics, each topic, and the nearest one for a misspelt word.
set -eu
halley=$1
out=$(mktemp)
trap 'rm -f "$out"' EXIT
fail() { echo "FAIL: $1"; cat "$out"; exit 1; }

"$halley" help >"$out" || fail "the list"
topics=$(awk '/^  [a-z]/ { print $1 }' "$out")
[ "$(wc -w <<<"$topics")" -ge 3 ] || fail "hardly any topics"
for topic in $topics; do
    "$halley" help "$topic" >"$out" || fail "$topic"
    head -1 "$out" | grep -q '^# ' || fail "$topic has no title"
    [ "$(wc -L <"$out")" -le 132 ] || fail "$topic has lines wider than 128"
done
status=0; "$halley" help option 2>"$out" || status=$?
[ $status = 2 ] && grep -q "^halley help: no topic 'option'; did you mean 'options'?$" "$out" || fail "a misspelt topic"
status=0; "$halley" help zzzzzz 2>"$out" || status=$?
[ $status = 2 ] && grep -q "'halley help' lists them" "$out" || fail "an unknown topic"

"$halley" version >"$out" || fail "version"
grep -q '^libyaml' "$out" || fail "version names no libraries"
[ "$("$halley" --version | wc -l)" = 1 ] || fail "--version is one line"
