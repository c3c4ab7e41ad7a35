#!/bin/bash
# halley bench measures each part and prints it; no time is asserted.
set -eu
halley=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
fail() { echo "FAIL: $1"; cat out; exit 1; }

small="--model gpt2-tiny --block_size 16 --per_device_train_batch_size 2 --rounds 1"
"$halley" bench $small --only step >out || fail "the step"
grep -q '^training step, 2 rows of 16 tokens$' out || fail "no step"
grep -Eq '^  f32   [0-9.]+ ms, [0-9.]+ tok/s' out || fail "no f32 step"
grep -Eq '^  bf16  [0-9.]+ ms, [0-9.]+ tok/s' out || fail "no bf16 step"
if grep -q '^attention' out; then fail "--only step measures more"; fi

"$halley" bench $small --only products >out || fail "products"
grep -Eq '^  head dW ' out && grep -Eq '^  all in bf16 [0-9.]+ s, [0-9.]+ GFLOP/s$' out || fail "no products"

"$halley" bench $small --only attention --numbers f32 >out || fail "attention"
grep -Eq '^  f32   [0-9.]+ ms for a layer' out || fail "no attention"
if grep -q '^  bf16' out; then fail "--numbers f32 measures bf16"; fi
"$halley" bench $small --only adamw >out || fail "adamw"
grep -Eq '^  bf16  [0-9.]+ GB/s, copy [0-9.]+ GB/s, share [0-9.]+$' out || fail "no adamw"

"$halley" bench --help >out || fail "--help"
grep -q -- '--numbers' out || fail "--help lists no options"
status=0; "$halley" bench --model gpt2-124 2>out || status=$?
[ $status = 2 ] && grep -q 'gpt2-124m' out || fail "an unknown preset is not refused with the nearest one"
status=0; "$halley" bench --model gpt2-124m --block_size 2000 2>out || status=$?
[ $status = 2 ] && grep -q '1024 positions' out || fail "a block_size beyond the model is not refused"
status=0; "$halley" bench something 2>out || status=$?
[ $status = 2 ] || fail "a bare word is not refused"
mkdir closed; rmdir closed
status=0; TMPDIR=closed "$halley" bench $small --only step >/dev/null 2>out || status=$?
[ $status = 1 ] && grep -q 'TMPDIR' out || fail "a missing temporary folder is not explained"
ls "${TMPDIR:-/tmp}"/halley-bench-* 2>/dev/null && fail "a shard was left behind"
exit 0
