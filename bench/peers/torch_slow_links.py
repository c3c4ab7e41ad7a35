#!/usr/bin/env python3
"""Peer of `make bench-slow-links`: DistributedDataParallel over gloo, one rank of it (torchrun's variables say which).
usage: torch_slow_links.py dense|powersgd TRAIN HELD_OUT LAYERS WIDTH HEADS TOKENS ROWS STEPS WARMUP RATE EVERY
Rank 0 prints "step N SECONDS LOSS" after every EVERY steps: wall clock since the first one began, evaluations included, and the
held-out loss; at the end "sent BYTES" of its interface. powersgd: PyTorch's own hook, rank 4, dense in its first ten steps.
Rows are TOKENS bytes of the text from multiples of TOKENS, in a random order that all ranks share; rank r has the r-th ROWS of each
step, as in Halley."""
import sys
import time

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

import torch_worker

KIND, TRAIN, HELD_OUT = sys.argv[1:4]
LAYERS, WIDTH, HEADS, TOKENS, ROWS, STEPS, WARMUP = (int(word) for word in sys.argv[4:11])
RATE, EVERY = float(sys.argv[11]), int(sys.argv[12])
VOCABULARY, EVAL_ROWS = 257, 16


def rows_of(path):
    """[rows, TOKENS + 1]: each row with the byte behind it; what has none is left out."""
    with open(path, "rb") as file:
        text = torch.frombuffer(bytearray(file.read()), dtype=torch.uint8).long()
    return text.unfold(0, TOKENS + 1, TOKENS)


def make_model():
    torch_worker.LAYERS, torch_worker.WIDTH, torch_worker.HEADS = LAYERS, WIDTH, HEADS
    torch_worker.VOCABULARY, torch_worker.POSITIONS = VOCABULARY, TOKENS
    torch.manual_seed(0)
    model = torch_worker.GPT2()
    for name, p in model.named_parameters():  # GPT-2: what is added to the residual stream starts smaller
        if name.endswith(("proj.weight", "down.weight")):
            nn.init.normal_(p, std=0.02 / (2 * LAYERS) ** 0.5)
        elif p.dim() == 1 and name.endswith("bias"):
            nn.init.zeros_(p)
    return model


def make_optimizer(model):
    matrices = [p for p in model.parameters() if p.dim() > 1]
    vectors = [p for p in model.parameters() if p.dim() == 1]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=RATE, betas=(0.9, 0.95), eps=1e-8, fused=True)


def order(n_rows):
    """Rows for ever: one permutation after the other, the same on all ranks."""
    generator = torch.Generator().manual_seed(42)
    while True:
        yield from torch.randperm(n_rows, generator=generator).tolist()


def loss_of(model, rows):
    return model(rows[:, :-1], rows[:, 1:].contiguous())


def evaluate(model, held_out, rank, ranks):
    """Batches dealt to the ranks; the mean over all of them."""
    sums = torch.zeros(2)
    with torch.no_grad():
        for batch in held_out.split(EVAL_ROWS)[rank::ranks]:
            sums += torch.tensor([loss_of(model, batch).item() * len(batch), len(batch)])
    dist.all_reduce(sums)
    return (sums[0] / sums[1]).item()


def sent():
    with open("/sys/class/net/eth0/statistics/tx_bytes") as file:
        return int(file.read())


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    train, held_out = rows_of(TRAIN), rows_of(HELD_OUT)
    model = make_model()
    parallel = DistributedDataParallel(model, gradient_as_bucket_view=True)
    if KIND == "powersgd":
        state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=4, start_powerSGD_iter=10)
        parallel.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    optimizer, numbers = make_optimizer(model), order(len(train))
    dist.barrier()
    start, before = time.perf_counter(), sent()
    for step in range(1, STEPS + 1):
        picked = [next(numbers) for _ in range(ROWS * ranks)][rank * ROWS:(rank + 1) * ROWS]
        for group in optimizer.param_groups:
            group["lr"] = RATE * min(1, step / WARMUP)
        loss_of(parallel, train[picked]).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if step % EVERY == 0 or step == STEPS:
            loss = evaluate(model, held_out, rank, ranks)
            if rank == 0:
                print(f"step {step} {time.perf_counter() - start:.3f} {loss:.6f}", flush=True)
    if rank == 0:
        print(f"sent {sent() - before}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
