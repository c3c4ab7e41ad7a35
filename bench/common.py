"""What benchmarks share: processes that answer, the peers' virtual environment, results."""
import json
import os
import shutil
import statistics
import subprocess
import sys
import time

BUILD = os.path.join("build", os.environ.get("PRESET", "release"))
HALLEY = os.path.join(BUILD, "halley")
OUT = os.path.join("build", "bench")
VENV = os.path.join(OUT, "venv")
PYTHON = os.path.join(VENV, "bin", "python")
PAIRS = int(os.environ.get("BENCH_PAIRS", "10"))


class Failed(Exception):
    pass


class Impossible(Failed):
    """It cannot be measured here: no root, no namespaces. Exit status 77, as of a test that was skipped."""


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


# ---- text ----

def sample_text():
    """Natural text: BENCH_TEXT, the bible of Debian's bible-kjv, or this repository's own pages."""
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


def save(result):
    os.makedirs(OUT, exist_ok=True)
    with open(os.path.join(OUT, result["name"] + ".json"), "w") as file:
        json.dump(result, file, indent=2)
        file.write("\n")


def write(name, value, unit, peer, peer_value, ratios, goal, **more):
    """One result: a JSON file and a line for people."""
    ordered = sorted(ratios)
    q1, middle, q3 = statistics.quantiles(ordered, n=4, method="inclusive") if len(ordered) > 1 else ordered * 3
    result = {"name": name, "value": value, "unit": unit, "peer": peer, "peer_value": peer_value, "ratio": middle, "goal": goal,
              "cpu": cpu(), "spread": {"min": ordered[0], "q1": q1, "q3": q3, "max": ordered[-1]}, "n_pairs": len(ordered), **more}
    save(result)
    verdict = "met" if middle >= goal else "missed"
    say(f"{name:17s} {value:.5g} {unit}; {peer}: {peer_value:.5g}; ratio {middle:.3f}"
        f" (quartiles {q1:.3f} .. {q3:.3f}, {len(ordered)} pairs), goal {goal:.3g}: {verdict}")
    return result


def in_turn(first, second, n=None):
    """Pairs of (first(), second())."""
    return [(first(), second()) for _ in range(n or PAIRS)]
