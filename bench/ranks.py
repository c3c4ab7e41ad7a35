"""Benchmarks of several ranks: collectives, strong scaling, a step over shaped links, an emulated rack.
bench/README.md says what they mean."""
import json
import math
import os
import re
import resource
import secrets
import shutil
import statistics
import subprocess
import sys
import time

import hosts
from common import BUILD, HALLEY, OUT, PAIRS, PYTHON, Failed, Worker, in_turn, install, say, write

# Runs of these take tens of seconds each.
ROUNDS = PAIRS if "BENCH_PAIRS" in os.environ else 5

# ---- who else computed meanwhile ----


class Neighbours:
    """How many processors worked for others between now and `busy`: all that were busy, but for us and our children that ended."""

    def __init__(self):
        self.start, self.load = self.now(), os.getloadavg()[0]

    @staticmethod
    def now():
        with open("/proc/stat") as stat:
            ticks = [int(x) for x in stat.readline().split()[1:]]
        ours = sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        return time.monotonic(), sum(ticks[:3] + ticks[5:8]) / os.sysconf("SC_CLK_TCK"), ours

    def busy(self):
        then, now = self.start, self.now()
        return max(0, (now[1] - then[1] - (now[2] - then[2])) / (now[0] - then[0]))

    def tell(self):
        others = self.busy()
        say(f"  load when it began: {self.load:.2f}; others kept {others:.2f} processors busy meanwhile")
        return {"load": self.load, "others_busy": others}


# ---- runs of `halley train` ----

# 20.1 million parameters; a step is 32 rows of 256 tokens, in micro-batches of 8 rows.
LAYERS, WIDTH, HEADS, VOCABULARY, BLOCK, MICRO = 5, 512, 8, 8192, 256, 8
ROWS = int(os.environ.get("BENCH_ROWS", "32"))
STEPS = 5  # of a run; the first is not counted
PARAMETERS = LAYERS * (12 * WIDTH * WIDTH + 13 * WIDTH) + (VOCABULARY + BLOCK + 2) * WIDTH


def text():
    path = os.path.join(OUT, "ranks.txt")
    if not os.path.exists(path):
        os.makedirs(OUT, exist_ok=True)
        with open(path, "w") as file:
            file.write("pack my box with five dozen liquor jugs, quoth the quick brown fox.\n" * 8000)
    return path


def train_words(folder, steps, rows, accumulation, *more):
    return ["train", "--data", text(), "--tokenizer", "byte", "--model", "gpt2", "--num_hidden_layers", str(LAYERS), "--hidden_size",
            str(WIDTH), "--num_attention_heads", str(HEADS), "--vocab_size", str(VOCABULARY), "--block_size", str(BLOCK),
            "--validation_split", "0", "--per_device_train_batch_size", str(rows), "--gradient_accumulation_steps", str(accumulation),
            "--max_steps", str(steps), "--logging_steps", "1", "--tensorboard", "false", "--output_dir", folder,
            "--overwrite_output_dir", *more]


def folder_of(name):
    folder = os.path.join(OUT, "ranks-" + name)
    shutil.rmtree(folder, ignore_errors=True)
    return folder


def steps_of(folder):
    """Seconds of the counted steps of a run, whose folder goes."""
    with open(os.path.join(folder, "metrics.jsonl")) as file:
        rows = [json.loads(line) for line in file]
    shutil.rmtree(folder)
    return [1e-3 * row["step_ms"] for row in rows if row.get("step", 0) > 1 and "step_ms" in row]


def together(commands):
    """Run (words, variables) at the same time; all must succeed. What the first one printed."""
    started = [subprocess.Popen(words, env=dict(os.environ, **variables), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, text=True) for words, variables in commands]
    try:
        printed = [process.communicate()[0] for process in started]
    finally:
        for process in started:
            process.terminate()
        for process in started:
            process.wait()
    for process, words in zip(started, printed):
        if process.returncode:
            raise Failed(f"{' '.join(process.args)} ended with {process.returncode}:\n{words}")
    return printed[0]


# ---- collectives on one machine ----

SIZES = [4096, 65536, 1 << 20, 4 << 20, 16 << 20, 64 << 20, 256 << 20]
# Open MPI's all-reduce: as it chooses itself, and by force: recursive doubling, ring, segmented ring, Rabenseifner.
ALGORITHMS = {"default": None, "recursive doubling": 3, "ring": 4, "segmented ring": 5, "Rabenseifner": 6}


MPI = os.path.join(OUT, "mpi_collectives")


def build_mpi():
    for tool in ("mpicc.openmpi", "mpirun.openmpi"):
        if not shutil.which(tool):
            raise Failed(f"{tool} is missing: apt install libopenmpi-dev openmpi-bin")
    os.makedirs(OUT, exist_ok=True)
    source = os.path.join("bench", "peers", "mpi_collectives.c")
    done = subprocess.run(["mpicc.openmpi", "-O3", "-march=native", source, "-o", MPI], capture_output=True, text=True)
    if done.returncode:
        raise Failed(done.stderr)


def mpi_workers(ranks):
    """One job of the peer for each algorithm; those that wait for a question sleep."""
    build_mpi()
    workers = {}
    for name, number in ALGORITHMS.items():
        forced = [] if number is None else ["--mca", "coll_tuned_use_dynamic_rules", "1", "--mca",
                                            "coll_tuned_allreduce_algorithm", str(number)]
        root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
        workers[name] = Worker(["mpirun.openmpi", *root, "--oversubscribe", "--bind-to", "none", *forced, "-n", str(ranks), MPI])
    return workers


def limit(size, ranks, mine):
    """Seconds below which an all-reduce cannot be: each rank copies its own bytes once, and reads what it lacks of the others'."""
    return max(mine.ask(f"copy {size}"), mine.ask(f"pass {size}") * 2 * (ranks - 1) / ranks)


def collective(kind, size, ranks, mine, flushed, peers, gloo, table):
    question = f"{kind} {size}"
    times = {name: worker.ask(question) for name, worker in peers.items() if kind == "all-reduce" or name == "default"}
    best = min(times, key=times.get)
    mine.ask(question)
    pairs = in_turn(lambda: mine.ask(question), lambda: peers[best].ask(question))
    a, b = (statistics.median(x) for x in zip(*pairs))
    ratio = statistics.median(q / p for p, q in pairs)
    slow = gloo.ask(question) if gloo and kind == "all-reduce" else None
    least = statistics.median(limit(size, ranks, mine) for _ in range(3)) if kind == "all-reduce" else None
    flush = statistics.median(flushed.ask(question) for _ in range(3))
    table.append({"kind": kind, "ranks": ranks, "bytes": size, "seconds": a, "mpi_seconds": b, "mpi_algorithm": best, "ratio": ratio,
                  "gloo_seconds": slow, "limit_seconds": least, "write_back_seconds": flush})
    say(f"  {kind:14} {ranks} ranks {size >> 10:7} KiB  {a * 1e6:9.0f} us; Open MPI ({best}) {b * 1e6:9.0f} us: {ratio:5.2f}x"
        + f"; without coherence {flush * 1e6:9.0f} us"
        + (f"; limit {least / a:4.0%}" if least else "") + (f"; gloo {slow * 1e6:9.0f} us: {slow / a:5.2f}x" if slow else ""))
    return pairs


def collectives():
    """All-reduce, reduce-scatter and all-gather over the pool, beside Open MPI's best and gloo. BENCH_GLOO=0 leaves gloo out."""
    table, logs, sums, about = [], [], [0.0, 0.0], ""
    for ranks in (2, 4):
        peers = mpi_workers(ranks)
        gloo = None
        if os.environ.get("BENCH_GLOO", "1") != "0":
            install("torch", "torch==2.13.0")
            gloo = Worker([PYTHON, "-W", "ignore", os.path.join("bench", "peers", "gloo_collectives.py"), str(ranks)])
        program, one = os.path.join(BUILD, "bench", "bench_collectives"), {"OMP_NUM_THREADS": "1"}
        with Worker([program, str(ranks)], one) as mine, Worker([program, str(ranks), "131072", "write-back"], one) as flushed:
            about = peers["default"].about
            for kind in ("all-reduce", "reduce-scatter", "all-gather"):
                for size in SIZES:
                    pairs = collective(kind, size, ranks, mine, flushed, peers, gloo, table)
                    if kind == "all-reduce" and size >= 1 << 20:
                        logs.append([math.log(q / p) for p, q in pairs])
                        sums[0] += statistics.median(p for p, _ in pairs)
                        sums[1] += statistics.median(q for _, q in pairs)
        for worker in [*peers.values(), *([gloo] if gloo else [])]:
            worker.close()
    # one ratio for each round of pairs: the geometric mean over sizes and ranks
    ratios = [math.exp(statistics.mean(log[i] for log in logs)) for i in range(PAIRS)]
    write("collectives", sums[0], "s for all sizes", f"{about}, its best algorithm for each", sums[1], ratios, 1.8, table=table)


# ---- strong scaling ----

def launched(ranks, steps, rows, accumulation, *more):
    """The median step of ranks over the pool."""
    folder = folder_of("launch")
    words = train_words(folder, steps, rows, accumulation, *more)
    together([([HALLEY, "launch", "-n", str(ranks), "--wire", "pool", *words], {})])
    return statistics.median(steps_of(folder))


def scaled(ranks, threads):
    rows = min(MICRO, ROWS // ranks)
    return launched(ranks, STEPS, rows, ROWS // (rows * ranks), "--strategy", "zero1", "--threads", str(threads))


def scaling():
    """The same model and tokens on two processors: one rank of two threads, two ranks and four ranks of one thread."""
    processors = sorted(os.sched_getaffinity(0))
    if len(processors) < 2:
        raise Failed("two processors are needed")
    os.sched_setaffinity(0, processors[:2])
    neighbours = Neighbours()
    rounds = [(scaled(1, 2), scaled(2, 1), scaled(4, 1)) for _ in range(ROUNDS)]
    os.sched_setaffinity(0, processors)
    one, two, four = (ROWS * BLOCK / statistics.median(column) for column in zip(*rounds))
    noted = neighbours.tell()
    write("scaling", two, "tok/s, 2 ranks x 1 thread", "1 rank x 2 threads", one, [a / b for a, b, _ in rounds], 0.95, **noted)
    write("scaling-4", four, "tok/s, 4 ranks x 1 thread", "1 rank x 2 threads", one, [a / c for a, _, c in rounds], 0.9, **noted)


# ---- a step over links ----

LINK_RANKS, LINK_RATE, PORT = 4, 100e6, 29611
# 8,192 tokens in one micro-batch of each rank: with fewer, what cannot overlap is most of a step (README.md).
LINK_ROWS = int(os.environ.get("BENCH_ROWS", "128")) // LINK_RANKS
LINK_STEPS, LINK_ROUNDS = 3, min(ROUNDS, 2)


def place(rank, port):
    return {"RANK": str(rank), "WORLD_SIZE": str(LINK_RANKS), "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", "MASTER_PORT": str(port)}


def alone(_):
    """Four ranks that compute at the same time, each its rows, and exchange nothing."""
    folders = [folder_of(f"alone-{r}") for r in range(LINK_RANKS)]
    together([([HALLEY, *train_words(f, LINK_STEPS, LINK_ROWS, 1, "--strategy", "single", "--threads", "1")], {}) for f in folders])
    return statistics.median(x for f in folders for x in steps_of(f))


def over_wan(rack):
    folder, token = folder_of("wan"), secrets.token_hex(32)
    words = train_words(folder, LINK_STEPS, LINK_ROWS, 1, "--strategy", "ddp", "--threads", "1", "--wire", "wan")
    together([(rack.on(r, HALLEY, *words), dict(place(r, PORT), MASTER_ADDR=rack.address(0), HALLEY_TOKEN=token))
              for r in range(LINK_RANKS)])
    return statistics.median(steps_of(folder))


def over_pool(_):
    return launched(LINK_RANKS, LINK_STEPS, LINK_ROWS, 1, "--strategy", "ddp", "--threads", "1")


def over_gloo(rack):
    """PyTorch's DistributedDataParallel, the same shape."""
    words = [PYTHON, "-W", "ignore", os.path.join("bench", "peers", "torch_ddp.py"), *(str(x) for x in (
        LAYERS, WIDTH, HEADS, VOCABULARY, BLOCK, LINK_ROWS, LINK_STEPS))]
    printed = together([(rack.on(r, *words), dict(place(r, PORT + 1), MASTER_ADDR=rack.address(0), GLOO_SOCKET_IFNAME="eth0",
                                                  OMP_NUM_THREADS="1")) for r in range(LINK_RANKS)])
    return statistics.median(float(x) for x in re.findall(r"^step (\S+)$", printed, re.MULTILINE)[1:])


def links():
    """A step of four ranks in four namespaces whose links carry 100 Mbit/s. BENCH_GLOO=0 leaves PyTorch out."""
    gloo = os.environ.get("BENCH_GLOO", "1") != "0"
    if not hosts.inside():
        hosts.check()
        if gloo:
            install("torch", "torch==2.13.0")
        return enter("links")
    rack, neighbours = hosts.Hosts(LINK_RANKS, f"{LINK_RATE / 1e6:.0f}mbit"), Neighbours()
    kinds = [alone, over_pool, over_wan] + ([over_gloo] if gloo else [])
    rounds = []
    for _ in range(LINK_ROUNDS):
        rounds.append([kind(rack) for kind in kinds])
        say("  " + ", ".join(f"{kind.__name__.replace('_', ' ')} {seconds:.2f} s" for kind, seconds in zip(kinds, rounds[-1])))
    tell_links(rounds, neighbours.tell())


def tell_links(rounds, noted):
    compute, pool, wan, *rest = (statistics.median(column) for column in zip(*rounds))
    sent = 2 * (LINK_RANKS - 1) / LINK_RANKS * 4 / (LINK_RATE / 8)  # seconds that a parameter's gradient takes
    exchange, last = PARAMETERS * sent, (VOCABULARY + BLOCK) * WIDTH * sent
    limit = 1.1 * max(compute, exchange) + last
    say(f"  a step: compute alone {compute:.2f} s (4 ranks at once on these processors), bytes / rate {exchange:.2f} s, of which"
        f" the last bucket, the tied embedding, {last:.2f} s; 1.1 x the larger + the last bucket is {limit:.2f} s, the step over wan"
        f" took {wan:.2f} s: {'met' if wan <= limit else 'missed'}")
    peer = "PyTorch 2.13.0 DDP over gloo" if rest else "the limit"
    theirs = [row[3] if rest else limit for row in rounds]
    write("links", wan, "s, ddp over wan at 100 Mbit/s", peer, statistics.median(theirs), [q / row[2] for row, q in zip(rounds, theirs)],
          statistics.median(theirs) / limit, limit=limit, compute=compute, bytes_over_rate=exchange, last_bucket=last, **noted)
    write("links-pool", pool, "s, ddp over the pool", "the compute alone", compute, [row[0] / row[1] for row in rounds], 1 / 1.1, **noted)


def enter(name):
    status = hosts.within([sys.executable, os.path.join("bench", "run.py"), name])
    if status:
        raise Failed(f"it ended with {status}")
    return None


# ---- an emulated rack ----

# Real rates by SCALE: a host's link to the pool 20 GB/s each way, a card 20 GB/s, the NIC 15 GB/s; the pool's latency 0.7 us.
SCALE = int(os.environ.get("BENCH_SCALE", "50"))
RACK_HOSTS, POOL_RATE, CARD_RATE, NIC_RATE, LATENCY_US = 3, 20e9 / SCALE, 20e9 / SCALE, 15e9 / SCALE, 0.7 * SCALE
RACK_ROUNDS = min(ROUNDS, 3)
SHARES, RACK_PORT = 64, 29600
RACK_SIZES = [(size << 10) * 50 // SCALE for size in (256, 1 << 10, 4 << 10, 16 << 10, 64 << 10)]
# Published for a pool of six cards beside 200 Gbit/s InfiniBand, the mean over 1 MB to 4 GB (arXiv:2602.22457).
PUBLISHED = {"all-gather": 1.34, "broadcast": 1.84, "gather": 1.94, "scatter": 1.055, "all-reduce": 1.5, "reduce-scatter": 1.43,
             "reduce": 1.7, "all-to-all": 1.53}
# Open MPI as it chooses itself, and two sets of algorithms by force.
SETS = {"default": {}, "pipelines and rings": {"allreduce": 4, "bcast": 3, "reduce": 3, "reduce_scatter": 3, "allgather": 4,
                                               "alltoall": 2, "gather": 1, "scatter": 1},
        "trees and segments": {"allreduce": 5, "bcast": 9, "reduce": 7, "reduce_scatter": 2, "allgather": 2, "alltoall": 1,
                               "gather": 3, "scatter": 3}}


def rack_mpi(rack, program, algorithms):
    parameters = {"plm_rsh_agent": f"{sys.executable} {os.path.abspath(hosts.__file__)}", "plm_rsh_no_tree_spawn": 1,
                  "btl": "self,tcp", "btl_tcp_if_include": f"{hosts.NETWORK}.0/24", "oob_tcp_if_include": f"{hosts.NETWORK}.0/24",
                  "mpi_yield_when_idle": 1}
    if algorithms:
        parameters["coll_tuned_use_dynamic_rules"] = 1
        parameters.update({f"coll_tuned_{kind}_algorithm": number for kind, number in algorithms.items()})
    words = [word for key, value in parameters.items() for word in ("--mca", key, str(value))]
    return Worker(["mpirun.openmpi", "--allow-run-as-root", "--bind-to", "none", *words, "--host", ",".join(rack.names), "-n",
                   str(RACK_HOSTS), os.path.abspath(program)])


def rack_case(kind, size, mine, peers):
    question = f"{kind} {size}"
    times = {name: worker.ask(question) for name, worker in peers.items()}
    best = min(times, key=times.get)
    share = int(mine.ask(f"share-{question}"))
    path = {0: "NIC", SHARES: "pool"}.get(share, f"{share}/{SHARES} pool")
    mine.ask(question)
    pairs = in_turn(lambda: mine.ask(question), lambda: peers[best].ask(question), RACK_ROUNDS)
    a, b = (statistics.median(x) for x in zip(*pairs))
    ratios = [q / p for p, q in pairs]
    say(f"  {kind:14} {size >> 10:6} KiB  {a * 1e3:8.2f} ms by {path:10}; Open MPI ({best}) {b * 1e3:8.2f} ms: {statistics.median(ratios):5.2f}x")
    return {"kind": kind, "bytes": size, "path": path, "seconds": a, "mpi_seconds": b, "mpi_algorithms": best, "ratio": statistics.median(ratios),
            "ratios": ratios}


def mean(ratios):
    return math.exp(statistics.mean(math.log(x) for x in ratios))


def rack():
    """Collectives of three hosts over pool and NICs of an emulated rack, beside Open MPI over its NICs."""
    if not hosts.inside():
        hosts.check()
        build_mpi()
        return enter("rack")
    neighbours = Neighbours()
    net = hosts.Hosts(RACK_HOSTS, f"{NIC_RATE * 8 / 1e6:.0f}mbit")
    peers = {name: rack_mpi(net, MPI, algorithms) for name, algorithms in SETS.items()}
    size = RACK_SIZES[-1]
    nic = size / min(peers["default"].ask(f"send {size}") for _ in range(3))
    say(f"  a host's link: pool {POOL_RATE / 1e6:.0f} MB/s, NIC {NIC_RATE / 1e6:.0f} MB/s, of which a message gets {nic / 1e6:.0f}")
    ours = [os.path.join(BUILD, "bench", "bench_collectives"), *(str(x) for x in (RACK_HOSTS, 131072, POOL_RATE, CARD_RATE, LATENCY_US)),
            f"{net.address(0)}:{RACK_PORT}"]
    with Worker(ours, {"OMP_NUM_THREADS": "1"}) as mine:
        say(f"  {mine.about}")
        about = peers["default"].about
        table = [rack_case(kind, size, mine, peers) for kind in PUBLISHED for size in RACK_SIZES]
    for worker in peers.values():
        worker.close()
    tell_rack(table, about, nic, neighbours)


def tell_rack(table, about, nic, neighbours):
    for kind, published in PUBLISHED.items():
        ratio = mean(row["ratio"] for row in table if row["kind"] == kind)
        say(f"  {kind:14} {ratio:5.2f}x, published {published:.2f}x over InfiniBand")
    slow = [f"{row['kind']} {row['bytes'] >> 10} KiB {row['ratio']:.2f}x" for row in table if row["ratio"] < 0.9]
    say(f"  under 0.9x: {', '.join(slow) or 'none'}")
    ratios = [mean(row["ratios"][i] for row in table) for i in range(RACK_ROUNDS)]
    write("rack" if SCALE == 50 else f"rack-{SCALE}", sum(row["seconds"] for row in table), "s for all kinds and sizes", f"{about} over the shaped NICs",
          sum(row["mpi_seconds"] for row in table), ratios, mean(PUBLISHED.values()), nic_bytes_per_s=nic, under_0_9=slow,
          load=neighbours.load, table=[{k: v for k, v in row.items() if k != "ratios"} for row in table])
