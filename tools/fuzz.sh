#!/bin/bash
# Runs each libFuzzer program for a while; what it finds goes into build/fuzz/found, crashes end the script.
# usage: tools/fuzz.sh SECONDS [NAME]
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-60}
cmake --preset fuzz >/dev/null
targets=$(ls fuzz/fuzz_${2:-*}.c | sed 's|fuzz/|live_|; s|\.c$||') # not the tests: they take most of the time
cmake --build --preset fuzz --parallel "$(nproc)" --target $targets
for program in build/fuzz/fuzz/live_fuzz_${2:-*}; do
    name=${program##*/live_fuzz_}
    mkdir -p "build/fuzz/found/$name"
    echo "== $name"
    "$program" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
        -artifact_prefix="build/fuzz/crash-$name-" "build/fuzz/found/$name" "fuzz/corpus/$name"
done
