"""llm.c's train_gpt2.c on random weights and tokens: build it for 4 rows of 256 tokens, run a few steps, read its times."""
import array
import os
import random
import re
import shutil
import subprocess
import struct

LAYERS, WIDTH, HEADS, VOCABULARY, PADDED, POSITIONS = 12, 768, 12, 50257, 50304, 1024


def floats(file, n, value=None):
    """n floats: a constant, or small random numbers (repeated: their values do not matter for speed)."""
    if value is not None:
        file.write(struct.pack("f", value) * n)
        return
    some = array.array("f", (random.gauss(0, 0.02) for _ in range(65521)))
    block = some.tobytes()
    whole, rest = divmod(n, len(some))
    for _ in range(whole):
        file.write(block)
    file.write(block[:4 * rest])


def write_weights(path):
    """The checkpoint layout of train_gpt2.c, version 3: a header of 256 words, then its sixteen tensors."""
    L, C = LAYERS, WIDTH
    with open(path, "wb") as file:
        head = [20240326, 3, POSITIONS, VOCABULARY, L, HEADS, C, PADDED]
        file.write(struct.pack("256i", *head, *[0] * (256 - len(head))))
        for n, value in ((PADDED * C, None), (POSITIONS * C, None), (L * C, 1), (L * C, 0), (L * 3 * C * C, None), (L * 3 * C, 0),
                         (L * C * C, None), (L * C, 0), (L * C, 1), (L * C, 0), (L * 4 * C * C, None), (L * 4 * C, 0),
                         (L * 4 * C * C, None), (L * C, 0), (C, 1), (C, 0)):
            floats(file, n, value)


def write_tokens(path, n):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(struct.pack("256i", 20240520, 1, n, *[0] * 253))
        file.write(array.array("H", (random.randrange(VOCABULARY) for _ in range(n))).tobytes())


def build(tree, folder):
    """A copy of the tree's C files with B 4, T 256 and three steps, no samples; returns the program and its folder."""
    if not os.path.exists(os.path.join(tree, "train_gpt2.c")):
        raise OSError(f"LLMC_TREE: no train_gpt2.c in {tree}")
    random.seed(0)
    os.makedirs(folder, exist_ok=True)
    shutil.copytree(os.path.join(tree, "llmc"), os.path.join(folder, "llmc"), dirs_exist_ok=True)
    with open(os.path.join(tree, "train_gpt2.c")) as file:
        source = file.read()
    for old, new in ((r"int B = \d+;", "int B = 4;"), (r"int T = \d+;", "int T = 256;"), (r"step <= \d+", "step <= 2"),
                     (r"step > 0 && step % 20 == 0", "0"), (r"step % 10 == 0", "0")):
        source, n = re.subn(old, new, source)
        if n == 0:
            raise OSError(f"train_gpt2.c has changed: nothing matches {old}")
    with open(os.path.join(folder, "train.c"), "w") as file:
        file.write(source)
    subprocess.check_call(["gcc", "-Ofast", "-march=native", "-fopenmp", "-DOMP", "-w", "train.c", "-o", "train", "-lm"], cwd=folder)
    if not os.path.exists(os.path.join(folder, "gpt2_124M.bin")):
        write_weights(os.path.join(folder, "gpt2_124M.bin"))
        for name in ("train", "val"):
            write_tokens(os.path.join(folder, "dev", "data", "tinyshakespeare", f"tiny_shakespeare_{name}.bin"), 40000)
    return os.path.abspath(os.path.join(folder, "train")), folder


def step_seconds(program, folder, threads):
    """Median of its steps but the first, of one run."""
    done = subprocess.run([program], cwd=folder, env=dict(os.environ, OMP_NUM_THREADS=threads), capture_output=True, text=True)
    times = sorted(float(x) for x in re.findall(r"took ([\d.]+) ms", done.stdout)[1:])
    if not times:
        raise OSError("llm.c printed no times:\n" + done.stdout + done.stderr)
    return times[len(times) // 2] * 1e-3
