#!/usr/bin/env python3
"""Golden values of torch.optim.AdamW and SGD (PyTorch 2.13.0, f64 and f32 on the CPU), 100 steps on a few parameters.

    python3 -m venv /tmp/golden && /tmp/golden/bin/pip install torch==2.13.0
    /tmp/golden/bin/python tests/golden/make_optimizers.py > tests/golden/optimizers.h

Gradients and starting values come from integers, so that the C test makes the same ones without this script.
"""
import torch

N, STEPS = 9, 100
assert torch.__version__.split("+")[0] == "2.13.0"


def pseudo(i):
    """In [-1, 1), exact in f32."""
    return ((i * 2654435761) % 2**32 // 2**12 - 2**19) / 2**19


def run(make, dtype):
    p = torch.nn.Parameter(torch.tensor([pseudo(i) for i in range(N)], dtype=dtype))
    optimizer = make([p])
    for step in range(STEPS):
        grad = [pseudo(1000 + step * N + i) * 10.0 ** -(i % 5) for i in range(N)]
        grad = torch.tensor(grad, dtype=torch.float32)  # as the C test rounds them
        p.grad = grad.to(dtype)
        optimizer.step()
    return p.detach().tolist()


CASES = {
    "adamw": lambda p: torch.optim.AdamW(p, lr=3e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.1, foreach=False),
    "adamw_no_decay": lambda p: torch.optim.AdamW(p, lr=1e-2, betas=(0.8, 0.95), eps=1e-6, weight_decay=0, foreach=False),
    "sgd": lambda p: torch.optim.SGD(p, lr=0.05, weight_decay=0.01, foreach=False),
    "sgd_momentum": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, weight_decay=0.01, foreach=False),
    "sgd_nesterov": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, nesterov=True, foreach=False),
}

print(f"/* Written by make_optimizers.py with PyTorch 2.13.0: parameters after {STEPS} steps in f64. */")
print("#ifndef HALLEY_GOLDEN_OPTIMIZERS_H\n#define HALLEY_GOLDEN_OPTIMIZERS_H\n")
print(f"enum {{ GOLDEN_N = {N}, GOLDEN_STEPS = {STEPS} }};")
for name, make in CASES.items():
    values = ",\n    ".join(repr(x) for x in run(make, torch.float64))
    print(f"static const double golden_{name}[GOLDEN_N] = {{\n    {values}}};")
    f32 = max(abs(a - b) for a, b in zip(run(make, torch.float32), run(make, torch.float64)))
    print(f"/* PyTorch's own f32 run differs from this by at most {f32:.2g}. */")
print("\n#endif")
