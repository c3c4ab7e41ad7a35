#!/usr/bin/env python3
"""The loss and gradient norm of a tiny training, step by step, as PyTorch computes them in f64: what every exact strategy must
follow at any number of ranks.

usage: HALLEY_CURVE_INPUTS=FOLDER test_laws     (writes FOLDER/checkpoint-0 and FOLDER/batches.json)
       make_curves.py FOLDER                    (torch 2.13.0 and transformers 5.24.0; writes curves/exact.json beside itself)
Weights, rows and learning rates come from the test; model, loss, gradient, clipping and AdamW are PyTorch's.
"""
import json
import os
import sys

import torch
import transformers

torch.set_num_threads(1)
folder = sys.argv[1]
with open(os.path.join(folder, "batches.json"), encoding="utf-8") as f:
    inputs = json.load(f)
model = transformers.AutoModelForCausalLM.from_pretrained(os.path.join(folder, "checkpoint-0"), dtype=torch.float64,
                                                          attn_implementation="eager").train()
matrices = [p for p in model.parameters() if p.dim() == 2]
vectors = [p for p in model.parameters() if p.dim() != 2]
optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": inputs["weight_decay"]},
                               {"params": vectors, "weight_decay": 0.0}],
                              betas=(inputs["adam_beta1"], inputs["adam_beta2"]), eps=inputs["adam_epsilon"])


def loss_sum(sequence):
    tokens, targets = (torch.tensor(sequence[key]) for key in ("tokens", "targets"))
    logits = model(tokens[None], use_cache=False).logits[0]
    return torch.nn.functional.cross_entropy(logits, targets, ignore_index=-1, reduction="sum")


curve = {"made_by": "make_curves.py", "torch": torch.__version__, "transformers": transformers.__version__,
         "loss": [], "grad_norm": []}
for step in inputs["steps"]:
    optimizer.zero_grad()
    n = sum(target >= 0 for sequence in step["sequences"] for target in sequence["targets"])
    total = sum(loss_sum(sequence) for sequence in step["sequences"]) / n
    total.backward()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), inputs["max_grad_norm"])
    for group in optimizer.param_groups:
        group["lr"] = step["learning_rate"]
    optimizer.step()
    curve["loss"].append(float(f"{total.item():.12g}"))
    curve["grad_norm"].append(float(f"{norm.item():.12g}"))
out = os.path.join(os.path.dirname(os.path.abspath(__file__)), "curves", "exact.json")
os.makedirs(os.path.dirname(out), exist_ok=True)
with open(out, "w", encoding="utf-8") as f:
    json.dump(curve, f, indent=1)
    f.write("\n")
