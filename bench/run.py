#!/usr/bin/env python3
"""Halley beside its peers on this machine: ours and the peer measured in turn, the median of the pairs' ratios.

usage: bench/run.py [NAME ...]     without a name: all but slow-links
Writes build/bench/NAME.json with name, value, unit, peer, peer_value, ratio (how many times better than the fastest peer),
goal (the ratio that is wanted), cpu, spread and n_pairs; step-* also of_products. bench/README.md explains them.

BENCH_PAIRS     pairs per benchmark (10)          BENCH_COMPILE  0: leave compiled PyTorch out (it takes minutes to warm up)
BENCH_TEXT      a text file for `loader`          BENCH_PIP      more arguments for pip, such as another index
LLMC_TREE       a checkout of llm.c: `llmc` is measured too
PRESET          the build that is measured (release)"""
import os
import re
import shutil
import statistics
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import ranks
import recovery
from common import BUILD, HALLEY, OUT, PAIRS, PYTHON, Failed, Impossible, Worker, in_turn, install, ours, sample_text, save, say, write
from strategies import acco, slow_links

GIB = 1 << 30


def torch(*words):
    install("torch", "torch==2.13.0")
    return Worker([PYTHON, "-W", "ignore", os.path.join("bench", "peers", "torch_worker.py"), *words])


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


def codecs():
    """Both ways of every codec, in bytes of f32; codecs.json is the slowest of them."""
    with open(os.path.join("src", "codecs", "codecs.def")) as registry:
        names = re.findall(r"^HL_CODEC\((\w+)\)", registry.read(), re.M)
    results = []
    for name in names:
        with ours("codec", name) as mine:
            for way in ("encode", "decode"):
                mine.ask(way), mine.ask("copy")
                results.append(compare(f"codecs-{name}-{way}", mine, way, mine, "copy", "copy of the f32 array", 0.6, "GB/s",
                                       lambda s: 128e6 / s * 1e-9))
            mine.ask("feedback")
            share = statistics.median(q / p for p, q in in_turn(lambda: mine.ask("feedback"), lambda: mine.ask("copy")))
            say(f"  {name} with error feedback: {share:.2f} of a copy")
    slowest = min(results, key=lambda result: result["ratio"])
    save({**slowest, "name": "codecs", "case": slowest["name"]})
    say(f"codecs            the slowest is {slowest['name']}: ratio {slowest['ratio']:.3f}")


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
    words = [HALLEY, "plan", "--memory", "--model", "gpt2-124m", "--block_size", "256",
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
    mine = [HALLEY, "train", "--data", text, "--model", "gpt2-tiny", "--num_hidden_layers", "1",
            "--hidden_size", "64", "--block_size", "32", "--per_device_train_batch_size", "4", "--max_steps", "1",
            "--logging_steps", "1", "--output_dir", os.path.join(folder, "run"), "--overwrite_output_dir"]
    theirs = [PYTHON, "-W", "ignore", os.path.join("bench", "peers", "torch_start.py")]
    until_step(mine, "step 1"), until_step(theirs, "step 1")
    pairs = in_turn(lambda: until_step(mine, "step 1"), lambda: until_step(theirs, "step 1"))
    a, b = (statistics.median(x) for x in zip(*pairs))
    write("start", a, "s", "PyTorch 2.13.0, a layer of the same size", b, [q / p for p, q in pairs], b / 0.3)


def loader():
    install("tokenizers", "tokenizers==0.23.3")
    text, tokenizer = sample_text(), os.path.join(OUT, "loader-tokenizer.json")
    size = os.path.getsize(text) / 1e6
    done = subprocess.run([HALLEY, "data", "--train-tokenizer", "4096", "--data", text, "--text_format",
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


BENCHES = {"step-f32": step_f32, "step-bf16": step_bf16, "attention": attention, "adamw": adamw, "codecs": codecs, "head": head, "memory": memory,
           "start": start, "loader": loader, "llmc": llmc, "collectives": ranks.collectives, "scaling": ranks.scaling,
           "links": ranks.links, "rack": ranks.rack, "recovery": recovery.recovery, "slow-links": slow_links.slow_links,
           "acco-exposed": acco.exposed, "acco-slow-rank": acco.slow_rank}


def main():
    names = sys.argv[1:] or [name for name in BENCHES if name not in ("slow-links", "acco-exposed", "acco-slow-rank")]  # that one takes half an hour by itself
    for name in names:
        if name not in BENCHES:
            sys.exit(f"bench: no benchmark '{name}'; there are {', '.join(BENCHES)}")
    if PAIRS < 1:
        sys.exit("bench: BENCH_PAIRS must be at least 1")
    failed, impossible = [], []
    for name in names:
        try:
            BENCHES[name]()
        except (Failed, OSError) as problem:
            (impossible if isinstance(problem, Impossible) else failed).append(name)
            say(f"{name}: {problem}")
    if failed:
        sys.exit(f"bench: not measured: {', '.join(failed + impossible)}")
    sys.exit(77 if impossible == names else 0)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
