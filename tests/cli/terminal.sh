#!/bin/bash
# What a terminal shows and what a pipe gets: one line that is rewritten and never wider than the window, colours unless
# NO_COLOR is set, plain lines elsewhere.
set -u
halley=$1
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1
failed=0
fail() { echo "FAILED: $*"; failed=1; }
for i in $(seq 1 300); do echo "the cat number $((i * 37 % 101)) saw the dog number $((i * 53 % 89))"; done > story.txt
command="train --data story.txt --model llama --num_hidden_layers 1 --hidden_size 32 --num_attention_heads 2 --block_size 16
    --per_device_train_batch_size 4 --threads 1 --max_steps 20 --logging_steps 5 --eval_steps 10 --overwrite_output_dir --output_dir run"
escape=$'\033' return=$'\r'

# ---- piped ----
# shellcheck disable=SC2086
TERM=xterm "$halley" $command 2>&1 | cat > piped
grep -q "[$escape$return]" piped && fail "a pipe gets signs for terminals: $(cat -v piped)"
[ "$(grep -c '^step ' piped)" = 5 ] || fail "not a line for each logged step: $(cat piped)"
grep -Eq '^step 20/20  loss [0-9.]+  eval [0-9.]+  lr [0-9.e-]+  norm [0-9.]+  tok/s [0-9.kM]+  peak [0-9]+%  ETA [0-9:]+$' piped ||
    fail "the line of a pipe: $(tail -n 1 piped)"
grep -q '^step  5/20  loss [0-9.]*  lr' piped || fail "a line without an evaluation: $(cat piped)"

# ---- on a terminal ----
if ! script -qec 'test -t 2' /dev/null < /dev/null > /dev/null 2>&1; then
    echo "SKIP: no pseudo-terminal by script(1) here"
    [ $failed = 0 ] && exit 77
    exit 1
fi
# on_terminal COLUMNS VARIABLE=VALUE...: the same run; what the terminal got is in the file `shown`
on_terminal() {
    local columns=$1; shift
    # shellcheck disable=SC2086
    env -u NO_COLOR -u LC_ALL -u LC_CTYPE LANG=C TERM=xterm COLUMNS="$columns" "$@" \
        script -qec "$(echo "$halley" $command)" /dev/null < /dev/null > shown
    grep -q '20/20' shown || fail "$*: no last step: $(cat -v shown)"
}
plain() { sed "s/$escape\[[0-9;]*[mK]//g" shown | tr "$return" '\n'; }
on_terminal 120
grep -q "$return" shown && grep -qF "$escape[K" shown || fail "the line is not rewritten: $(cat -v shown)"
grep -qF "$escape[1m20/20$escape[0m" shown || fail "no colours: $(cat -v shown)"
plain | grep -Eq '^20/20 =+  loss [0-9.]+  eval [0-9.]+  lr [0-9.e-]+  norm [0-9.]+  tok/s [0-9.kM]+  peak [0-9]+%  ETA [0-9:]+$' ||
    fail "the line of a terminal: $(plain)"
on_terminal 120 NO_COLOR=1
grep -q "$escape\[[0-9;]*m" shown && fail "colours in spite of NO_COLOR: $(cat -v shown)"
grep -qF "$escape[K" shown || fail "NO_COLOR changes more than colours: $(cat -v shown)"
on_terminal 120 NO_COLOR=
grep -qF "$escape[1m20/20" shown || fail "an empty NO_COLOR is none: $(cat -v shown)"
on_terminal 120 LANG=C.UTF-8
grep -q '20/20.*━' shown || fail "no UTF-8 in a UTF-8 locale: $(cat -v shown)"
on_terminal 40
plain | grep -E '^ *[0-9]+/20' | awk 'length > 39 { exit 1 }' || fail "wider than the window: $(plain)"
plain | grep -q '^20/20.*  loss ' || fail "a narrow window shows no loss: $(plain)"
on_terminal 120 TERM=dumb
grep -q "$escape" shown && fail "a dumb terminal gets escapes: $(cat -v shown)"
grep -q '^step 20/20  loss' shown || fail "a dumb terminal gets no lines: $(cat -v shown)"

[ $failed = 0 ] && echo ok
exit $failed
