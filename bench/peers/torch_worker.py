#!/usr/bin/env python3
"""The peer's side of bench/run.py: PyTorch on the CPU, one subject per process, one measurement per line of input.

usage: torch_worker.py SUBJECT [--bf16] [--compile] [--threads N] [-T TOKENS]
  step        a training step of GPT-2 124M: 4 rows of 256 tokens, AdamW, clipping       asks: step, loss
  attention   scaled_dot_product_attention, causal, forward and backward, 12 heads of 64  asks: run
  head        linear + cross_entropy, forward and backward, V 50,257, 1,024 rows          asks: run
  head-fused  the same through torch.nn.functional.linear_cross_entropy, where it exists  asks: run
Every subject answers peak and resident (bytes). Not a fast path: what a careful user of PyTorch would write."""
import argparse
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

VOCABULARY, POSITIONS, WIDTH, HEADS, LAYERS = 50257, 1024, 768, 12, 12


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        rows, tokens, _ = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(rows, tokens, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(mixed.transpose(1, 2).reshape(rows, tokens, WIDTH))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class GPT2(nn.Module):
    def __init__(self):
        super().__init__()
        self.token, self.position = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(POSITIONS, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH)
        for p in self.parameters():  # GPT-2's own scale: a wide start makes denormals in the softmax
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)

    def forward(self, tokens, targets):
        x = self.token(tokens) + self.position(torch.arange(tokens.shape[1]))
        for layer in self.layers:
            x = layer(x)
        logits = F.linear(self.norm(x), self.token.weight)
        return F.cross_entropy(logits.view(-1, VOCABULARY).float(), targets.view(-1))


def step_subject(args):
    model = GPT2()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    forward = torch.compile(model) if args.compile else model
    tokens, targets = torch.randint(VOCABULARY, (2, 4, 256))
    last = [0.0]

    def step():
        with torch.autocast("cpu", torch.bfloat16, enabled=args.bf16):
            loss = forward(tokens, targets)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        last[0] = loss.item()

    return {"step": step}, {"loss": lambda: last[0]}


def attention_subject(args):
    kind = torch.bfloat16 if args.bf16 else torch.float32
    q, k, v = (torch.randn(1, HEADS, args.T, 64).to(kind).requires_grad_() for _ in range(3))
    gradient = torch.randn(1, HEADS, args.T, 64).to(kind)

    def run():
        q.grad = k.grad = v.grad = None
        F.scaled_dot_product_attention(q, k, v, is_causal=True).backward(gradient)

    return {"run": run}, {}


def head_subject(args):
    kind = torch.bfloat16 if args.bf16 else torch.float32
    x = torch.randn(1024, WIDTH).to(kind).requires_grad_()
    weight = (0.02 * torch.randn(VOCABULARY, WIDTH)).to(kind).requires_grad_()
    targets = torch.randint(VOCABULARY, (1024,))

    def plain(x, weight):
        return F.cross_entropy(F.linear(x, weight).float(), targets)

    def fused(x, weight):
        return F.linear_cross_entropy(x, weight, targets)

    loss = fused if args.subject == "head-fused" else plain
    if args.compile:
        loss = torch.compile(loss)

    def run():
        x.grad = weight.grad = None
        loss(x, weight).backward()

    return {"run": run}, {}


def proc_bytes(key):
    with open("/proc/self/status") as status:
        return next(1024 * int(line.split()[1]) for line in status if line.startswith(key + ":"))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("subject", choices=["step", "attention", "head", "head-fused"])
    parser.add_argument("--bf16", action="store_true")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("-T", type=int, default=2048)
    args = parser.parse_args()
    if args.threads:
        torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    subject = {"step": step_subject, "attention": attention_subject}.get(args.subject, head_subject)
    timed, told = subject(args)
    told.update(peak=lambda: proc_bytes("VmHWM"), resident=lambda: proc_bytes("VmRSS"))
    print(f"ready {torch.get_num_threads()} threads, PyTorch {torch.__version__.split('+')[0]}", flush=True)
    for line in sys.stdin:
        question = line.strip()
        if question in timed:
            start = time.perf_counter()
            timed[question]()
            print(f"{time.perf_counter() - start:.9g}", flush=True)
        else:
            print(f"{told[question]():.9g}", flush=True)


if __name__ == "__main__":
    main()
