"""Seconds to a held-out loss over slow links: our strategies beside PyTorch's DistributedDataParallel, dense and with PowerSGD.

Four hosts (bench/hosts.py), one rank of one thread on each; a byte-level GPT of 4.8 million parameters; both sides take the same
rows in the same numbers per step, and look at the same held-out rows after the same steps. Time is wall clock from the first step
on, evaluations included. The loss to be reached is what dense PyTorch has late in its budget; BENCH_LOSS sets another.

BENCH_RATE        20mbit, 100mbit (default), 1gbit, or none: links as they are
BENCH_STEPS       optimizer steps of every run (100)
BENCH_STRATEGIES  what of ours runs, with blanks between: NAME, or NAME,key=value,... with options of `halley train`; unless given, what
                  suits the rate (below: ours_for)
BENCH_PEERS       which peers run: "dense powersgd" (default), fewer, or none at all with BENCH_LOSS
BENCH_LR          learning rate of every run (1e-3)
BENCH_CURVES      JSON files of earlier runs, with blanks between: their losses by step, which do not depend on the link, with the seconds
                  a step that a short run measures. A method that chooses by time what it does (acco) needs a run of its own
BENCH_TEXT        the text; else Debian's bible-kjv, else the pages of this repository"""
import json
import os
import re
import secrets
import shutil
import subprocess
import sys

import hosts
from common import HALLEY, OUT, PYTHON, Failed, install, sample_text, say, write

HOSTS, PORT = 4, 29600
LAYERS, WIDTH, HEADS, TOKENS, ROWS = 6, 256, 8, 128, 8  # ROWS of each rank, TOKENS each
WARMUP, RATE = 20, float(os.environ.get("BENCH_LR", "1e-3"))  # steps, learning rate
HELD_OUT, PIECE = 64 * TOKENS, 4 * TOKENS  # bytes held out, in pieces from all over the last tenth of the text
LATE = 0.85  # of the dense peer's steps: the loss that it has there is to be reached

LINK = os.environ.get("BENCH_RATE", "100mbit")
STEPS = int(os.environ.get("BENCH_STEPS", "100"))
MORE = STEPS * 13 // 10  # for methods that need more of them to the same loss
EVERY = 10 if STEPS >= 20 else max(1, STEPS // 5)  # steps between two looks at the held-out text


def ours_for(link):
    """Fragments meet as often as the link can hide: an exchange of all weights takes 2.4 s at 100 Mbit/s in f32, a step's compute 0.7. Seven
    fragments are one layer each, and the two ends together."""
    def meets(every, delay, codec, *more):
        return ",".join(("streaming_diloco", f"sync_every={every}", "learning_rate=2e-3", f"max_steps={MORE}",
                         *(f"streaming_diloco.{option}" for option in ("outer_lr=1", "outer_momentum=0", "fragments=7", "carry=true",
                                                                       f"delay={delay}", f"codec={codec}")), *more))
    if link == "20mbit":
        return ["ddp", meets(7, 1, "int4")]
    return ["ddp", f"diloco,sync_every=20,learning_rate=2e-3,max_steps={MORE},diloco.outer_lr=1,diloco.outer_momentum=0", meets(6, 1, "f32"),
            meets(3, 1, "bf16", "bf16=true")]


STRATEGIES = os.environ["BENCH_STRATEGIES"].split() if "BENCH_STRATEGIES" in os.environ else ours_for(LINK)
PEERS = os.environ.get("BENCH_PEERS", "dense powersgd").split()
CURVES = os.environ.get("BENCH_CURVES", "").split()
FOLDER = os.path.join(OUT, "slow-links")
# How many times faster than dense PyTorch our best f32 method is to be, where that was agreed on.
GOALS = {"100mbit": 3.5, "20mbit": 12}


# ---- text ----

def texts():
    """Two files: to train on, and held out."""
    with open(sample_text(), "rb") as file:
        text = file.read()
    cut = len(text) - len(text) // 10
    n = HELD_OUT // PIECE
    if len(text) - cut < 2 * HELD_OUT:
        raise Failed(f"the text is too short: {len(text)} bytes, and {20 * HELD_OUT} are needed")
    starts = [cut + i * ((len(text) - cut - PIECE) // (n - 1)) for i in range(n)]
    paths = []
    for name, content in (("train.txt", text[:cut]), ("held-out.txt", b"".join(text[i:i + PIECE] for i in starts))):
        paths.append(os.path.join(FOLDER, name))
        with open(paths[-1], "wb") as file:
            file.write(content)
    return paths


# ---- runs ----

def together(rack, name, words, variables, watch=lambda processes: None):
    """The same words on every host, with torchrun's variables; what they print goes to files. Raises when one fails; the others
    are ended then. watch is called with the processes while they run."""
    logs = [os.path.join(FOLDER, f"{name}.rank{r}.log") for r in range(HOSTS)]
    started = []
    try:
        for r in range(HOSTS):
            place = {"RANK": str(r), "WORLD_SIZE": str(HOSTS), "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", "OMP_NUM_THREADS": "1",
                     "MASTER_ADDR": rack.address(0), "MASTER_PORT": str(PORT), "GLOO_SOCKET_IFNAME": "eth0"}
            with open(logs[r], "w") as log:
                started.append(subprocess.Popen(rack.on(r, *words), env={**os.environ, **place, **variables},
                                                stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT))
        watch(started)
        for process in started:
            process.wait()
    finally:
        for process in started:
            process.terminate()
        for process in started:
            process.wait()
    for process, log in zip(started, logs):
        if process.returncode:
            with open(log) as file:
                raise Failed(f"{name}: {log} ends with status {process.returncode}:\n{file.read()[-2000:]}")
    with open(logs[0]) as file:
        return file.read()


def peer(rack, kind, train, held_out):
    """Points (step, seconds, loss) of PyTorch. PowerSGD loses so much per step that it gets twice as many."""
    steps = 2 * STEPS if kind == "powersgd" else STEPS
    words = [PYTHON, "-W", "ignore", os.path.join("bench", "peers", "torch_slow_links.py"), kind, train, held_out,
             *(str(x) for x in (LAYERS, WIDTH, HEADS, TOKENS, ROWS, steps, WARMUP, RATE, EVERY))]
    printed = together(rack, f"torch-{kind}", words, {})
    points = [(int(a), float(b), float(c)) for a, b, c in re.findall(r"^step (\d+) (\S+) (\S+)$", printed, re.MULTILINE)]
    sent = re.search(r"^sent (\S+)$", printed, re.MULTILINE)
    return {"points": points, "bytes_per_step": float(sent.group(1)) / steps if sent else None}


def words(train, held_out, folder, strategy, steps, *options):
    """Of `halley train`, for the model and the wire of these benchmarks; options overrule."""
    return [HALLEY, "train", "--data", train, "--validation_data", held_out, "--text_format", "document", "--tokenizer", "byte",
            "--model", "gpt2", "--num_hidden_layers", str(LAYERS), "--hidden_size", str(WIDTH), "--num_attention_heads", str(HEADS),
            "--block_size", str(TOKENS), "--per_device_train_batch_size", str(ROWS), "--max_steps", str(steps),
            "--warmup_steps", str(WARMUP), "--learning_rate", str(RATE), "--tensorboard", "false", "--threads", "1",
            "--wire", "wan", "--strategy", strategy, "--output_dir", folder, "--overwrite_output_dir", *options]


def secret():
    return {"HALLEY_TOKEN": secrets.token_hex(32), "HALLEY_INTERFACE": "eth0"}


def ours(rack, entry, train, held_out):
    """The same of `halley train`. entry: NAME,key=value,..."""
    name, *options = entry.split(",")
    folder = os.path.join(FOLDER, re.sub(r"[^a-z0-9_.=-]", "-", entry)[:120])
    command = words(train, held_out, folder, name, STEPS, "--per_device_eval_batch_size", str(2 * ROWS), "--lr_scheduler_type", "constant",
                    "--adam_beta1", "0.9", "--adam_beta2", "0.95", "--weight_decay", "0.1", "--max_grad_norm", "1",
                    "--eval_steps", str(EVERY), "--logging_steps", str(EVERY), *(f"--{option}" for option in options))
    together(rack, os.path.basename(folder), command, secret())
    with open(os.path.join(folder, "metrics.jsonl")) as file:
        rows = [json.loads(line) for line in file]
    looks = [row for row in rows if "eval_loss" in row]
    steps, sent, waited, before = rows[-1]["step"], 0, 0, 0
    for row in rows:
        sent += row.get("comm_bytes_out", 0) * (row["step"] - before)
        waited += row.get("comm_wait_ms", 0) * (row["step"] - before)
        before = row["step"]
    return {"points": [(row["step"], row["train_runtime"], row["eval_loss"]) for row in looks], "bytes_per_step": sent / steps,
            "wait_ms_per_step": waited / steps}


# ---- numbers ----

def loss_at(points, step):
    """On the straight line between two looks."""
    for (a, _, x), (b, _, y) in zip(points, points[1:]):
        if a <= step <= b:
            return x + (y - x) * (step - a) / (b - a)
    return points[-1][2]


def seconds_to(points, loss):
    """When a run first comes down to the loss; None: it does not."""
    before = None
    for _, seconds, here in points:
        if here <= loss:
            return seconds if before is None else before[0] + (seconds - before[0]) * (before[1] - loss) / (before[1] - here)
        before = (seconds, here)
    return None


def along(runs):
    """Runs of a few steps, as if they went on as the ones of the same name in CURVES did."""
    curves = {}
    for path in CURVES:
        with open(path) as file:
            curves.update({without_steps(run["name"]): run["points"] for run in json.load(file)["runs"]})
    for name, run in runs.items():
        curve = curves.get(without_steps(full_name(name)))
        if curve:
            steps, seconds, _ = run["points"][-1]
            run["points"] = [(step, step * seconds / steps, loss) for step, _, loss in curve]


def without_steps(name):
    return re.sub(r",max_steps=\d+", "", name)


def full_name(name):
    return f"PyTorch DDP {name}" if name in PEERS else name


def tell(name, run, loss):
    reached = seconds_to(run["points"], loss)
    steps, seconds, last = run["points"][-1]
    run.update(name=name, seconds_to_loss=reached, seconds_per_step=seconds / steps, final_loss=last)
    say(f"  {name:34} {'not reached' if reached is None else f'{reached:7.1f} s':>11} to {loss:.3f}; {seconds / steps:6.3f} s a step, "
        f"{run['bytes_per_step'] / 1e6:7.3f} MB sent, last loss {last:.4f}")


def target(runs):
    if "BENCH_LOSS" in os.environ:
        return float(os.environ["BENCH_LOSS"])
    if "dense" not in runs:
        raise Failed("without the peer 'dense' BENCH_LOSS must say which loss is to be reached")
    points = runs["dense"]["points"]
    return loss_at(points, LATE * points[-1][0])


def is_f32(entry):
    """streaming_diloco sends int4 unless it is told otherwise."""
    streams = entry.startswith("streaming_diloco") and "streaming_diloco.codec=f32" not in entry
    return not streams and not re.search(r"bf16|int8|int4|e3m0", entry)


def slow_links():
    """BENCH_* as above; the JSON has every run's curve."""
    if not hosts.inside():
        hosts.check()
        if PEERS:
            install("torch", "torch==2.13.0")
        status = hosts.within([sys.executable, os.path.join("bench", "run.py"), "slow-links"])
        if status:
            raise Failed(f"it ended with {status}")
        return None
    shutil.rmtree(FOLDER, ignore_errors=True)
    os.makedirs(FOLDER)
    train, held_out = texts()
    rack = hosts.Hosts(HOSTS, LINK)
    runs = {}
    for kind in PEERS:
        say(f"  PyTorch, {kind} ...")
        runs[kind] = peer(rack, kind, train, held_out)
    for entry in STRATEGIES:
        say(f"  halley, {entry} ...")
        try:
            runs[entry] = ours(rack, entry, train, held_out)
        except Failed as problem:  # the others' half hour is not to be lost
            say(f"  {entry} left out: {problem}")
    return conclude(runs)


def conclude(runs):
    along(runs)
    loss = target(runs)
    for name, run in runs.items():
        tell(full_name(name), run, loss)
    mine = {name: run["seconds_to_loss"] for name, run in runs.items() if name not in PEERS and run["seconds_to_loss"] is not None}
    if not mine:
        raise Failed(f"none of {', '.join(STRATEGIES)} came down to {loss:.4f}")
    rare = {name: seconds for name, seconds in mine.items() if not name.startswith(("ddp", "zero"))} or mine
    in_f32 = {name: seconds for name, seconds in rare.items() if is_f32(name)}
    if not in_f32:
        say("  none of them in f32 came down to it: the best of the others is compared")
        in_f32 = rare
    best, overall = min(in_f32, key=in_f32.get), min(mine, key=mine.get)
    other, beside = "dense" if "dense" in PEERS else next(iter(mine)), {}
    about = "PyTorch 2.13.0 DDP over gloo, dense" if other == "dense" else f"ours, {other}"
    if "powersgd" in runs:
        reached = runs["powersgd"]["seconds_to_loss"]
        beside = {"times_powersgd": (reached or runs["powersgd"]["points"][-1][1]) / in_f32[best]}
        say(f"  PowerSGD: {beside['times_powersgd']:.2f} times as long as our best in f32{'' if reached else ', without coming down to it'}")
    seconds = runs[other]["seconds_to_loss"]
    if seconds is None:
        raise Failed(f"{about} did not come down to {loss:.4f}")
    if overall != best:
        say(f"  in fewer bits, {overall}: {seconds / mine[overall]:.2f} times as fast as {other}")
    name = "slow-links" if LINK == "100mbit" else f"slow-links-{LINK}"
    return write(name, in_f32[best], f"s to a held-out loss of {loss:.4f}, {best}, {LINK}", about, seconds, [seconds / in_f32[best]],
                 GOALS.get(LINK, 1), loss=loss, steps=STEPS, best=best, rate=LINK, runs=list(runs.values()), **beside)
