#!/bin/bash
# Line coverage of src by the whole suite. usage: tools/coverage.sh [LEAST_PERCENT]     exit 1 when it is below
set -euo pipefail
cd "$(dirname "$0")/.."
least=${1:-85}
mkdir -p build
cmake --preset coverage >build/coverage.log 2>&1 || { cat build/coverage.log; exit 1; }
cmake --build --preset coverage --parallel "$(nproc)" >>build/coverage.log 2>&1 || { tail -40 build/coverage.log; exit 1; }
find build/coverage -name '*.gcda' -delete
ctest --preset coverage --parallel "$(nproc)"
gcovr --root . --filter src/ --object-directory build/coverage --gcov-ignore-parse-errors --sort-percentage \
    --txt build/coverage.txt --json-summary build/coverage.json build/coverage
sed -n '/^File/,$p' build/coverage.txt
percent=$(sed -n 's/.*"line_percent": \([0-9.]*\).*/\1/p' build/coverage.json | tail -1)
echo "line coverage of src: $percent % (at least $least)"
awk -v p="$percent" -v least="$least" 'BEGIN { exit !(p >= least) }'
