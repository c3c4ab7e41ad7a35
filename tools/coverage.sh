#!/bin/bash
# Line coverage of src by the whole suite, file by file. usage: tools/coverage.sh [LEAST_PERCENT]   exit 1 when it is below
# gcov itself, merged by awk: a kernel body that several files include counts as covered when any of them ran it.
set -euo pipefail
cd "$(dirname "$0")/.."
least=${1:-85}
mkdir -p build
cmake --preset coverage >build/coverage.log 2>&1 || { cat build/coverage.log; exit 1; }
cmake --build --preset coverage --parallel "$(nproc)" >>build/coverage.log 2>&1 || { tail -40 build/coverage.log; exit 1; }
find build/coverage -name '*.gcda' -delete
ctest --preset coverage --parallel "$(nproc)"

find build/coverage/CMakeFiles/halley_objects.dir -name '*.gcno' -print0 | xargs -0 gcov --stdout 2>/dev/null |
    awk -F: -v root="$PWD/" '
    $2 + 0 == 0 && $3 == "Source" { file = index($4, root "src/") == 1 ? substr($4, length(root) + 1) : ""; next }
    file == "" || $2 + 0 == 0 { next }
    { count = $1; gsub(/[ *]/, "", count); line = file ":" ($2 + 0) }
    count == "-" { next }
    !(line in ran) { ran[line] = 0; n[file]++ }
    count ~ /^[0-9]/ && !ran[line] { ran[line] = 1; hit[file]++ }
    END {
        for (f in n) {
            printf "%6.1f %%  %5d of %5d  %s\n", 100 * hit[f] / n[f], hit[f], n[f], f | "sort -n"
            all += n[f]; all_hit += hit[f]
        }
        close("sort -n")
        printf "line coverage of src: %.1f %% (%d of %d lines)\n", 100 * all_hit / all, all_hit, all
    }' >build/coverage.txt
cat build/coverage.txt
awk -v least="$least" '/^line coverage/ { exit !($5 >= least) }' build/coverage.txt ||
    { echo "coverage is below $least %"; exit 1; }
