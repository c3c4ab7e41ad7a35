#!/usr/bin/env python3
"""Peer: torch.distributed over gloo between processes of this machine. Answers the questions of bench_collectives on
rank 0's standard input ("KIND BYTES").
usage: gloo_collectives.py RANKS"""
import os
import socket
import statistics
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

KINDS = ["all-reduce", "reduce-scatter", "all-gather", "barrier"]
BATCHES, MOST = 3, 256 << 20


def call(kind, data, parts, rank):
    if kind == 0:
        dist.all_reduce(data)
    elif kind == 2:
        dist.all_gather(parts, parts[rank])
    elif kind == 3:
        dist.barrier()


def measure(kind, size, data, rank, ranks):
    vector = data[: size // 4]
    parts = list(vector.chunk(ranks)) if kind == 2 else []
    times = 50 if size <= 65536 else 10 if size <= 1 << 20 else 2 if size <= 16 << 20 else 1
    call(kind, vector, parts, rank)
    batches = []
    for _ in range(BATCHES):
        dist.barrier()
        start = time.perf_counter()
        for _ in range(times):
            call(kind, vector, parts, rank)
        took = torch.tensor([(time.perf_counter() - start) / times], dtype=torch.double)
        dist.all_reduce(took, op=dist.ReduceOp.MAX)
        batches.append(took.item())
    return statistics.median(batches)


def run(rank, ranks, port, questions):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), GLOO_SOCKET_IFNAME="lo")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=ranks)
    data = torch.zeros(MOST // 4)
    if rank == 0:
        print(f"ready PyTorch {torch.__version__} gloo", flush=True)
    lines = os.fdopen(questions, "r") if rank == 0 else None
    while True:
        question = torch.tensor([-1, 0])
        if rank == 0:
            words = lines.readline().split()
            if len(words) == 2 and words[0] in KINDS:
                question = torch.tensor([KINDS.index(words[0]), int(words[1])])
        dist.broadcast(question, 0)
        kind, size = question.tolist()
        if kind < 0:
            break
        seconds = measure(kind, size, data, rank, ranks)
        if rank == 0:
            print(f"{seconds:.9f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    n = int(sys.argv[1])
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port_ = free.getsockname()[1]
    mp.set_start_method("fork")
    others = [mp.Process(target=run, args=(r, n, port_, -1)) for r in range(1, n)]
    for other in others:
        other.start()
    run(0, n, port_, os.dup(0))
    for other in others:
        other.join()
