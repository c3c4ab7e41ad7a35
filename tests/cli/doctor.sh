#!/bin/bash
# halley doctor says what it found and ends with a verdict.
set -eu
halley=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
fail() { echo "FAIL: $1"; cat out; exit 1; }

"$halley" doctor >out || fail "exit status $? on a healthy machine"
for word in processor threads kernels memory 'huge pages' products rate copy ranks clock wires /dev/shm memlock network host disk locale terminal; do
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

# Several ranks: wires, a pool that is made, tried and removed, places that launchers tell.
"$halley" doctor --ranks 3 >out || fail "--ranks 3"
for wire in threads wan; do grep -qE "^(wires)? +$wire +yes: " out || fail "no wire $wire"; done
grep -qE '^ranks +3 on this machine: [0-9]+ threads? each' out || fail "--ranks 3: no share"
grep -qE '^pool +[0-9.]+ GB/s copied in, [0-9.]+ GB/s out' out && grep -qE '^ +[0-9.]+ us there and back between two' out || fail "the pool is not measured"
OMP_NUM_THREADS=100 "$halley" doctor >out || fail "OMP_NUM_THREADS=100"
grep -q '^hint: 2 ranks with 100 threads each are more than .*unset OMP_NUM_THREADS' out || fail "no hint about ranks times threads"
if RANK=0 "$halley" doctor >out; then fail "half of a pair of variables"; fi
grep -q '^problem: .*WORLD_SIZE is not' out || fail "half of a pair is not explained"
RANK=1 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 "$halley" doctor >out || fail "a place"
grep -q '^place  *rank 1 of 2, as torchrun says; wire wan$' out && grep -q '^ *to 127.0.0.1:29500 (127.0.0.1) from 127.0.0.1, lo$' out || fail "the place is not told"
if RANK=1 WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 "$halley" doctor >out; then fail "a meeting place nobody else reaches"; fi
grep -q '^problem: 127.0.0.1:29500 is this machine alone' out || fail "a loopback address is not noticed"
if unshare -m sh -c 'mount -t tmpfs -o size=1M none /dev/shm' 2>/dev/null; then
    unshare -m sh -c 'mount -t tmpfs -o size=1M none /dev/shm && "$0" doctor' "$halley" >out || fail "a small /dev/shm is a hint"
    grep -qE '^/dev/shm *1.00 MiB, [0-9.]+ [KM]iB free$' out || fail "the size of /dev/shm"
    grep -q '^hint: no pool for 2 ranks: the pool needs .*--shm-size=' out || fail "no hint about /dev/shm"
else
    echo "SKIP: no private mounts here, so no small /dev/shm"
fi

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
