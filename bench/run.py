#!/usr/bin/env python3
"""Halley beside its peers on this machine: ours and the peer measured in turn, the median of the pairs' ratios.

usage: bench/run.py [NAME ...]     without a name: all
Writes build/bench/NAME.json with name, value, unit, peer, peer_value, ratio (how many times better than the fastest peer),
goal (the ratio that is wanted), cpu, spread and n_pairs; step-* also of_products. bench/README.md explains them.

BENCH_PAIRS     pairs per benchmark (10)          BENCH_COMPILE  0: leave compiled PyTorch out (it takes minutes to warm up)
BENCH_TEXT      a text file for `loader`          BENCH_PIP      more arguments for pip, such as another index
LLMC_TREE       a checkout of llm.c: `llmc` is measured too
PRESET          the build that is measured (release)"""
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
BUILD = os.path.join("build", os.environ.get("PRESET", "release"))
OUT = os.path.join("build", "bench")
VENV = os.path.join(OUT, "venv")
PYTHON = os.path.join(VENV, "bin", "python")
PAIRS = int(os.environ.get("BENCH_PAIRS", "10"))
GIB = 1 << 30


class Failed(Exception):
    pass


# ---- processes that answer ----

class Worker:
    """A process that prints "ready ..." and then a number for every line it is sent."""

    def __init__(self, words, environment=None):
        self.words = words
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        env=dict(os.environ, **(environment or {})))
        self.about = self.line().removeprefix("ready ")

    def line(self):
        line = self.process.stdout.readline()
        if not line:
            raise Failed(f"{' '.join(self.words)} ended with {self.process.wait()}")
        return line.strip()

    def ask(self, question):
        self.process.stdin.write(question + "\n")
        self.process.stdin.flush()
        return float(self.line())

    def close(self):
        if self.process.poll() is None:
            self.process.stdin.close()
            self.process.wait()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def ours(*words):
    return Worker([os.path.join(BUILD, "bench", "bench_worker"), *words])


def torch(*words):
    install("torch", "torch==2.13.0")
    return Worker([PYTHON, "-W", "ignore", os.path.join("bench", "peers", "torch_worker.py"), *words])


def install(module, requirement):
    """The virtual environment of the peers, made when it is first needed."""
    if not os.path.exists(PYTHON):
        say("making a virtual environment for the peers ...")
        if subprocess.call([sys.executable, "-m", "venv", VENV]) != 0:
            shutil.rmtree(VENV, ignore_errors=True)
            raise Failed("python3 -m venv failed; on Debian: apt install python3-venv")
    if subprocess.call([PYTHON, "-c", f"import importlib.util as u, sys; sys.exit(u.find_spec('{module}') is None)"]) != 0:
        say(f"installing {requirement} for the benchmark only ...")
        more = os.environ.get("BENCH_PIP", "").split()
        if subprocess.call([PYTHON, "-m", "pip", "install", "-qq", *more, requirement]) != 0:
            raise Failed(f"pip could not install {requirement}; BENCH_PIP takes more arguments for pip")


def compiler():
    return os.environ.get("BENCH_COMPILE", "1") != "0" and shutil.which("g++") is not None


def fastest(candidates, question="run", tries=2):
    """Start each candidate (name, words), warm it up, keep the fastest. Returns (name, worker, {name: seconds})."""
    best, seen = None, {}
    for name, words in candidates:
        worker = torch(*words)
        try:
            worker.ask(question)
            worker.ask(question)
            seen[name] = min(worker.ask(question) for _ in range(tries))
        except Failed as problem:
            say(f"  {name} left out: {problem}")
            continue
        if best is None or seen[name] < seen[best[0]]:
            if best:
                best[1].close()
            best = (name, worker)
        else:
            worker.close()
    if not best:
        raise Failed("no peer could be measured")
    say("  peers: " + ", ".join(f"{name} {seconds:.4g} s" for name, seconds in seen.items()))
    return best[0], best[1]


# ---- results ----

def say(text):
    print(text, flush=True)


def cpu():
    name = "unknown processor"
    with open("/proc/cpuinfo") as info:
        for line in info:
            if line.startswith("model name"):
                name = line.split(":", 1)[1].strip()
                break
    return f"{name}, {len(os.sched_getaffinity(0))} logical processors"


def write(name, value, unit, peer, peer_value, ratios, goal, **more):
    """One result: a JSON file and a line for people."""
    ordered = sorted(ratios)
    q1, middle, q3 = statistics.quantiles(ordered, n=4, method="inclusive") if len(ordered) > 1 else ordered * 3
    result = {"name": name, "value": value, "unit": unit, "peer": peer, "peer_value": peer_value, "ratio": middle, "goal": goal,
              "cpu": cpu(), "spread": {"min": ordered[0], "q1": q1, "q3": q3, "max": ordered[-1]}, "n_pairs": len(ordered), **more}
    os.makedirs(OUT, exist_ok=True)
    with open(os.path.join(OUT, name + ".json"), "w") as file:
        json.dump(result, file, indent=2)
        file.write("\n")
    verdict = "met" if middle >= goal else "missed"
    say(f"{name:17s} {value:.5g} {unit}; {peer}: {peer_value:.5g}; ratio {middle:.3f}"
        f" (quartiles {q1:.3f} .. {q3:.3f}, {len(ordered)} pairs), goal {goal:.3g}: {verdict}")
    return result


def in_turn(first, second, n=None):
    """Pairs of (first(), second())."""
    return [(first(), second()) for _ in range(n or PAIRS)]


def compare(name, a, ask_a, b, ask_b, peer, goal, unit, value_of, **more):
    """Seconds of ours and the peer in turn; smaller is better."""
    pairs = in_turn(lambda: a.ask(ask_a), lambda: b.ask(ask_b))
    mine, theirs = (statistics.median(x) for x in zip(*pairs))
    return write(name, value_of(mine), unit, peer, value_of(theirs), [q / p for p, q in pairs], goal, **more)


# ---- the benchmarks ----

def bench_step(kind, goal, of_products_goal):
    name, tokens = "step-" + kind, 1024
    with ours("step", kind) as mine:
        threads = mine.about.split()[0]
        words = ["step", "--threads", threads] + (["--bf16"] if kind == "bf16" else [])
        candidates = [("PyTorch 2.13.0 eager", words)]
        if compiler():
            candidates.append(("PyTorch 2.13.0 compiled", words + ["--compile"]))
        peer, theirs = fastest(candidates, "step", 1)
        with theirs:
            mine.ask("step")
            can = True
            try:
                mine.ask("products")
            except Failed:
                can = False
                say("  the library cannot multiply in " + kind + " here: of_products is left out")
                mine = ours("step", kind)
                mine.ask("step")
            rows = [(mine.ask("step"), theirs.ask("step"), mine.ask("products") if can else float("nan")) for _ in range(PAIRS)]
            own = mine.ask("halley") if can else float("nan")
    step, peer_step, products = (statistics.median(column) for column in zip(*rows))
    share = statistics.median(p / s for s, _, p in rows) if can else None
    write(name, tokens / step, "tok/s", peer, tokens / peer_step, [q / p for p, q, _ in rows], goal, of_products=share)
    if can:
        say(f"  step {step:.3f} s; its products alone: library {products:.3f} s, {share:.3f} of the step, goal {of_products_goal}:"
            f" {'met' if share >= of_products_goal else 'missed'}; by Halley {own:.3f} s")


def step_f32():
    bench_step("f32", 1.1, 0.85)


def step_bf16():
    bench_step("bf16", 1.5, 0.65)


def attention():
    for kind, name in (("f32", "attention"), ("bf16", "attention-bf16")):
        with ours("attention", kind, "2048") as mine:
            words = ["attention", "-T", "2048", "--threads", mine.about.split()[0]] + (["--bf16"] if kind == "bf16" else [])
            peer, theirs = fastest([("PyTorch 2.13.0 scaled_dot_product_attention", words)])
            with theirs:
                mine.ask("run")
                compare(name, mine, "run", theirs, "run", peer, 1.0, "ms", lambda s: 1e3 * s)


def adamw():
    for kind, name, size in (("f32", "adamw", 28), ("bf16", "adamw-bf16", 30)):
        with ours("adamw", kind) as mine:
            mine.ask("run"), mine.ask("copy")
            compare(name, mine, "run", mine, "copy", "copy of as many bytes", 0.85, "GB/s", lambda s: 32e6 * size / s * 1e-9)


def head():
    with ours("head", "f32") as mine:
        threads = ["--threads", mine.about.split()[0]]
        candidates = [("PyTorch 2.13.0 linear + cross_entropy", ["head", *threads]),
                      ("PyTorch 2.13.0 linear_cross_entropy", ["head-fused", *threads])]
        if compiler():
            candidates.append(("PyTorch 2.13.0 linear + cross_entropy, compiled", ["head", "--compile", *threads]))
        mine.ask("run")
        peer, theirs = fastest(candidates)
        with theirs, torch("head", *threads) as plain:
            compare("head", mine, "run", theirs, "run", peer, 1.0, "ms", lambda s: 1e3 * s)
            fresh = plain.ask("resident")
            plain.ask("run")
            say(f"  memory: ours never hold more than {mine.ask('logits') / GIB:.2f} GiB of logits, however many rows there are;"
                f" PyTorch's process grew by {(plain.ask('peak') - fresh) / GIB:.2f} GiB, {50257 * 768 * 4 / GIB:.2f} of it the weights' gradient")


def peak(start, words):
    with start(*words) as worker:
        worker.ask("step"), worker.ask("step")
        return worker.ask("peak")


def memory():
    words = ["step"]
    candidates = {"PyTorch 2.13.0 eager": peak(torch, words)}
    if compiler():
        candidates["PyTorch 2.13.0 compiled"] = peak(torch, words + ["--compile"])
    say("  peers: " + ", ".join(f"{name} {size / GIB:.3f} GiB" for name, size in candidates.items()))
    peer = min(candidates, key=candidates.get)
    if peer.endswith("compiled"):
        words.append("--compile")
    rows = [(peak(ours, ["step", "f32"]), peak(torch, words), peak(ours, ["step", "f32", "recompute"])) for _ in range(PAIRS)]
    mine, theirs, again = (statistics.median(column) for column in zip(*rows))
    write("memory", mine / GIB, "GiB", peer, theirs / GIB, [q / p for p, q, _ in rows], 1 / 0.85)
    write("memory-recompute", again / GIB, "GiB", peer, theirs / GIB, [q / r for _, q, r in rows], 1 / 0.7)
    for what, measured, flags in (("", mine, []), (" with recomputation", again, ["--gradient_checkpointing"])):
        planned = plan(flags)
        if planned:
            say(f"  plan --memory{what}: {planned / GIB:.3f} GiB, measured {measured / GIB:.3f} GiB: plan is {100 * (planned / measured - 1):+.2f} %"
                f" ({'within' if -0.01 <= planned / measured - 1 <= 0.03 else 'outside'} -1 .. +3 %)")


def plan(flags):
    words = [os.path.join(BUILD, "halley"), "plan", "--memory", "--model", "gpt2-124m", "--block_size", "256",
             "--per_device_train_batch_size", "4", *flags]
    done = subprocess.run(words, capture_output=True, text=True)
    for line in done.stdout.splitlines():
        if line.startswith("total"):
            return int(line.split()[1])
    say("  halley plan --memory gave no total: " + done.stderr.strip())
    return None


def until_step(words, mark):
    """Seconds from starting a process to the first line with the mark; the process ends afterwards."""
    start = time.perf_counter()
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    seen, text = None, ""
    for line in process.stdout:
        text += line
        if seen is None and mark in line:
            seen = time.perf_counter() - start
    if process.wait() != 0 or seen is None:
        raise Failed(f"{' '.join(words)}:\n{text}")
    return seen


def start():
    install("torch", "torch==2.13.0")
    folder = os.path.join(OUT, "start")
    os.makedirs(folder, exist_ok=True)
    text = os.path.join(folder, "small.txt")
    with open(text, "w") as file:
        file.write("the quick brown fox jumps over the lazy dog\n" * 200)
    mine = [os.path.join(BUILD, "halley"), "train", "--data", text, "--model", "gpt2-tiny", "--num_hidden_layers", "1",
            "--hidden_size", "64", "--block_size", "32", "--per_device_train_batch_size", "4", "--max_steps", "1",
            "--logging_steps", "1", "--output_dir", os.path.join(folder, "run"), "--overwrite_output_dir"]
    theirs = [PYTHON, "-W", "ignore", os.path.join("bench", "peers", "torch_start.py")]
    until_step(mine, "step 1"), until_step(theirs, "step 1")
    pairs = in_turn(lambda: until_step(mine, "step 1"), lambda: until_step(theirs, "step 1"))
    a, b = (statistics.median(x) for x in zip(*pairs))
    write("start", a, "s", "PyTorch 2.13.0, a layer of the same size", b, [q / p for p, q in pairs], b / 0.3)


def sample_text():
    """Natural text for the tokenizers: BENCH_TEXT, the bible of Debian's bible-kjv, or this repository's own pages."""
    if os.environ.get("BENCH_TEXT"):
        return os.environ["BENCH_TEXT"]
    path = os.path.join(OUT, "loader.txt")
    if shutil.which("bible"):
        text = subprocess.run(["bible", "-f", "gen1:1-rev22:21"], capture_output=True, text=True).stdout
    else:
        names = subprocess.run(["git", "ls-files", "*.md", "*.c", "*.h"], capture_output=True, text=True).stdout.split()
        text = "".join(open(name, encoding="utf-8").read() for name in names)
    os.makedirs(OUT, exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    return path


def loader():
    install("tokenizers", "tokenizers==0.23.3")
    text, tokenizer = sample_text(), os.path.join(OUT, "loader-tokenizer.json")
    size = os.path.getsize(text) / 1e6
    done = subprocess.run([os.path.join(BUILD, "halley"), "data", "--train-tokenizer", "4096", "--data", text, "--text_format",
                           "document", "--out", tokenizer], capture_output=True, text=True)
    if done.returncode:
        raise Failed("halley data --train-tokenizer: " + done.stderr)
    peer = Worker([PYTHON, os.path.join("bench", "peers", "tokenizers_worker.py"), text, tokenizer],
                  {"TOKENIZERS_PARALLELISM": "false", "RAYON_NUM_THREADS": "1"})
    with peer, ours("loader", text, tokenizer) as bpe, ours("loader", text, "byte") as byte:
        for worker, question in ((peer, "run"), (peer, "bytes"), (bpe, "run"), (byte, "run")):
            worker.ask(question)
        say(f"  {size:.1f} MB of text, one thread, reading included")
        for name, worker, question, what, wanted in (
                ("loader", bpe, "run", f"tokenizers {peer.about}, BPE 4096, one thread", 5),
                ("loader-bytes", byte, "bytes", "Python, a table look-up per character", 50)):
            pairs = in_turn(lambda: worker.ask("run"), lambda: peer.ask(question))
            a, b = (statistics.median(x) for x in zip(*pairs))
            write(name, size / a, "MB/s", what, size / b, [q / p for p, q in pairs], wanted / (size / b))


def llmc():
    """llm.c's CPU program; only where LLMC_TREE names a checkout."""
    tree = os.environ.get("LLMC_TREE")
    if not tree:
        return say("llmc             left out: LLMC_TREE names no checkout of llm.c")
    from peers import llmc_build
    program, folder = llmc_build.build(tree, os.path.join(OUT, "llmc"))
    with ours("step", "f32") as mine:
        mine.ask("step")
        pairs = in_turn(lambda: mine.ask("step"), lambda: llmc_build.step_seconds(program, folder, mine.about.split()[0]))
    a, b = (statistics.median(x) for x in zip(*pairs))
    write("llmc", 1024 / a, "tok/s", "llm.c train_gpt2.c, gcc", 1024 / b, [q / p for p, q in pairs], 6)


# ---- several ranks ----

SIZES = [4096, 65536, 1 << 20, 4 << 20, 16 << 20, 64 << 20, 256 << 20]
# Open MPI's all-reduce: as it chooses itself, and by force: recursive doubling, ring, segmented ring, Rabenseifner.
ALGORITHMS = {"default": None, "recursive doubling": 3, "ring": 4, "segmented ring": 5, "Rabenseifner": 6}


def mpi_workers(ranks):
    """One job of the peer for each algorithm; those that wait for a question sleep."""
    program = os.path.join(OUT, "mpi_collectives")
    for tool in ("mpicc.openmpi", "mpirun.openmpi"):
        if not shutil.which(tool):
            raise Failed(f"{tool} is missing: apt install libopenmpi-dev openmpi-bin")
    source = os.path.join("bench", "peers", "mpi_collectives.c")
    done = subprocess.run(["mpicc.openmpi", "-O3", "-march=native", source, "-o", program], capture_output=True, text=True)
    if done.returncode:
        raise Failed(done.stderr)
    workers = {}
    for name, number in ALGORITHMS.items():
        forced = [] if number is None else ["--mca", "coll_tuned_use_dynamic_rules", "1", "--mca",
                                            "coll_tuned_allreduce_algorithm", str(number)]
        root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
        workers[name] = Worker(["mpirun.openmpi", *root, "--oversubscribe", "--bind-to", "none", *forced, "-n", str(ranks), program])
    return workers


def collective(kind, size, ranks, mine, peers, gloo, table):
    question = f"{kind} {size}"
    times = {name: worker.ask(question) for name, worker in peers.items() if kind == "all-reduce" or name == "default"}
    best = min(times, key=times.get)
    mine.ask(question)
    pairs = in_turn(lambda: mine.ask(question), lambda: peers[best].ask(question))
    a, b = (statistics.median(x) for x in zip(*pairs))
    ratio = statistics.median(q / p for p, q in pairs)
    slow = gloo.ask(question) if gloo and kind == "all-reduce" else None
    table.append({"kind": kind, "ranks": ranks, "bytes": size, "seconds": a, "mpi_seconds": b, "mpi_algorithm": best, "ratio": ratio,
                  "gloo_seconds": slow})
    say(f"  {kind:14} {ranks} ranks {size >> 10:7} KiB  {a * 1e6:9.0f} us; Open MPI ({best}) {b * 1e6:9.0f} us: {ratio:5.2f}x"
        + (f"; gloo {slow * 1e6:9.0f} us: {slow / a:5.2f}x" if slow else ""))
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
        with Worker([os.path.join(BUILD, "bench", "bench_collectives"), str(ranks)], {"OMP_NUM_THREADS": "1"}) as mine:
            about = peers["default"].about
            for kind in ("all-reduce", "reduce-scatter", "all-gather"):
                for size in SIZES:
                    pairs = collective(kind, size, ranks, mine, peers, gloo, table)
                    if kind == "all-reduce" and size >= 1 << 20:
                        logs.append([math.log(q / p) for p, q in pairs])
                        sums[0] += statistics.median(p for p, _ in pairs)
                        sums[1] += statistics.median(q for _, q in pairs)
        for worker in [*peers.values(), *([gloo] if gloo else [])]:
            worker.close()
    # one ratio for each round of pairs: the geometric mean over sizes and ranks
    ratios = [math.exp(statistics.mean(log[i] for log in logs)) for i in range(PAIRS)]
    write("collectives", sums[0], "s for all sizes", f"{about}, its best algorithm for each", sums[1], ratios, 1.8, table=table)


BENCHES = {"step-f32": step_f32, "step-bf16": step_bf16, "attention": attention, "adamw": adamw, "head": head, "memory": memory,
           "start": start, "loader": loader, "llmc": llmc, "collectives": collectives}


def main():
    names = sys.argv[1:] or list(BENCHES)
    for name in names:
        if name not in BENCHES:
            sys.exit(f"bench: no benchmark '{name}'; there are {', '.join(BENCHES)}")
    if PAIRS < 1:
        sys.exit("bench: BENCH_PAIRS must be at least 1")
    failed = []
    for name in names:
        try:
            BENCHES[name]()
        except (Failed, OSError) as problem:
            failed.append(name)
            say(f"{name}: {problem}")
    sys.exit(f"bench: not measured: {', '.join(failed)}" if failed else 0)


if __name__ == "__main__":
    main()
