#!/bin/bash
# Disks that fill up, folders that vanish, processes that are killed at any moment: nothing committed is lost, the message
# says what happened, and a resumed run ends with the bytes of the run that was never killed.
# Users' pain that this guards: half-written checkpoints, runs that die of a full disk, resumes that are not the same run.
set -u
halley=$1
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1
failed=0
fail() { echo "FAILED: $*"; failed=1; }
for i in $(seq 1 300); do echo "the cat number $((i * 37 % 101)) saw the dog number $((i * 53 % 89))"; done > story.txt
small="--data $folder/story.txt --model llama --num_hidden_layers 1 --hidden_size 32 --num_attention_heads 2 --block_size 16
    --per_device_train_batch_size 4 --threads 1 --lr_scheduler_type constant --logging_steps 1"
"$halley" train $small --max_steps 60 --output_dir straight > log 2>&1 || fail "$(cat log)"
same() {
    cmp straight/checkpoint-60/model.safetensors "$1/checkpoint-60/model.safetensors" || fail "$2: weights differ"
    cmp straight/checkpoint-60/state.safetensors "$1/checkpoint-60/state.safetensors" || fail "$2: state differs"
    [ "$(wc -l < "$1/metrics.jsonl")" = 60 ] || fail "$2: $(wc -l < "$1/metrics.jsonl") lines of metrics instead of 60"
}
options="$small --max_steps 60 --save_steps 1 --save_total_limit 3"

exec 3>&2 2> /dev/null # the shell tells of every process that is killed

# ---- killed at random instants ----
n_kills=0
for i in $(seq 1 200); do
    # shellcheck disable=SC2086
    timeout -s KILL "$(printf 0.%03d $((RANDOM % 230 + 20)))" "$halley" train $options --output_dir killed --resume > log 2>&1
    status=$?
    [ $status = 0 ] && break
    [ $status = 137 ] || fail "kill $i: status $status: $(cat log)"
    n_kills=$((n_kills + 1))
    [ $n_kills -ge 30 ] && { "$halley" train $options --output_dir killed --resume > log 2>&1 || fail "after $n_kills kills: $(cat log)"; break; }
done
same killed "$n_kills random kills"
grep -q 'holds neither\|damaged\|corrupt' log && fail "after kills: $(cat log)"

# ---- killed at the n-th call that changes files ----
cat > killer.c <<'C'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>
static long left = -1;
static void count(void) {
    if (left < 0) left = atol(getenv("KILL_AT"));
    if (--left == 0) kill(getpid(), SIGKILL);
}
ssize_t write(int fd, const void *data, size_t n) {
    static ssize_t (*real)(int, const void *, size_t);
    if (!real) real = (ssize_t(*)(int, const void *, size_t))dlsym(RTLD_NEXT, "write");
    if (fd <= 2) return real(fd, data, n);
    if (left == 1 && n > 1) (void)!real(fd, data, n / 2); /* torn */
    count();
    return real(fd, data, n);
}
#define WRAP(name, parameters, arguments)                                                                              \
    int name parameters {                                                                                              \
        static int(*real) parameters;                                                                                  \
        if (!real) real = (int(*) parameters)dlsym(RTLD_NEXT, #name);                                                  \
        count();                                                                                                       \
        return real arguments;                                                                                         \
    }
WRAP(rename, (const char *from, const char *to), (from, to))
WRAP(fsync, (int fd), (fd))
WRAP(unlink, (const char *path), (path))
WRAP(rmdir, (const char *path), (path))
WRAP(mkdir, (const char *path, unsigned mode), (path, mode))
WRAP(ftruncate, (int fd, long n), (fd, n))
C
if nm -D "$halley" 2>/dev/null | grep -q __asan_init; then
    echo "SKIP: kills at chosen calls: a preloaded library and AddressSanitizer do not mix"
elif cc -shared -fPIC -o killer.so killer.c -ldl 2> log; then
    at=1 n_kills=0
    while :; do
        KILL_AT=$at LD_PRELOAD=$folder/killer.so "$halley" train $options --output_dir storm --resume > log 2>&1
        status=$?
        [ $status = 0 ] && break
        [ $status = 137 ] || { fail "killed at call $at: status $status: $(cat log)"; break; }
        n_kills=$((n_kills + 1))
        at=$((at + 1 + at / 12))
    done
    [ $n_kills -gt 25 ] || fail "only $n_kills kills at chosen calls"
    same storm "$n_kills kills at chosen calls"
else
    echo "SKIP: kills at chosen calls: cc cannot build the counter: $(head -n 1 log)"
fi

exec 2>&3

# ---- a folder that vanishes, and one that is not ours ----
"$halley" train $small --max_steps 1000000 --save_steps 20 --save_total_limit 2 --output_dir gone > log 2>&1 &
pid=$!
for i in $(seq 1 2000); do [ -s gone/latest ] && break; sleep 0.05; done
mv gone away && rm -rf away
for i in $(seq 1 2000); do [ -s gone/latest ] && break; sleep 0.05; done
kill -TERM $pid; wait $pid; status=$?
[ $status = 143 ] && [ -s gone/latest ] || fail "output_dir removed: status $status: $(tail -n 3 log)"
grep -q 'was removed while it was being written' log || fail "output_dir removed, and nothing said: $(cat log)"

if [ "$(id -u)" != 0 ]; then
    mkdir locked && chmod 555 locked
    "$halley" train $small --max_steps 2 --output_dir locked/run > log 2>&1; status=$?
    [ $status = 1 ] && grep -q 'Permission denied' log || fail "read-only folder: $status: $(cat log)"
fi

# ---- a full disk: a small file system of our own, in a mount namespace ----
cat > full.sh <<'S'
halley=$1; shift
fail() { echo "FAILED: $*"; exit 1; }
mount -t tmpfs -o size=4m tmpfs disk || exit 77
trap 'kill -KILL $(jobs -p) 2>/dev/null' EXIT
run="$halley train $* --save_steps 10 --output_dir disk/run"
$run --max_steps 20 > log 2>&1 || fail "before: $(cat log)"
head -c 8000000 /dev/zero > disk/ballast 2>/dev/null
$run --max_steps 60 --resume > log 2>&1; status=$?
[ $status = 1 ] || fail "resumed on a full disk: status $status: $(cat log)"
grep -q 'No space left' log || fail "full at the start: $(cat log)"
rm disk/ballast
# it fills up on the way: room for the metrics and one more checkpoint, not for two
free=$(($(stat -f -c '%a * %S' disk))) checkpoint=$(($(du -sk disk/run/checkpoint-20 | cut -f 1) * 1024))
head -c $((free - checkpoint * 3 / 2)) /dev/zero > disk/ballast
$run --max_steps 3000 --resume > log 2>&1; status=$?
[ -d disk/run/checkpoint-30 ] && [ ! -e disk/run/checkpoint-40 ] || fail "room for another number of checkpoints: $(ls disk/run)"
[ $status = 1 ] || fail "final save on a full disk: status $status: $(tail -n 3 log)"
[ "$(grep -c 'could not be saved: .*No space left.*training goes on' log)" = 1 ] || fail "not warned once: $(grep warning log)"
tail -n 1 log | grep -q '^halley train: .*No space left.*free some space' || fail "the last line: $(tail -n 1 log)"
grep -Eq '^warning: cannot write disk/run/[^:]*: No space left' log && grep -Eq '^warning: [0-9]+ records of metrics and samples could not be written$' log ||
    fail "lost metrics are not said: $(grep warning log)"
grep -q 'step 3000/3000' log || fail "training did not go on: $(tail -n 3 log)"
[ -d disk/run/checkpoint-20 ] || fail "an earlier checkpoint is gone: $(ls disk/run)"
ls -d disk/run/.*partial 2>/dev/null && fail "half a checkpoint was left"
rm disk/ballast
$run --max_steps 60 --resume_from_checkpoint disk/run/checkpoint-20 > log 2>&1 || fail "after space was made: $(cat log)"
cmp straight/checkpoint-60/model.safetensors disk/run/checkpoint-60/model.safetensors || fail "weights differ"
[ "$(wc -l < disk/run/metrics.jsonl)" = 60 ] || fail "metrics: $(wc -l < disk/run/metrics.jsonl) lines"
# it fills up and somebody makes space: said when it works again
rm -rf disk/run
await() { for i in $(seq 1 3000); do "$@" 2>/dev/null && return; sleep 0.01; done; fail "waited in vain for: $*: $(grep -v '^step .*loss' log)"; }
$run --max_steps 1000000 --save_total_limit 2 > log 2>&1 &
await [ -s disk/run/latest ]
head -c 8000000 /dev/zero > disk/ballast 2>/dev/null
await grep -q 'could not be saved' log
rm disk/ballast
await grep -Eq '^step [0-9]+ is saved; [0-9]+ checkpoints before it could not be$' log
kill -TERM $!; wait $!; status=$?
[ $status = 143 ] || fail "space was made on the way: status $status: $(grep -v '^step .*loss' log)"
# shards and tokenizers: the same words, and no half of one
head -c 8000000 /dev/zero > disk/ballast 2>/dev/null
$halley data --data story.txt --out disk/shards > log 2>&1; status=$?
[ $status = 1 ] && grep -q 'No space left' log || fail "shards on a full disk: status $status: $(cat log)"
ls disk/shards/* 2>/dev/null && fail "half a shard was left"
$halley data --train-tokenizer 400 --data story.txt --out disk/tok.json > log 2>&1; status=$?
[ $status = 1 ] && grep -q 'disk/tok.json: cannot .*: No space left' log || fail "a tokenizer on a full disk: status $status: $(cat log)"
ls disk/tok.json* 2>/dev/null && fail "half a tokenizer was left"
(cd disk && $halley doctor) > log && grep -q '^hint: less than 1 GiB is free here: checkpoints may not fit$' log || fail "doctor on a full disk: $(cat log)"
rm disk/ballast
mount -o remount,ro disk || exit 0
$halley data --data story.txt --out disk/shards2 > log 2>&1; status=$?
[ $status = 1 ] && grep -q 'Read-only file system' log || fail "shards on a read-only disk: status $status: $(cat log)"
$run --max_steps 70 --resume > log 2>&1; status=$?
[ $status = 1 ] && grep -q 'Read-only file system' log || fail "read-only: status $status: $(cat log)"
S
mkdir disk
if unshare -m true 2>/dev/null; then
    unshare -m bash full.sh "$halley" $small; status=$?
    if [ $status = 77 ]; then echo "SKIP: full disk: tmpfs cannot be mounted here"; skipped=1
    elif [ $status != 0 ]; then failed=1; fi
else
    echo "SKIP: full disk: no mount namespace without privileges here"; skipped=1
fi

[ $failed = 1 ] && exit 1
echo ok
exit $([ "${skipped:-0}" = 1 ] && echo 77 || echo 0)
