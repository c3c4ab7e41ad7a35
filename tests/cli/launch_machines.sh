#!/bin/bash
# Ranks on several machines: torchrun's variables and flags, a launcher on each host through ssh, network namespaces.
# ssh is a script here that runs the command on this machine, or in the namespace that the host's name means.
set -u
halley=$1
"$halley" help wires | grep -q '^  wan ' || { echo "SKIP: this build has no wire wan (libzmq)"; exit 77; }
folder=$(mktemp -d) || exit 1
cd "$folder" || exit 1
failed=0
namespaces=
cleanup() { for ns in $namespaces; do ip netns del "$ns" 2> /dev/null; done; rm -rf "$folder"; }
trap cleanup EXIT
fail() { echo "FAILED: $*"; failed=1; }
expect() {
    local status=$1 text=$2; shift 2
    local said; said=$("$@" 2>&1); local got=$?
    [ "$got" = "$status" ] || fail "status $got instead of $status: $* said: $said"
    [[ $said == *"$text"* ]] || fail "no '$text' in what $* said: $said"
}
said() { grep -qE "$2" log || fail "$1: no '$2' in $(cat log)"; }
same() { cmp three/checkpoint-6/model.safetensors "$1/checkpoint-6/model.safetensors" || fail "$1 has other bits"; }
for i in $(seq 1 300); do echo "the cat number $((i * 37 % 101)) saw the dog number $((i * 53 % 89))"; done > story.txt
small="--data $folder/story.txt --num_hidden_layers 1 --hidden_size 32 --num_attention_heads 2 --block_size 32 --per_device_train_batch_size 2 --threads 1 --timeout 20"
"$halley" launch -n 3 --wire threads train $small --max_steps 6 --output_dir three > log 2>&1 || fail "three threads: $(cat log)"
# six ports in a row that nobody listens on; a rank that cannot have one ends, and the others after 20 s
free() { ! (exec 3<> "/dev/tcp/127.0.0.1/$1") 2> /dev/null; }
port=$((20000 + $$ % 12000))
for i in 0 1 2 3 4 5; do free $((port + i)) || port=$((20000 + RANDOM % 12000)); done

# local children over TCP
expect 0 'step 6/6' "$halley" launch -n 3 --wire wan train $small --max_steps 6 --output_dir local
same local

# a pool and TCP at once
expect 0 'second path of pool+wan' "$halley" launch -n 3 --wire pool+wan train $small --max_steps 6 --output_dir both
same both
expect 2 'did you mean pool+wan' "$halley" launch -n 3 --wire pool+wna train $small --output_dir none
expect 2 'is two wires' "$halley" launch -n 2 --wire pool+wan bench-net
expect 2 'POOL+HOST:PORT' env HALLEY_WIRE=pool+wan HALLEY_ADDRESS=pool RANK=0 WORLD_SIZE=2 "$halley" train $small --output_dir none
HALLEY_FAULT=kill:1:forward:3 "$halley" launch -n 3 --wire pool+wan train $small --max_steps 6 --output_dir killed-both > log 2>&1
[ $? = 137 ] || fail "a rank killed over pool+wan: $(cat log)"
said "killed over pool+wan" '^\[rank [02]\] halley train: .*rank 1 \(host .*; last seen: forward of step 3\)'

# one command for each rank, torchrun's variables, in any order
export HALLEY_TOKEN=0123456789abcdef0123456789abcdef
for rank in 2 1 0; do
    RANK=$rank WORLD_SIZE=3 LOCAL_RANK=$rank LOCAL_WORLD_SIZE=3 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port \
        "$halley" train $small --max_steps 6 --output_dir variables > log$rank 2>&1 &
    pids[rank]=$!
done
for rank in 0 1 2; do wait "${pids[$rank]}" || fail "rank $rank by variables: $(cat log$rank)"; done
same variables

# ranks that do not run the same thing: the key is named, on all
for rank in 0 1; do
    RANK=$rank WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$((port + 1)) \
        "$halley" train $small --max_steps 6 --learning_rate 1e-$((rank + 3)) --output_dir differ > log$rank 2>&1 &
    pids[rank]=$!
done
for rank in 0 1; do
    wait "${pids[$rank]}"; [ $? = 2 ] || fail "another learning_rate is accepted: $(cat log$rank)"
    grep -q 'learning_rate is 0.001 on rank 0 and 0.0001 on rank 1' log$rank || fail "no key: $(cat log$rank)"
done
# other data
sed 's/cat/dog/' story.txt > other.txt
for rank in 0 1; do
    [ $rank = 0 ] && data=story.txt || data=other.txt
    RANK=$rank WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$((port + 2)) \
        "$halley" train $small --data $data --max_steps 6 --output_dir differ > log$rank 2>&1 &
    pids[rank]=$!
done
for rank in 0 1; do
    wait "${pids[$rank]}"; [ $? = 2 ] && grep -q 'the data is ' log$rank || fail "other data: $(cat log$rank)"
done

# weights that are called the same and are others, and a checkpoint to go on from: each machine has its own disk
mkdir disk0 disk1
for rank in 0 1; do
    (cd disk$rank && "$halley" train $small --max_steps 1 --learning_rate 0.0$((rank + 1)) --warmup_steps 0 --output_dir run) > log 2>&1 || fail "a model: $(cat log)"
done
for words in "--model run/checkpoint-1" "--resume --output_dir run"; do
    data="--data $folder/story.txt --block_size 32 --per_device_train_batch_size 2 --threads 1 --timeout 20"
    [[ $words == *resume* ]] && data=$small
    for rank in 0 1; do
        (cd disk$rank && RANK=$rank WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$((port + 2)) \
            "$halley" train $data --max_steps 3 $words > ../log$rank 2>&1) &
        pids[rank]=$!
    done
    for rank in 0 1; do
        wait "${pids[$rank]}"
        [ $? = 2 ] && grep -qE 'is not the same on all ranks: the content of its weights is [0-9a-f]{16} on rank 0 and [0-9a-f]{16} on rank 1' log$rank ||
            fail "other weights: $words: $(cat log$rank)"
    done
done

# a launcher on each machine
"$halley" launch --nnodes 2 --node-rank 1 --nproc-per-node 2 --rdzv-endpoint 127.0.0.1:$((port + 3)) --max-restarts 0 \
    train $small --max_steps 2 --output_dir nodes > log1 2>&1 &
expect 0 '[rank 0] step 2/2' "$halley" launch --nnodes 2 --node-rank 0 --nproc-per-node 2 --rdzv-endpoint 127.0.0.1:$((port + 3)) \
    train $small --max_steps 2 --output_dir nodes
wait $! || fail "the second machine: $(cat log1)"
grep -qE '^rank 3 pid' log1 || fail "ranks of the second machine: $(cat log1)"
# a disk of its own on each machine: the checkpoint that only the first has is sent to the other, once for all its ranks
go_on() {
    local options="--nnodes 2 --nproc-per-node 2 --rdzv-endpoint 127.0.0.1:$((port + 3)) --max-restarts 0"
    (cd disk1 && exec "$halley" launch --node-rank 1 $options train $small --output_dir own "$@") > log1 2>&1 &
    (cd disk0 && exec "$halley" launch --node-rank 0 $options train $small --output_dir own "$@") > log 2>&1 || fail "the first disk: $(cat log)"
    wait $! || fail "the second disk: $(cat log1)"
}
go_on --max_steps 2
[ ! -e disk1/own/checkpoint-2 ] || fail "the second machine writes checkpoints"
go_on --max_steps 4 --resume --strategy zero3
said "a checkpoint on one disk" 'sent to 1 machine that lacked it'
cmp disk0/own/checkpoint-2/model.safetensors disk1/own/checkpoint-2/model.safetensors || fail "the copy differs"
"$halley" launch -n 4 --wire threads train $small --max_steps 2 --output_dir one > log 2>&1 &&
    "$halley" launch -n 4 --wire threads train $small --max_steps 4 --output_dir one --resume > log 2>&1 || fail "four threads: $(cat log)"
cmp one/checkpoint-4/model.safetensors disk0/own/checkpoint-4/model.safetensors || fail "disks of their own: other bits"
# one that does not come is named
expect 4 'rank 1' "$halley" launch --nnodes 2 --node-rank 0 --nproc-per-node 1 --rdzv-endpoint 127.0.0.1:$((port + 4)) --timeout 1 \
    train $small --max_steps 2 --output_dir missing
unset HALLEY_TOKEN
expect 2 'HALLEY_TOKEN: not set' "$halley" launch --nnodes 2 --node-rank 0 -n 1 --rdzv-endpoint 127.0.0.1:$((port + 5)) train $small --output_dir none

# a port that somebody has (a rank 0 that waits): the launcher's rank 0 says so, and the other does not wait for it
HALLEY_TOKEN=another-secret-of-another-run RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$((port + 5)) \
    "$halley" train $small --timeout 100 --output_dir first > log1 2>&1 &
waiting=$!
for i in $(seq 1 300); do free $((port + 5)) || break; sleep 0.1; done
"$halley" launch -n 2 --wire wan --rdzv-endpoint 127.0.0.1:$((port + 5)) --timeout 150 train $small --max_steps 2 --output_dir second > log 2>&1
[ $? = 1 ] || fail "a port that is taken: $(cat log)"
said "a port that is taken" 'first failure: rank 0 .* ended with status 1'
kill -TERM $waiting; wait $waiting 2> /dev/null; [ $? = 143 ] || fail "the one that has the port: $(cat log1)"

# ---- ssh ----
mkdir bin
cat > bin/ssh <<'S'
#!/bin/sh
# ssh -o BatchMode=yes -- HOST COMMAND
[ "$1 $2 $3" = "-o BatchMode=yes --" ] || exit 9
host=$4
shift 4
case $host in
nowhere) echo "ssh: Could not resolve hostname $host" >&2; exit 255 ;;
far*) exec unshare -u -p -f --kill-child --mount-proc sh -c "hostname $host; $*" ;;
10.*) exec ip netns exec "$HALLEY_TEST_NS${host##*.}" sh -c "$*" ;;
*) exec sh -c "$*" ;;
esac
S
chmod +x bin/ssh
export PATH=$folder/bin:$PATH
printf '# two machines\n127.0.0.1 slots=2\n\nlocalhost:1\n' > hosts
rm -rf run; "$halley" launch --hosts hosts train $small --max_steps 6 --output_dir run > log 2>&1 || fail "hosts: $(cat log)"
same run
said hosts '^\[localhost\] rank 2 pid [0-9]+'
said hosts '^\[rank 0\] step 6/6'
# the secret is on no command line
"$halley" launch --hosts hosts train $small --max_steps 1000000 --logging_steps 1000 --output_dir long > log 2>&1 &
launcher=$!
for i in $(seq 1 300); do [ -s long/metrics.jsonl ] && break; sleep 0.1; done
rank=$(sed -n 's/^\[localhost\] rank 2 pid \([0-9]*\)/\1/p' log)
token=$(tr '\0' '\n' < "/proc/$rank/environ" | sed -n 's/^HALLEY_TOKEN=//p')
[ ${#token} = 64 ] || fail "the token is '$token'"
grep -lF "$token" /proc/[0-9]*/cmdline 2> /dev/null && fail "the token is on a command line"
# asked to stop: all save and leave
kill -TERM $launcher; wait $launcher; status=$?
[ $status = 143 ] && [ -s long/latest ] || fail "SIGTERM over ssh: $status: $(cat log)"
[ -e "/proc/$rank" ] && fail "rank 2 is left"
# a rank elsewhere is killed
HALLEY_FAULT=kill:2:forward:3 "$halley" launch --hosts hosts --timeout 5 train $small --max_steps 6 --output_dir killed > log 2>&1
[ $? = 137 ] || fail "a killed rank elsewhere: $(cat log)"
said "killed elsewhere" '^halley launch: first failure: rank 2 \(host .*\) was ended by signal 9 .* in the phase forward of step 3$'
said "killed elsewhere" '^\[127.0.0.1\] halley launch: a rank on another machine failed: '
# the launcher is killed: those elsewhere notice
"$halley" launch --hosts hosts train $small --max_steps 1000000 --logging_steps 1000 --output_dir orphans > log 2>&1 &
launcher=$!
for i in $(seq 1 300); do [ -s orphans/metrics.jsonl ] && break; sleep 0.1; done
kill -9 $launcher; wait $launcher 2> /dev/null
for i in $(seq 1 300); do
    left=0; for pid in $(sed -n 's/^.*rank [0-9] pid \([0-9]*\)$/\1/p' log); do [ -e "/proc/$pid" ] && left=1; done
    [ $left = 0 ] && break; sleep 0.1
done
[ $left = 0 ] && [ -s orphans/latest ] || fail "after a killed launcher: $(cat log)"
# wrong lists
printf 'nowhere\n' > wrong
expect 255 'Could not resolve hostname' "$halley" launch -n 1 --hosts wrong train $small --output_dir none
expect 2 'how many ranks on nowhere' "$halley" launch --hosts wrong train $small --output_dir none
printf -- '-oProxyCommand=x slots=1\n' > wrong
expect 2 'is no host' "$halley" launch --hosts wrong train $small --output_dir none
expect 1 'No such file' "$halley" launch --hosts missing-list train $small --output_dir none
printf '# none\n' > wrong
expect 2 'names 0 ranks' "$halley" launch --hosts wrong train $small --output_dir none

# ---- two machines that share a pool: other names, and processes of one are out of the other's sight ----
if unshare -u -p -f --kill-child --mount-proc true 2> /dev/null; then
    pool=$folder/device0,$folder/device1
    truncate -s 64M device0 device1
    mode=hc; grep -qw clflush /proc/cpuinfo && mode=nc-wb
    expect 0 "$pool" "$halley" pool create $pool --mode $mode
    printf 'far1 slots=1\nfar2 slots=2\n' > hosts
    rm -rf run; timeout 100 "$halley" launch --hosts hosts --pool $pool train $small --max_steps 6 --output_dir run > log 2>&1 || fail "a shared pool: $(cat log)"
    same run
    said "a shared pool" '^\[far2\] rank 2 pid'
    # the same with TCP beside it
    rm -rf run; timeout 100 "$halley" launch --hosts hosts --pool $pool --wire pool+wan --rdzv_endpoint 127.0.0.1:$((port + 3)) \
        train $small --max_steps 6 --output_dir run > log 2>&1 || fail "a shared pool and TCP: $(cat log)"
    same run
    said "a shared pool and TCP" 'second path of pool\+wan'
    # a rank is killed on either machine: it is named, and the pool serves again at once
    for rank in 2 0; do
        HALLEY_FAULT=kill:$rank:forward:3 timeout 100 "$halley" launch --hosts hosts --pool $pool train $small --max_steps 6 --output_dir killed$rank > log 2>&1
        [ $? = 137 ] || fail "a killed rank $rank in a shared pool: $(cat log)"
        host=far2; [ $rank = 0 ] && host=far1
        said "killed in a shared pool" "^halley launch: first failure: rank $rank \(host $host, pid [0-9]+\) was ended by signal 9 .* in the phase forward of step 3\$"
        said "killed in a shared pool" "^\[rank 1\] halley train: .*rank $rank \(host $host, pid [0-9]+; last seen: forward of step 3\)"
    done
    HALLEY_FAULT=kill:1:forward:5 timeout 100 "$halley" launch --hosts hosts --max_restarts 1 --pool $pool train $small --max_steps 6 --save_steps 2 --output_dir again > log 2>&1
    [ $? = 137 ] && [ "$(grep -c '^halley launch: first failure: rank 1 ' log)" = 2 ] || fail "restart in a shared pool: $(cat log)"
    said "restart in a shared pool" "going on from again/checkpoint-4, step 4"
    # one command on each machine
    rm -rf run
    unshare -u -p -f --kill-child --mount-proc sh -c "hostname far2; exec '$halley' launch --nnodes 2 --node-rank 1 -n 1 --pool $pool train $small --max_steps 2 --output_dir run" > log1 2>&1 &
    expect 0 '[rank 0] step 2/2' "$halley" launch --nnodes 2 --node-rank 0 -n 1 --pool $pool train $small --max_steps 2 --output_dir run
    wait $! || fail "the second machine at a shared pool: $(cat log1)"
    expect 0 "job         none" "$halley" pool info $pool
    expect 0 "" "$halley" pool free $pool
else
    echo "SKIP: no namespaces for names and processes here, so no two machines at one pool"
fi

# ---- two network namespaces, joined by a cable ----
export HALLEY_TEST_NS=hl$$-
if ip netns add ${HALLEY_TEST_NS}1 2> /dev/null; then
    namespaces="${HALLEY_TEST_NS}1 ${HALLEY_TEST_NS}2"
    ip netns add ${HALLEY_TEST_NS}2 &&
        ip link add veth1 netns ${HALLEY_TEST_NS}1 type veth peer name veth2 netns ${HALLEY_TEST_NS}2 || fail "no cable"
    for i in 1 2; do
        ip -n $HALLEY_TEST_NS$i addr add 10.99.0.$i/24 dev veth$i && ip -n $HALLEY_TEST_NS$i link set veth$i up && ip -n $HALLEY_TEST_NS$i link set lo up || fail "no address"
    done
    printf '10.99.0.1 slots=1\n10.99.0.2 slots=2\n' > hosts
    rm -rf run; timeout 100 "$halley" launch --hosts hosts train $small --max_steps 6 --output_dir run > log 2>&1 || fail "namespaces: $(cat log)"
    same run
    said namespaces '^\[10.99.0.2\] rank 2 pid'
    expect 2 "no network interface 'veth9'" timeout 100 "$halley" launch --hosts hosts --interface veth9 train $small --output_dir none
else
    echo "SKIP: no network namespaces here"
fi
exit $failed
