#!/bin/bash
# halley bench-net: every wire, a matrix and a file of numbers, and how it ends when a rank does not answer.
set -u
halley=$1
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1
failed=0
fail() { echo "FAILED: $*"; failed=1; }
# expect STATUS 'TEXT' command...: exit status, and TEXT somewhere in what it says
expect() {
    local status=$1 text=$2; shift 2
    said=$("$@" 2>&1); local got=$?
    [ "$got" = "$status" ] || fail "status $got instead of $status: $* said: $said"
    [[ $said == *"$text"* ]] || fail "no '$text' in what $* said: $said"
}
number='[0-9.e+]*'
# check FILE WIRE RANKS: each direction of each pair, with a round trip and at least one size
check() {
    local file=$1 wire=$2 n=$3 from to
    grep -q "\"wire\": \"$wire\"" "$file" || fail "$wire: no wire in $(cat "$file")"
    for ((from = 0; from < n; from++)); do
        grep -q "\"rank\": $from, \"host\": \"[^\"]*\", \"pid\": [1-9]" "$file" || fail "$wire: no rank $from in $(cat "$file")"
        for ((to = 0; to < n; to++)); do
            [ $from = $to ] && continue
            grep -q "\"from\": $from, \"to\": $to, \"round_trip_ns\": [1-9]$number, \"transfers\": \[{\"bytes\": 4096, \"bytes_per_s\": [1-9]$number}" "$file" ||
                fail "$wire: no link from $from to $to in $(cat "$file")"
        done
    done
    [ "$(grep -c '"from"' "$file")" = $((n * (n - 1))) ] || fail "$wire: links: $(cat "$file")"
}
# a matrix has a row for each rank, with nothing on the diagonal
matrix() { # WHAT, PREFIX
    grep -qE "^${2}round trip, us$" <<< "$said" && grep -qE "^${2}MB/s one way, 4.00 KiB at a time$" <<< "$said" || fail "$1: no titles: $said"
    grep -qE "^$2 +0 +- +[0-9.]+" <<< "$said" && grep -qE "^$2 +1 +[0-9.]+ +-" <<< "$said" || fail "$1: no rows: $said"
}

for wire in threads pool wan; do
    expect 0 "3 ranks over $wire" "$halley" launch -n 3 --wire $wire --timeout 60 bench-net --seconds 0.02 --json $wire.json
    prefix='\[rank 0\] '; [ $wire = threads ] && prefix=
    matrix $wire "$prefix"
    check $wire.json $wire 3
done
[ ! -e logs ] && [ ! -e run ] || fail "a folder nobody asked for: $(ls)"
expect 0 "round trip" "$halley" launch -n 2 --log_dir logs bench-net --seconds 0.02
grep -q "^2 ranks over pool" logs/rank-0.log || fail "--log_dir: $(ls logs)"
expect 0 "over count(delay(pool))" "$halley" launch -n 2 bench-net --seconds 0.02 --wire_wrappers count,delay=1ms --json slow.json
awk -F '"round_trip_ns": ' '/round_trip/ { split($2, a, ","); if (a[1] < 2000000) exit 1 }' slow.json || fail "a delay of 1 ms each way is not seen: $(cat slow.json)"
for mpi in openmpi mpich; do
    command -v mpirun.$mpi > /dev/null && [ -e "$(dirname "$halley")/modules/mpi-$mpi.so" ] || { echo "SKIP: no mpirun.$mpi here, or no module for it"; continue; }
    HALLEY_MPI=$mpi ASAN_OPTIONS=detect_leaks=0 expect 0 "2 ranks over mpi" "$halley" launch -n 2 --wire mpi bench-net --seconds 0.02 --json $mpi.json
    check $mpi.json mpi 2
done

# by hand, with torchrun's variables
export WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 HALLEY_TOKEN=0123456789abcdef
for try in 1 2 3; do # another program may have the port
    export MASTER_PORT=$((20000 + RANDOM % 10000))
    RANK=1 timeout 100 "$halley" bench-net --seconds 0.02 --timeout 60 > log1 2>&1 & other=$!
    RANK=0 timeout 100 "$halley" bench-net --seconds 0.02 --timeout 60 --json hand.json > log0 2>&1; status=$?
    [ $status = 0 ] || kill $other 2> /dev/null
    wait $other; [ $? = 0 ] && [ $status = 0 ] && break
    [ $try = 3 ] && fail "by hand: status $status: $(cat log0 log1)"
done
check hand.json wan 2
unset WORLD_SIZE MASTER_ADDR MASTER_PORT HALLEY_TOKEN

# what is wrong is said
expect 2 "one rank has no links" "$halley" bench-net
expect 2 "did you mean '--seconds'" "$halley" launch -n 2 bench-net --second 1
expect 2 "'words' is one word too many" "$halley" launch -n 2 bench-net words
expect 2 "max_restarts: bench-net does not start again" "$halley" launch -n 2 --max_restarts 1 bench-net
expect 1 "missing/x.json: cannot be written: No such file" "$halley" launch -n 2 bench-net --seconds 0.02 --json missing/x.json
expect 0 "bench-net" "$halley" launch -n 2 bench-net --help

# a rank that is killed, or hangs: the others name it
for wire in pool wan; do
    HALLEY_FAULT=kill:1:data:3 expect 137 "first failure: rank 1 " "$halley" launch -n 3 --wire $wire --timeout 60 bench-net --seconds 0.02
    grep -qE '^\[rank 0\] halley bench-net: .*rank 1 \(host .*\) is gone' <<< "$said" || fail "$wire: killed: $said"
done
HALLEY_FAULT=hang:2:data:4 expect 137 "first failure: rank 2 " "$halley" launch -n 3 --timeout 4 bench-net --seconds 0.02
grep -qE '^\[rank 1\] halley bench-net: .*waited 4 s for rank 2 ' <<< "$said" || fail "hang: $said"
exit $failed
