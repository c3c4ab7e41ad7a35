"""Live recovery of a 124 M model, two ranks, a tiny batch: a rank is killed in the middle of a step, again and again. What it
costs beyond the step that is made again: seconds from the kill to the end of the first step afterwards, less a median step."""
import os
import random
import re
import shutil
import signal
import statistics
import subprocess
import sys
import threading
import time

from common import HALLEY, OUT, PAIRS, Failed, say, write

TIMEOUT = 10  # seconds, of the runs in which a rank is stopped


class Run:
    """`halley launch --elastic`, with the time at which each line came."""

    def __init__(self, folder, timeout):
        text = os.path.join(folder, "text.txt")
        with open(text, "w") as file:
            file.write("the quick brown fox jumps over the lazy dog\n" * 500)
        out = os.path.join(folder, "run")
        shutil.rmtree(out, ignore_errors=True)
        self.pids, self.lines, self.changed = {}, [], threading.Condition()
        self.process = subprocess.Popen(
            [HALLEY, "launch", "-n", "2", "--elastic", "--timeout", str(timeout), "--max_restarts", "1000", "train", "--data", text,
             "--model", "gpt2-124m", "--vocab_size", "50257", "--block_size", "64", "--per_device_train_batch_size", "1", "--threads", "1",
             "--max_steps", "1000000", "--logging_steps", "1", "--eval_steps", "0", "--save_steps", "0", "--output_dir", out],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            with self.changed:
                self.lines.append((time.perf_counter(), line.rstrip()))
                pid = re.match(r"rank (\d) pid (\d+)", line)
                if pid:
                    self.pids[int(pid[1])] = int(pid[2])
                self.changed.notify_all()
        with self.changed:
            self.lines.append((time.perf_counter(), None))
            self.changed.notify_all()

    def wait(self, since, what, n=1):
        """Times of the next n lines with `what`, from line `since` on, and the number of the line behind them."""
        found, end = [], time.monotonic() + 300
        with self.changed:
            while True:
                for i in range(since, len(self.lines)):
                    if self.lines[i][1] is None:
                        raise Failed("the run ended:\n" + "\n".join(line for _, line in self.lines[-20:] if line))
                    if what in self.lines[i][1]:
                        found.append(self.lines[i][0])
                    if len(found) == n:
                        return found, i + 1
                    since = i + 1
                if time.monotonic() > end or not self.changed.wait(60):
                    raise Failed(f"no '{what}' in five minutes")

    def close(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        for pid in self.pids.values():  # they get SIGTERM, would save, and are in nobody's way any more
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass


def measure(number, times, timeout=300):
    """Seconds beyond a median step, for each time; a median step; the line that tells the memory."""
    folder = os.path.join(OUT, "recovery")
    os.makedirs(folder, exist_ok=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the run ends with us
    run = Run(folder, timeout)
    try:
        _, at = run.wait(0, "elastic: two copies")
        about = run.lines[at - 1][1]
        ends, at = run.wait(at, "loss", 8)
        step = statistics.median(b - a for a, b in zip(ends[2:], ends[3:]))
        over = []
        for i in range(times):
            _, at = run.wait(at, "loss", 2)
            time.sleep(random.random() * step)
            at, killed = len(run.lines), time.perf_counter()
            os.kill(run.pids[i % 2], number)
            _, at = run.wait(at, "going on from the last committed step")
            (end,), at = run.wait(at, "loss")
            over.append(end - killed - step)
        return over, step, about
    finally:
        run.close()
        subprocess.run([HALLEY, "pool", "free", "--stale"], capture_output=True)


def recovery():
    """Goals: 2 s beyond a step after SIGKILL, the timeout and 2 s after SIGSTOP."""
    over, step, about = measure(signal.SIGKILL, PAIRS)
    say(f"  a step takes {step:.3f} s; {about}")
    write("recovery", statistics.median(over), "s beyond a step, after SIGKILL", "the goal", 2.0, [2.0 / x for x in over], 1.0, step=step)
    goal = TIMEOUT + 2.0
    over, step, about = measure(signal.SIGSTOP, min(PAIRS, 4), TIMEOUT)
    write("recovery-stopped", statistics.median(over), f"s beyond a step, after SIGSTOP, --timeout {TIMEOUT}", "the goal", goal,
          [goal / x for x in over], 1.0, step=step)
