#!/bin/bash
# halley pool as a person uses it: make, look, check, free; every refusal; a small /dev/shm.
set -u
halley=$1
name=test-cli-$$
dir=$(mktemp -d) || exit 1
trap '"$halley" pool free "$name" --force >/dev/null 2>&1; rm -rf "$dir"' EXIT
fail() { echo "FAIL: $*"; exit 1; }
# expect CODE TEXT COMMAND...: the exit status, and TEXT somewhere in what it prints
expect() {
    local code=$1 text=$2 said; shift 2
    said=$("$@" 2>&1); local got=$?
    [ $got -eq "$code" ] || fail "$*: exit $got, not $code: $said"
    case $said in *"$text"*) ;; *) fail "$*: no '$text' in: $said" ;; esac
}
pool="$halley pool"

expect 0 "/dev/shm/halley-$name" $pool create "$name" --size 16M --devices 2
expect 0 "halley-$name  2 x 16.0 MiB, hc, no job" $pool info
expect 0 "2 of 16.0 MiB" $pool info "$name"
expect 0 "words, 0 wrong" $pool check "$name"
expect 0 "job         none; 1 so far" $pool info "$name"
expect 2 "exists already" $pool create "$name" --size 16M
# two processes, as on two machines
$pool check "$name" --rank 0 >"$dir/0" 2>&1 &
expect 0 "words, 0 wrong" $pool check "$name" --rank 1
wait $! || fail "rank 0: $(cat "$dir/0")"
grep -q 'words, 0 wrong' "$dir/0" || fail "rank 0 said: $(cat "$dir/0")"
expect 0 "" $pool free "$name"
[ ! -e "/dev/shm/halley-$name" ] || fail "the folder is still there"
expect 2 "does not exist" $pool free "$name"

# files in the place of devices
truncate -s 8M "$dir/dax0" "$dir/dax1"
expect 0 "$dir/dax0,$dir/dax1" $pool create "$dir/dax0,$dir/dax1"
expect 0 "words, 0 wrong" $pool check "$dir/dax0,$dir/dax1"
expect 2 "holds a pool already" $pool create "$dir/dax0"
expect 2 "not 0: name the devices in their order" $pool info "$dir/dax1,$dir/dax0"
expect 0 "" $pool free "$dir/dax0,$dir/dax1"
expect 1 "holds no pool" $pool info "$dir/dax0"

if grep -qw clflush /proc/cpuinfo; then
    for more in "" --read_back; do
        expect 0 "" $pool create "$name" --size 16M --mode nc-wb $more
        expect 0 "words, 0 wrong" $pool check "$name"
        expect 0 "" $pool free "$name"
    done
fi
expect 0 "" $pool create "$name" --size 64M --mode nc-uc
expect 0 "words, 0 wrong" $pool check "$name"
# a run over it has the same bits as one over a pool that the launcher makes
yes 'the quick brown fox jumps over the lazy dog' | head -400 >"$dir/t.txt"
run() { # OUT, options of launch
    local out=$1; shift
    "$halley" launch -n 2 "$@" train --data "$dir/t.txt" --output_dir "$dir/$out" --max_steps 3 --n_layer 1 --n_embd 32 \
        --n_head 2 --block_size 32 >"$dir/$out.log" 2>&1 || fail "$out: $(tail -3 "$dir/$out.log")"
}
run a
run b --pool "$name"
cmp -s "$dir/a/checkpoint-3/model.safetensors" "$dir/b/checkpoint-3/model.safetensors" || fail "the bits depend on the mode"
expect 0 "job         none; 2 so far" $pool info "$name"
printf 'X' | dd of="/dev/shm/halley-$name/dev0" bs=1 seek=100 conv=notrunc 2>/dev/null
expect 1 "damaged" $pool check "$name"
expect 1 "damaged" $pool free "$name"
expect 0 "" $pool free "$name" --force

expect 2 "say create, info, check or free" $pool
expect 2 "'make': say create" $pool make
expect 2 "check which pool?" $pool check
expect 2 "'3X' is no size" $pool create --size 3X
expect 2 "--read_back belongs to --mode nc-wb" $pool create --read_back
expect 1 "the pool needs 1.95 TiB in /dev/shm" $pool create "$name" --size 1000G --devices 2
expect 0 "halley pool create" $pool --help

# a container's /dev/shm
small() { unshare -m sh -c 'mount -t tmpfs -o size=1M none /dev/shm && "$@" && :' sh "$@"; }
if unshare -m sh -c 'mount -t tmpfs -o size=1M none /dev/shm' 2>/dev/null; then
    expect 1 "needs 17.0 MiB in /dev/shm, where 1.00 MiB of 1.00 MiB are free" small $pool create "$name" --size 16M
    expect 1 "--shm-size=18M" small $pool create "$name" --size 16M
    expect 0 "no pools in /dev/shm" small $pool info
    expect 0 "0 removed" small $pool free --stale
else
    echo "SKIP: a small /dev/shm: no right to mount one"
fi
echo "pool: all as expected"
