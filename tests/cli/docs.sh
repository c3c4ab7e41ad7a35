#!/bin/bash
# The pages that come from tables are current: docs/options.md, and what `halley help` lists from the registries.
set -eu
halley=$1
source=$(cd "$(dirname "$0")/../.." && pwd)
out=$(mktemp)
trap 'rm -f "$out"' EXIT
fail() { echo "FAIL: $1"; exit 1; }

"$halley" help options-markdown >"$out"
diff -u "$source/docs/options.md" "$out" || fail "docs/options.md is old: halley help options-markdown > docs/options.md"

# plug-ins of a registry file, each on a line of its topic; pool_wan's name is pool+wan
listed() { # topic, file, macro
    "$halley" help "$1" >"$out"
    local names; names=$(sed -n "s/^$3(\([a-z0-9_]*\).*/\1/p" "$source/$2")
    [ -n "$names" ] || fail "no plug-ins in $2"
    for name in $names; do grep -q "^  ${name//_/[_+]}  " "$out" || fail "halley help $1 does not list $name"; done
}
listed strategies src/strategies/strategies.def HL_STRATEGY
listed optimizers src/optimizers/optimizers.def HL_OPTIMIZER
listed wires src/wires/wires.def HL_WIRE
listed codecs src/codecs/codecs.def HL_CODEC
"$halley" help models >"$out"
grep -q '^  gpt2-124m  .*12 layers' "$out" || fail "halley help models lists no presets"

# the examples are configurations that the program understands
for yaml in "$source"/examples/*.yaml; do
    "$halley" train "$yaml" --data none.txt --print_config >"$out" || fail "$yaml is not understood"
done

# links between pages lead somewhere
cd "$source"
bad=0
for page in README.md CONTRIBUTING.md $(find docs examples -name '*.md'); do
    for link in $(grep -o '](\([^)#:]*\)[)#]' "$page" | sed 's/^](//; s/[)#]$//'); do
        [ -e "$(dirname "$page")/$link" ] || { echo "$page: $link is not there"; bad=1; }
    done
done
[ $bad = 0 ] || fail "broken links"
