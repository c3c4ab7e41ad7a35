#!/bin/bash
# Every option of a run, from the table that the program prints: the ends of its range, the wrong types and every other name,
# as flag and in YAML. Then what can be wrong in a file and on a command line as such.
set -u
halley=$1
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1
failed=0
fail() { echo "FAILED: $*"; failed=1; }
run() { "$halley" train --print_config "$@" 2>&1; }
refused() { # TEXT WORD...: exit status 2 and TEXT in what it says
    local text=$1 said; shift
    said=$(run "$@"); local got=$?
    [ $got = 2 ] && [[ $said == "halley train: $text"* ]] || fail "status $got, not 2 with '$text': $*: $said"
}
# prints FILE WORD...: the configuration holds all lines of FILE; by `plan`, since `train` prints what a later start would
# repeat, without --resume and --overwrite_output_dir
prints() {
    local file=$1; shift
    "$halley" plan --memory --print_config "$@" > printed 2>&1 || fail "$* are refused: $(cat printed)"
    # a strategy's own options are printed below its name
    awk '/^[a-z0-9_]+:$/ { name = $1; sub(":", ".", name); next } /^  / { sub("^  ", name) } { print }' printed > flat
    grep -vxFf flat "$file" && fail "the lines above are not in the configuration that $* gives"
}

# name;default;allowed;other names
"$halley" help options-markdown | awk -F' *[|] *' -v OFS=';' '$2 ~ /^`/ { gsub(/`/, "", $2); print $2, $3, $4, $5 }' > rows
[ "$(wc -l < rows)" -gt 60 ] || fail "only $(wc -l < rows) options in the table"
: > low; : > high; : > flags
while IFS=';' read -r name default allowed others; do
    case $allowed in
    "true or false")
        refused "--$name: 'maybe' is neither true nor false" "--$name=maybe"
        low=false high=true ;;
    "one of: "*)
        words=${allowed#one of: }
        refused "--$name: 'xyzzy' is not one of: $words" "--$name=xyzzy"
        refused "--$name: needs a value, one of: $words" "--$name"
        low=${words%% *} high=${words##* } ;;
    "from "* | "at least "*)
        said=$(run "--$name=x"); got=$?
        [ $got = 2 ] || fail "--$name=x ends with $got"
        case $said in
        *": 'x' is not a whole number"*) whole=1 below=1 above=9223372036854775807 ;;
        *": 'x' is not a number"*) whole=0 below=1e-40 above=1e300 ;;
        *) fail "--$name=x: $said" ;;
        esac
        [ $whole = 1 ] && refused "--$name: 1.5 is not a whole number" "--$name=1.5"
        refused "--$name: needs a value, $allowed" "--$name"
        read -r a b c d _ <<< "$allowed" # from LOW to HIGH, at least LOW
        if [ "$a" = from ]; then
            low=$b high=$d
            if [ $whole = 1 ]; then above=$((high + 1)); else above=$(awk -v x="$high" 'BEGIN { printf "%.9g", x * 1.0001 }'); fi
            refused "--$name: $above is out of range; allowed is $allowed" "--$name=$above"
        else
            low=$c
            high=$(run "--$name=$above" | sed -n 's/.* is out of range; allowed is at most \([^ ]*\).*/\1/p')
            [ -n "$high" ] || fail "--$name=$above: $(run "--$name=$above")"
            [ $whole = 1 ] && high=$(awk -v x="$high" 'BEGIN { printf "%.0f", x }')
        fi
        below=$(awk -v x="$low" -v d=$below 'BEGIN { printf "%.9g", (d < 1 && x > 0 ? x * 0.99 : x - d) }')
        refused "--$name: $below is out of range; allowed is $allowed" "--$name=$below" ;;
    "")
        refused "--$name: the text is not valid UTF-8 at byte 2" "--$name=a"$'\xff'
        refused "--$name: needs a value" "--$name"
        low='"a b"' high='"ü: #x"'
        [[ $name == *data ]] && low="[$low]" high="[$high]" ;;
    *) fail "$name: what is '$allowed'?" ;;
    esac
    echo "$name: $low" >> low
    echo "$name: $high" >> high
    # the n-th other name goes into the n-th file, with - and _ in turn
    n=0
    for other in $others; do
        n=$((n + 1))
        [ $((n % 2)) = 1 ] && other=${other//_/-}
        echo "$other: $low" >> "other$n"
        echo "$name: $low" >> "wanted$n"
        [[ $low == *'"'* ]] || { echo "--$other=$low" >> "flags$n"; echo "$name: $low" >> "flagged$n"; }
    done
done < rows
grep -v '^print_config' low > low.yaml; prints low.yaml low.yaml
grep -v '^print_config' high > high.yaml; prints high.yaml high.yaml
[ -s other1 ] && [ -s other5 ] || fail "hardly any other names"
for file in other*; do
    n=${file#other}
    prints "wanted$n" "other$n"
    # shellcheck disable=SC2046
    [ -s "flags$n" ] && prints "flagged$n" $(cat "flags$n")
done

# ---- what can be wrong in a file ----
yaml() { # TEXT CONTENT: refused with TEXT behind the file's name
    printf -- "$2" > run.yaml
    refused "run.yaml:$1" run.yaml
}
yaml "2: unknown option 'learnin_rate'; did you mean 'learning_rate'?" 'max_steps: 3\nlearnin_rate: 3\n'
yaml "1: unknown option 'xyzzyxyzzy'; --help lists them all" 'xyzzyxyzzy: 3\n'
yaml "2: learning_rate: 'abc' is not a number" 'max_steps: 3\nlr: abc\n'
yaml "1: max_steps: 1e3 is not written as a whole number; write 1000" 'max_steps: 1e3\n'
yaml "1: max_steps: '1_000' is not a whole number; write it without '_' and ','" 'max_steps: 1_000\n'
yaml "2: 'max-steps' is given twice: line 1 has it already" 'max_steps: 3\nmax-steps: 4\n'
yaml "2: 'train_iters' is another name for 'max_steps': line 1 has it already" 'max_steps: 3\ntrain_iters: 4\n'
yaml "1: max_steps: takes one value, and 2 are given" 'max_steps: [3, 4]\n'
yaml "1: model: takes a value, not a mapping" 'model:\n  hidden_size: 3\n'
yaml "1: max_steps: has no value; remove the line to use the default" 'max_steps:\n'
yaml "1: anchors (&x) are not understood" 'max_steps: &x 3\n'
yaml "2: aliases (*x) are not understood" 'output_dir: a\nmax_steps: *x\n'
yaml "1: tags (tag:yaml.org,2002:int) are not understood" 'max_steps: !!int 3\n'
yaml "2: a second document begins here" 'max_steps: 3\n---\nmax_steps: 4\n'
yaml "1: lines of the form 'key: value' were expected" '- 3\n'
yaml "1: output_dir: the value holds a NUL byte" 'output_dir: "a\\0b"\n'
yaml "2:10: not YAML: " 'max_steps: 3\nlr: [1, ]]\n'
yaml " not YAML: " 'max_steps: \xff\n'
printf 'max_steps: ~\nlr: null\n' > null.yaml
printf 'max_steps: -1\nlearning_rate: 0.001\n' > wanted
prints wanted null.yaml
: > empty.yaml; prints wanted empty.yaml
refused "missing.yaml: cannot be opened: No such file or directory" missing.yaml

# ---- and on a command line ----
refused "-x: unknown option; options begin with two dashes" -x
refused "--learnin-rate: unknown option; did you mean '--learning-rate'?" --learnin-rate 3
refused "--no-learning-rate: only a switch can be turned off so" --no-learning-rate
refused "--block_size: '5GiB' is not a whole number" --block_size 5GiB
printf 'bf16: false\nmax_steps: 5\nlearning_rate: 0.25\n' > wanted
printf 'bf16: true\nmax_steps: 4\nlr: 0.25\n' > run.yaml
prints wanted run.yaml --max-steps 3 --no-bf16 --max_steps=5
prints wanted --max_steps 5 run.yaml --bf16 false # a flag wins over the file, wherever it stands

# ---- the other commands read theirs in the same way ----
command_refused() { # COMMAND TEXT WORD...
    local command=$1 text=$2 said; shift 2
    said=$("$halley" "$command" "$@" 2>&1); local got=$?
    [ $got = 2 ] && [[ $said == *"$text"* ]] || fail "status $got, not 2 with '$text': $command $*: $said"
}
for command in train generate eval plan bench data doctor; do
    case $command in generate | eval) first=. ;; plan) first=--memory ;; *) first= ;; esac
    command_refused $command "halley $command: --thread: unknown option; did you mean '--threads'?" $first --thread 1
    command_refused $command "halley $command: --threads: 'x' is not a whole number" $first --threads x
    command_refused $command "halley $command: --threads: -1 is out of range; allowed is from 0 to" $first --threads -1
    command_refused $command "halley $command: --threads: 9999 is out of range; allowed is from 0 to" $first --threads 9999
    command_refused $command "halley $command: --threads: needs a value" $first --threads
    "$halley" $command --help > out 2>&1 || fail "$command --help ends with $?"
    grep -q -- '--threads N' out || fail "$command --help lists no options: $(cat out)"
done
for end in "temperature 0 100" "top_p 0 1" "top_k 0 1000000000" "max_new_tokens 1 1000000000" "seed 0 9000000000000000000"; do
    read -r name low high <<< "$end"
    command_refused generate "--$name: $((low - 1)) is out of range" . --$name $((low - 1))
    command_refused generate "--$name: $((high + high / 50 + 1)) is out of range" . --$name $((high + high / 50 + 1))
done
command_refused data "--shard_tokens: 0 is out of range; allowed is at least 1 tokens" --shard_tokens 0
command_refused data "--train-tokenizer: 1000001 is out of range; allowed is from 0 to 1000000 tokens" --train-tokenizer 1000001
command_refused data "'docs' is not one of: auto document lines jsonl" --text_format docs
command_refused bench "--rounds: 102 is out of range; allowed is from 1 to 101" --rounds 102
command_refused bench "'f16' is not one of: both f32 bf16; did you mean 'bf16'?" --numbers f16

[ $failed = 0 ] && echo ok
exit $failed
