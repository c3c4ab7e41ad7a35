"""acco on four hosts (bench/hosts.py), one rank of one thread on each, the model of slow_links.py.

acco-exposed    what is left of the exchange beside compute, over the number of micro-batches in a round: below the crossing point a
                round's exchange takes longer than its compute, and ranks that may not make more micro-batches wait
acco-slow-rank  one of the four runs a quarter of the time (SIGSTOP and SIGCONT); the others' share of time that they do not wait

BENCH_RATE      100mbit (default), 20mbit, 1gbit, none
BENCH_ROUNDS    micro-batches of a round, with blanks between ("1 2 4 8 12")
BENCH_STEPS     steps of each run (6; 10 with a slow rank)"""
import json
import os
import shutil
import signal
import sys
import time

import hosts
from common import Failed, say, write
from strategies import slow_links as links

LINK = os.environ.get("BENCH_RATE", "100mbit")
ROUNDS = [int(n) for n in os.environ.get("BENCH_ROUNDS", "1 2 4 8 12").split()]
SLOW = links.HOSTS - 1  # the rank that is slowed
ON, OFF = 0.05, 0.15  # seconds


def run_words(texts, folder, steps, *options):
    return links.words(*texts, folder, "acco", steps, "--logging_steps", "1", *options)


def metrics(folder):
    with open(os.path.join(folder, "metrics.jsonl")) as file:
        return [json.loads(line) for line in file][1:]  # the first step begins with a round more


def prepare(name):
    """The hosts, and the texts; None outside, where the benchmark is run inside instead."""
    if not hosts.inside():
        hosts.check()
        status = hosts.within([sys.executable, os.path.join("bench", "run.py"), name])
        if status:
            raise Failed(f"it ended with {status}")
        return None
    shutil.rmtree(links.FOLDER, ignore_errors=True)
    os.makedirs(links.FOLDER)
    return hosts.Hosts(links.HOSTS, LINK), links.texts()


def exposed():
    there = prepare("acco-exposed")
    if not there:
        return None
    rack, texts = there
    steps, curve = int(os.environ.get("BENCH_STEPS", "6")), []
    for n in ROUNDS:
        folder = os.path.join(links.FOLDER, f"acco-{n}")
        links.together(rack, f"acco-{n}", run_words(texts, folder, steps, "--gradient_accumulation_steps", str(2 * n),
                                                    "--acco.micro_batches_per_round", str(n)), links.secret())
        rows = metrics(folder)
        step, wait = (sum(row[key] for row in rows) / len(rows) / 1e3 for key in ("step_ms", "comm_wait_ms"))
        curve.append({"micro_batches": n, "seconds_per_step": step, "waited": wait, "share": wait / step})
        say(f"  {n:3} micro-batches a round: {step:6.2f} s a step, {wait:6.3f} s of it waited, {100 * wait / step:5.1f} %")
    best = min(curve, key=lambda point: point["share"])
    return write("acco-exposed", 100 * best["share"], f"% of a step waits, {best['micro_batches']} micro-batches a round, {LINK}",
                 "none: the goal is absolute", 5, [5 / max(100 * best["share"], 0.01)], 1, curve=curve)


def slow_down(processes):
    """One rank runs a quarter of the time, until it ends."""
    while processes[SLOW].poll() is None:
        processes[SLOW].send_signal(signal.SIGSTOP)
        time.sleep(OFF)
        processes[SLOW].send_signal(signal.SIGCONT)
        time.sleep(ON)


def slow_rank():
    there = prepare("acco-slow-rank")
    if not there:
        return None
    rack, texts = there
    folder, steps = os.path.join(links.FOLDER, "acco-slow"), int(os.environ.get("BENCH_STEPS", "10"))
    links.together(rack, "acco-slow", run_words(texts, folder, steps, "--gradient_accumulation_steps", "2"), links.secret(), slow_down)
    rows = metrics(folder)
    busy = sum(row["busy"] * row["step_ms"] for row in rows) / sum(row["step_ms"] for row in rows)
    with open(os.path.join(folder, "rounds.jsonl")) as file:
        made = [json.loads(line)["micro_batches"] for line in file][1:]
    each = [sum(step[r][0] + step[r][1] for step in made) for r in range(links.HOSTS)]
    say(f"  micro-batches of the ranks: {each}")
    return write("acco-slow-rank", 100 * busy, f"% of the time rank 0 computes, rank {SLOW} at a quarter of its speed, {LINK}",
                 "none: the goal is absolute", 95, [100 * busy / 95], 1, micro_batches=each)
