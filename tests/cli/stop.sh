#!/bin/bash
# How a run ends before its last step, and two runs in one folder: signals, a second signal, a hangup, max_minutes, the lock.
set -u
halley=$1
folder=$(mktemp -d) || exit 1
trap 'kill -KILL $(jobs -p) 2>/dev/null; rm -rf "$folder"' EXIT
cd "$folder" || exit 1
failed=0
fail() { echo "FAILED: $*"; failed=1; }
for i in $(seq 1 300); do echo "the cat number $((i * 37 % 101)) saw the dog number $((i * 53 % 89))"; done > story.txt
small="--data story.txt --model llama --num_hidden_layers 1 --hidden_size 32 --num_attention_heads 2 --block_size 16
    --per_device_train_batch_size 4 --threads 1"
endless="$small --max_steps 1000000"

# start NAME WORDS...: a run in the background with the signals of a person's shell; $pid is halley's own
start() {
    local name=$1; shift
    : > "$name.log" # an older one must not be taken for this run's
    env --default-signal=INT,HUP "$halley" train --output_dir "$name" "$@" > "$name.log" 2>&1 &
    pid=$!
}
await() { # COMMAND...: until it succeeds, two minutes at most
    for _ in $(seq 1 2400); do "$@" 2>/dev/null && return; sleep 0.05; done
    fail "waited in vain for: $*"
}
delivered() { ! grep -qE '^S(ig|hd)Pnd:.*[1-9a-f]' "/proc/$pid/status"; } # no signal waits for $pid
ended() { # STATUS: of $pid
    wait "$pid"; local got=$?
    [ $got = "$1" ] || fail "status $got, not $1: $(tail -n 3 ./*.log)"
}

# the step is finished and saved, and the run says so
for signal in INT:130 TERM:143 HUP:129; do
    name=${signal%:*}
    start "$name" $endless
    await [ -s "$name/metrics.jsonl" ]
    kill -s "$name" $pid
    ended "${signal#*:}"
    step=$(sed 's/checkpoint-//' "$name/latest")
    tail -n 1 "$name.log" | grep -q "^stopped after step $step of 1000000 (SIG$name) and saved in $name; --resume goes on$" ||
        fail "SIG$name, step $step: $(tail -n 2 "$name.log")"
    "$halley" train --output_dir "$name" $small --max_steps $((step + 2)) --resume > log 2>&1 || fail "after SIG$name: $(cat log)"
    grep -q "^going on from $name/checkpoint-$step, step $step$" log || fail "after SIG$name: $(cat log)"
done

# nohup: a hangup that was ignored from the start stays ignored
(trap '' HUP; exec "$halley" train --output_dir nohup $endless > nohup.log 2>&1) &
pid=$!
await [ -s nohup/metrics.jsonl ]
kill -HUP $pid; before=$(wc -l < nohup/metrics.jsonl)
more() { [ "$(wc -l < nohup/metrics.jsonl)" -gt "$before" ]; }
await more
kill -TERM $pid; ended 143

# a second signal ends it at once: this step would take days
long="$small --max_steps 2 --gradient_accumulation_steps 10000000"
for signals in "INT INT 130" "TERM TERM 143" "TERM INT 130"; do
    read -r first second status <<< "$signals"
    rm -rf long; start long $long
    await grep -q 'GFLOP/s here' long.log
    kill -s "$first" $pid
    await delivered # two of a kind that wait together are one
    sleep 0.2
    kill -0 $pid || fail "SIG$first did not wait for the step"
    kill -s "$second" $pid
    ended "$status"
    ls -d long/checkpoint-* 2>/dev/null && fail "SIG$first and SIG$second: half a step was saved"
done
# what is left is no obstacle
"$halley" train --output_dir long $small --max_steps 2 --resume > log 2>&1 || fail "after a second signal: $(cat log)"
grep -q '^no complete checkpoint to resume from: starting at step 0$' log || fail "after a second signal: $(cat log)"

# a limit of time is a good end
"$halley" train --output_dir minutes $endless --max_minutes 0.003 > log 2>&1 || fail "max_minutes: $?: $(cat log)"
tail -n 1 log | grep -q '^stopped after step [0-9]* of 1000000 (max_minutes are over) and saved in minutes; --resume goes on$' ||
    fail "max_minutes: $(tail -n 2 log)"
[ -s minutes/latest ] || fail "max_minutes saved nothing"

# while data is read there is nothing to save: the first signal ends it, and no folder is made
cat $(yes story.txt | head -n 5000) > large.txt # 60 MB
"$halley" data --train-tokenizer 300 --data story.txt --out tok.json > log 2>&1 || fail "$(cat log)"
start reading $small --data large.txt --tokenizer tok.json --max_steps 1
await grep -q '^data: reading 5[0-9.]* MiB of text' reading.log
kill -TERM $pid; ended 143
[ -e reading ] && fail "a run that had not begun left its folder"
rm large.txt

# commands that only read end too
start reader $small --max_steps 2; ended 0
env --default-signal=INT "$halley" generate reader --prompt the --max_new_tokens 1000000000 --ignore_eos --threads 1 > text 2> log &
pid=$!
await [ -s text ]
kill -INT $pid; ended 130

# ---- one folder, one run ----
start busy $endless --save_steps 50
await [ -s busy/latest ]
for how in --resume --overwrite_output_dir ""; do
    said=$("$halley" train --output_dir busy/ $small --max_steps 5 $how 2>&1); status=$?
    [ $status = 2 ] && [[ $said == "halley train: output_dir: another training writes to busy/, process $pid; wait for it, stop it, or name another folder" ]] ||
        fail "beside another run, '$how': status $status: $said"
done
[ -d busy/checkpoint-50 ] && kill -0 $pid || fail "the refused runs did harm: $(ls busy)"
"$halley" generate busy --prompt the --max_new_tokens 3 > /dev/null 2> log || fail "reading beside training: $(cat log)"
kill -KILL $pid; wait $pid 2>/dev/null
"$halley" train --output_dir busy $small --max_steps 60 --resume > log 2>&1 || fail "after a kill: $(cat log)"
grep -q '^going on from busy/checkpoint-' log || grep -q 'all steps are done' log || fail "after a kill: $(cat log)"
ls -A busy INT minutes | grep lock && fail "a lock was left behind"
# two at the same moment in a new folder: one trains, the other is refused
"$halley" train --output_dir new $small --max_steps 300 > a.log 2>&1 & first=$!
"$halley" train --output_dir new $small --max_steps 300 > b.log 2>&1 & second=$!
wait $first; a=$?; wait $second; b=$?
[ "$a$b" = 02 ] || [ "$a$b" = 20 ] || fail "two at once: $a and $b: $(tail -n 1 a.log b.log)"
grep -q 'another training writes to new\|holds a run already' a.log b.log || fail "two at once: $(tail -n 1 a.log b.log)"
[ "$(grep -c '"step": 300,' new/metrics.jsonl)" = 1 ] || fail "two at once: metrics are mixed"

[ $failed = 0 ] && echo ok
exit $failed
