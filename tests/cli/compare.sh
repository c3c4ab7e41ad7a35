#!/bin/bash
# halley compare: with throttled wires everywhere, with namespaces where root may make them. What it refuses, what a failed run
# and signals leave: nothing but the runs' folders.
set -u
halley=$1
"$halley" help wires | grep -q '^  wan ' || { echo "SKIP: this build has no wire wan (libzmq)"; exit 77; }
folder=$(mktemp -d) || exit 1
chmod 755 "$folder"
cd "$folder" || exit 1
trap 'rm -rf "$folder"' EXIT
failed=0
fail() { echo "FAILED: $*"; failed=1; }
# expect STATUS TEXT COMMAND...
expect() {
    local status=$1 text=$2; shift 2
    local said; said=$("$@" 2>&1); local got=$?
    [ "$got" = "$status" ] || fail "status $got instead of $status: $* said: $said"
    [[ $said == *"$text"* ]] || fail "no '$text' in what $* said: $said"
}
losses() { grep -o '"step": [0-9]*, "loss": [0-9.]*\|"eval_loss": [0-9.]*' "$1/metrics.jsonl"; }
for i in $(seq 1 300); do echo "the cat number $((i * 37 % 101)) saw the dog number $((i * 53 % 89))"; done > story.txt
cat > run.yaml <<E2
data: $folder/story.txt
num_hidden_layers: 1
hidden_size: 32
num_attention_heads: 2
block_size: 32
per_device_train_batch_size: 2
max_steps: 6
eval_steps: 2
logging_steps: 1
timeout: 30
E2

# ---- throttled wires ----
expect 0 'a/compare.html' "$halley" compare run.yaml --strategies ddp,zero1 --hosts 3 --rate 200mbit --wire-throttle --output_dir a --svg a.svg
for text in 'Held-out loss by tokens' 'Held-out loss by seconds' 'Held-out loss by bytes' 'by cost()' '3 processes on one machine' '200mbit' \
    'zero1</td>' 'comm_wait\|Waiting for other ranks' 'throttle=200000.000kbit'; do
    grep -q "$text" a/compare.html || fail "no '$text' on the page"
done
grep -q '<svg' a.svg || fail "no picture"
grep -Eq 'https?:|<script' a/compare.html && fail "the page needs something else"
[ "$(losses a/ddp | wc -l)" = 9 ] && [ "$(losses a/ddp)" = "$(losses a/zero1)" ] || fail "equal seeds, other losses: $(losses a/ddp; losses a/zero1)"
grep -q '"train_runtime": [0-9]' a/ddp/metrics.jsonl || fail "no train_runtime"
"$halley" launch -n 3 --wire threads train run.yaml --threads 1 --output_dir plain > log 2>&1 || fail "launch: $(cat log)"
[ "$(losses a/ddp)" = "$(losses plain)" ] || fail "launch has other losses: $(losses plain)"

# ---- what it refuses, before anything runs ----
expect 2 'which strategies? --strategies ddp,zero1' "$halley" compare run.yaml --output_dir no
expect 2 "strategy: unknown 'zero9'; did you mean zero" "$halley" compare run.yaml --strategies ddp,zero9 --output_dir no
expect 2 "strategy: unknown ''" "$halley" compare run.yaml --strategies ddp, --output_dir no
expect 2 'ddp is there twice' "$halley" compare run.yaml --strategies ddp,zero1,ddp --output_dir no
expect 2 "rate: '100' is none; write a number and its unit, such as 100mbit" "$halley" compare run.yaml --strategies ddp --rate 100 --output_dir no
expect 2 "rate: '-1mbit'" "$halley" compare run.yaml --strategies ddp --rate -1mbit --output_dir no
expect 2 'hosts' "$halley" compare run.yaml --strategies ddp --hosts 1 --output_dir no
expect 2 'resume: compare starts every run from the same beginning' "$halley" compare run.yaml --strategies ddp --resume --output_dir no
expect 2 "learnig_rate" "$halley" compare run.yaml --strategies ddp --learnig_rate 1 --output_dir no
expect 2 "missing.yaml" "$halley" compare missing.yaml --strategies ddp --output_dir no
expect 2 "--strategy ddp, or another --optim" "$halley" compare run.yaml --strategies ddp,zero1 --optim muon --output_dir no
expect 2 "a/ddp holds a run already; start over with --overwrite_output_dir, or name another folder" "$halley" compare run.yaml --strategies ddp --wire-throttle --output_dir a
[ -e no ] && fail "a refused command made its folder"
expect 0 'strategies' "$halley" compare --help
expect 0 'max_steps: 6' "$halley" compare run.yaml --print_config

# ---- a run that fails: the page has those before it, the status is the failed one's ----
HALLEY_FAULT=kill:1:forward:3 "$halley" compare run.yaml --strategies zero1,ddp --hosts 2 --wire-throttle --output_dir broken > log 2>&1
[ $? = 137 ] && grep -q 'the run of zero1 did not come to its end' log && [ ! -e broken/ddp ] && [ ! -e broken/compare.html ] ||
    fail "a killed rank: $(cat log)"
grep -q 'rank 1 .* was ended by signal 9' log || fail "a killed rank is not named: $(cat log)"

stops() { # NAME, flags: SIGTERM ends the ranks; no run follows (bash lets children in the background ignore SIGINT)
    "$halley" compare run.yaml --strategies ddp,zero1 --hosts 2 "${@:2}" --max_steps 1000000 --logging_steps 1000 --eval_steps 0 --output_dir "$1" > log 2>&1 &
    local pid=$! rank
    for i in $(seq 1 600); do [ -s "$1/ddp/metrics.jsonl" ] && break; sleep 0.1; done
    kill -TERM $pid; wait $pid; local status=$?
    [ $status = 143 ] && [ -s "$1/ddp/latest" ] && [ ! -e "$1/zero1" ] || fail "SIGTERM ($1): $status: $(cat log)"
    for rank in $(sed -n 's/^rank [01] pid //p' log); do [ -e "/proc/$rank" ] && fail "$1: process $rank is left"; done
}
stops throttled --wire-throttle --rate none

# ---- namespaces ----
if [ "$(id -u)" != 0 ]; then
    expect 2 'need root; run it with sudo, or --wire-throttle' "$halley" compare run.yaml --strategies ddp --output_dir no
    echo "SKIP: no root, so no namespaces"; exit $failed
fi
if command -v setpriv > /dev/null; then
    mkdir open; chmod 777 open
    expect 2 'network namespaces need root; run it with sudo, or --wire-throttle does without them' \
        setpriv --reuid 65534 --regid 65534 --clear-groups "$halley" compare run.yaml --strategies ddp --output_dir open/run
fi
if ! unshare --net --mount true 2> /dev/null || ! command -v ip > /dev/null || ! command -v tc > /dev/null; then
    echo "SKIP: no namespaces here, or no iproute2"; exit $failed
fi
"$halley" compare run.yaml --strategies ddp --hosts 2 --rate none --output_dir probe > log 2>&1
if grep -q 'cannot be made here' log; then echo "SKIP: $(cat log)"; exit $failed; fi
seen() { ip -o link | sed 's/^[0-9]*: //; s/[:@].*//'; ip netns 2> /dev/null; ls /run/netns 2> /dev/null; }
grep -q 'links as they are' probe/compare.html || fail "no rate: $(cat log)"
before=$(seen)
expect 0 'b/compare.html' "$halley" compare run.yaml --strategies ddp,zero1 --hosts 3 --rate 200mbit --output_dir b
grep -q '3 network namespaces on one machine' b/compare.html || fail "the page does not say where it ran"
[ "$(losses a/ddp)" = "$(losses b/ddp)" ] && [ "$(losses a/ddp)" = "$(losses b/zero1)" ] || fail "namespaces have other losses: $(losses b/ddp)"
stops stopped
[ "$(seen)" = "$before" ] || fail "left: $(seen), before: $before"
HALLEY_FAULT=kill:1:forward:3 "$halley" compare run.yaml --strategies ddp --hosts 2 --output_dir broken2 > log 2>&1
[ $? = 137 ] && grep -q 'rank 1 .* was ended by signal 9' log || fail "a killed rank in a namespace: $(cat log)"
[ "$(seen)" = "$before" ] || fail "after a killed rank: $(seen), before: $before"

# the links are shaped, nobody else sees them, and a killed compare takes all with it
"$halley" compare run.yaml --strategies ddp --hosts 2 --rate 321mbit --max_steps 1000000 --logging_steps 1000 --eval_steps 0 --output_dir killed > log 2>&1 &
pid=$!
for i in $(seq 1 600); do [ -s killed/ddp/metrics.jsonl ] && break; sleep 0.1; done
[ "$(seen)" = "$before" ] || fail "seen outside: $(seen), before: $before"
for rank in 0 1; do
    other=$(sed -n "s/^rank $rank pid //p" log)
    nsenter -t "$other" -n tc qdisc show dev eth0 | grep -q 'tbf .*rate 321Mbit' || fail "rank $rank is not shaped: $(nsenter -t "$other" -n tc qdisc)"
done
nsenter -t $pid -n tc qdisc show dev to-h1 | grep -q 'tbf .*rate 321Mbit' || fail "the way to host 1 is not shaped"
kill -9 $pid; wait $pid 2> /dev/null
for i in $(seq 1 600); do
    left=0; for rank in $(sed -n 's/^rank [01] pid //p' log); do [ -e "/proc/$rank" ] && left=1; done
    [ $left = 0 ] && break; sleep 0.1
done
[ $left = 0 ] || fail "ranks of a killed compare go on"
[ "$(seen)" = "$before" ] || fail "after kill -9: $(seen), before: $before"

# a set-up that fails: its own words, and nothing is left
mkdir bin
printf '#!/bin/sh\necho "tc: sorry, no tbf" >&2\nexit 1\n' > bin/tc
chmod +x bin/tc
PATH=$folder/bin:$PATH expect 2 'hosts of namespaces cannot be made here: tc: sorry, no tbf; --wire-throttle does without them' \
    "$halley" compare run.yaml --strategies ddp --hosts 2 --output_dir no
[ "$(seen)" = "$before" ] || fail "after a failed set-up: $(seen), before: $before"
exit $failed
