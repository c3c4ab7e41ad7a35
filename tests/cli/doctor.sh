#!/bin/bash
# halley doctor says what it found and ends with a verdict.
set -eu
halley=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
fail() { echo "FAIL: $1"; cat out; exit 1; }

"$halley" doctor >out || fail "exit status $? on a healthy machine"
for word in processor threads kernels memory 'huge pages' products rate copy disk locale terminal; do
    grep -q "^$word " out || fail "no line about $word"
done
tail -1 out | grep -q '^ready' || fail "the last line is not the verdict"

"$halley" doctor --threads 1000 >out || fail "more threads than cores are a hint, not a failure"
grep -q '^hint: 1000 threads are more than' out || fail "no hint about threads"
tail -1 out | grep -q '^ready, with' || fail "no count of hints"

HALLEY_ISA=ref "$halley" doctor >out || fail "HALLEY_ISA=ref"
grep -q '^kernels  *ref, forced by HALLEY_ISA' out || fail "HALLEY_ISA=ref is not shown"
if HALLEY_ISA=pdp11 "$halley" doctor >out; then fail "an unknown HALLEY_ISA is not refused"; fi
tail -1 out | grep -q '^not ready: 1 problem$' || fail "no count of problems"
if HALLEY_PRODUCTS=mkl "$halley" doctor >out; then fail "an unknown HALLEY_PRODUCTS is not refused"; fi
grep -q '^problem: HALLEY_PRODUCTS: there is no engine "mkl"' out || fail "HALLEY_PRODUCTS=mkl is not explained"
if "$halley" doctor --tokenizer missing.json >out; then fail "a missing tokenizer"; fi
grep -q '^problem: missing.json: cannot open: No such file' out || fail "missing.json"

# Files that it is shown.
printf '\xef\xbb\xbfwords\r\n' >bom.txt
: >empty.txt
printf 'version https://git-lfs.github.com/spec/v1\n' >pointer.txt
printf '\x1f\x8b\x08\x00' >packed.txt
if "$halley" doctor --data bom.txt empty.txt pointer.txt packed.txt missing.txt --tokenizer missing.json >out; then fail "bad files"; fi
grep -q '^data  *bom.txt: 10 B, byte order mark, CR line ends' out || fail "bom.txt"
grep -q '^problem: empty.txt is empty$' out || fail "empty.txt"
grep -q '^problem: pointer.txt is a Git LFS pointer' out || fail "pointer.txt"
grep -q '^problem: packed.txt is compressed' out || fail "packed.txt"
grep -q '^problem: missing.txt cannot be read: No such file' out || fail "missing.txt"
tail -1 out | grep -q '^not ready: 5 problems$' || fail "5 problems"

"$halley" doctor --help >out || fail "--help"
grep -q -- '--tokenizer TEXT' out || fail "--help lists no options"
status=0; "$halley" doctor --thread 2 2>out || status=$?
[ $status = 2 ] && grep -q "^halley doctor: --thread: unknown option; did you mean '--threads'?$" out || fail "a misspelt option"
status=0; "$halley" doctor words 2>out || status=$?
[ $status = 2 ] || fail "a stray word"
