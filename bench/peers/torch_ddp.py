#!/usr/bin/env python3
"""Peer of `make bench-links`: DistributedDataParallel over gloo, one rank of it (torchrun's variables say which).
usage: torch_ddp.py LAYERS WIDTH HEADS VOCABULARY TOKENS ROWS STEPS
Rank 0 prints "step SECONDS" for each step: forward, backward, exchange, clipping, AdamW."""
import sys
import time

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel

import torch_worker

LAYERS, WIDTH, HEADS, VOCABULARY, TOKENS, ROWS, STEPS = (int(word) for word in sys.argv[1:])


def main():
    torch.set_num_threads(1)
    torch_worker.LAYERS, torch_worker.WIDTH, torch_worker.HEADS = LAYERS, WIDTH, HEADS
    torch_worker.VOCABULARY, torch_worker.POSITIONS = VOCABULARY, TOKENS
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    model = DistributedDataParallel(torch_worker.GPT2())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    tokens, targets = torch.randint(256, (2, ROWS, TOKENS))
    for _ in range(STEPS):
        start = time.perf_counter()
        model(tokens, targets).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if dist.get_rank() == 0:
            print(f"step {time.perf_counter() - start:.6f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
