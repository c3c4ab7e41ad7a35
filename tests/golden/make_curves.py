#!/usr/bin/env python3
"""The loss and gradient norm of a tiny training, step by step, as PyTorch computes them in f64: "exact" is what every exact
strategy must follow at any number of ranks; strategies with rules of their own have a curve each.

usage: HALLEY_CURVE_INPUTS=FOLDER test_laws     (writes FOLDER/checkpoint-0 and FOLDER/batches.json)
       make_curves.py FOLDER                    (torch 2.13.0 and transformers 5.24.0; writes curves/NAME.json beside itself)
Weights, rows and learning rates come from the test; model, loss, gradient, clipping and AdamW are PyTorch's. Micro-batches lie in
the order in which two ranks take them: [micro-batch][rank].
"""
import copy
import json
import os
import sys

import torch
import transformers

RANKS = 2
torch.set_num_threads(1)
folder = sys.argv[1]
with open(os.path.join(folder, "batches.json"), encoding="utf-8") as f:
    inputs = json.load(f)
rates = inputs["learning_rates"]
micros = [inputs["micro_batches"][i:i + RANKS] for i in range(0, len(inputs["micro_batches"]), RANKS)]


class Run:
    """A model with its AdamW, and the curve of what was committed."""

    def __init__(self):
        self.model = transformers.AutoModelForCausalLM.from_pretrained(
            os.path.join(folder, "checkpoint-0"), dtype=torch.float64, attn_implementation="eager").train()
        self.params = list(self.model.parameters())
        self.optimizer = torch.optim.AdamW(
            [{"params": [p for p in self.params if p.dim() == 2], "weight_decay": inputs["weight_decay"]},
             {"params": [p for p in self.params if p.dim() != 2], "weight_decay": 0.0}],
            betas=(inputs["adam_beta1"], inputs["adam_beta2"]), eps=inputs["adam_epsilon"])
        self.loss, self.norm = [], []

    def weights(self):
        return [p.detach().clone() for p in self.params]

    def set_weights(self, weights):
        with torch.no_grad():
            for p, w in zip(self.params, weights):
                p.copy_(w)

    def gradient(self, sequences):
        """(sums of gradients, sum of losses, tokens) over sequences, at the weights there are."""
        self.optimizer.zero_grad()
        total, n = torch.zeros((), dtype=torch.float64), 0
        for sequence in sequences:
            tokens, targets = (torch.tensor(sequence[key]) for key in ("tokens", "targets"))
            logits = self.model(tokens[None], use_cache=False).logits[0]
            total = total + torch.nn.functional.cross_entropy(logits, targets, ignore_index=-1, reduction="sum")
            n += int((targets >= 0).sum())
        total.backward()
        return [p.grad.clone() for p in self.params], total.item(), n

    def update(self, gradient, rate):
        """One clipped step; returns the norm before clipping."""
        sums, _, n = gradient
        for p, g in zip(self.params, sums):
            p.grad = g / n
        norm = torch.nn.utils.clip_grad_norm_(self.params, inputs["max_grad_norm"])
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.step()
        return norm.item()

    def attempt(self, gradient, rate):
        """The weights that such a step would give; nothing changes."""
        weights, state = self.weights(), copy.deepcopy(self.optimizer.state_dict())
        self.update(gradient, rate)
        tried = self.weights()
        self.set_weights(weights)
        self.optimizer.load_state_dict(state)
        return tried

    def commit(self, gradient, rate):
        self.norm.append(self.update(gradient, rate))
        self.loss.append(gradient[1] / gradient[2])


def add(a, b):
    return [x + y for x, y in zip(a[0], b[0])], a[1] + b[1], a[2] + b[2]


def of_all(k):
    """Sequences of a micro-batch, of all ranks."""
    return [sequence for rank in micros[k] for sequence in rank]


def write(name, run, **more):
    curve = {"made_by": "make_curves.py", "torch": torch.__version__, "transformers": transformers.__version__, **more,
             "loss": [float(f"{x:.12g}") for x in run.loss], "grad_norm": [float(f"{x:.12g}") for x in run.norm]}
    out = os.path.join(os.path.dirname(os.path.abspath(__file__)), "curves", name + ".json")
    os.makedirs(os.path.dirname(out), exist_ok=True)
    with open(out, "w", encoding="utf-8") as f:
        json.dump(curve, f, indent=1)
        f.write("\n")


def exact():
    run = Run()
    for t, rate in enumerate(rates):
        run.commit(run.gradient(of_all(2 * t) + of_all(2 * t + 1)), rate)
    write("exact", run)


def acco():
    """One micro-batch in each round, of each rank."""
    run, k = Run(), 1
    pending = run.gradient(of_all(0))
    for rate in rates:
        estimate = run.attempt(pending, rate)
        pending = add(pending, run.gradient(of_all(k)))
        theta = run.weights()
        run.set_weights(estimate)
        following = run.gradient(of_all(k + 1))
        run.set_weights(theta)
        run.commit(pending, rate)
        pending = following
        k += 2
    write("acco", run)


def delayed(name, warmup, guesses):
    """Two micro-batches a step."""
    run, k, pending = Run(), 0, None
    in_work = run.weights()
    for t, rate in enumerate(rates):
        def take():
            nonlocal k
            k += 2
            return run.gradient(of_all(k - 2) + of_all(k - 1))
        theta = run.weights()
        run.set_weights(in_work)
        if t < warmup or pending is None:
            pending = take()
        following = take() if t >= warmup and 2 * (len(rates) + 1) > k + 1 else None
        run.set_weights(theta)
        run.commit(pending, rate)
        in_work = run.attempt(pending, rate) if guesses and t >= warmup else run.weights()
        pending = following
    write(name, run, options={name + ".warmup_steps": str(warmup)})


def apart(name, every, outer_lr, beta, fragments=1, delay=0, alpha=0.0, **options):
    """Each rank trains by itself; fragments of blocks take outer steps with Nesterov's momentum, `delay` steps after their
    exchange began. The norm is rank 0's."""
    runs = [Run() for _ in range(RANKS)]
    names = [n for n, _ in runs[0].model.named_parameters()]
    head = runs[0].model.config.num_hidden_layers + 1
    blocks = [0 if "embed_tokens" in n else int(n.split(".")[2]) + 1 if ".layers." in n else head for n in names]
    outer = runs[0].weights()
    momentum, mean = ([torch.zeros_like(p) for p in outer] for _ in range(2))

    def due(block, step):
        return step > 0 and (step - block % fragments * every // fragments) % every == 0

    def outer_step(step, block, theta, m, delta, own):
        if due(block, step):
            delta.copy_(sum(theta - p for p in own) / RANKS)
        if due(block, step - delay):
            m.mul_(beta).add_(delta)
            theta.sub_(outer_lr * (delta + beta * m))
            for p in own:
                p.mul_(alpha).add_((1 - alpha) * theta)

    curve = Run()
    for t, rate in enumerate(rates):
        gradients = [run.gradient(micros[2 * t][rank] + micros[2 * t + 1][rank]) for rank, run in enumerate(runs)]
        norms = [run.update(gradient, rate) for run, gradient in zip(runs, gradients)]
        curve.norm.append(norms[0])
        curve.loss.append(sum(g[1] for g in gradients) / sum(g[2] for g in gradients))
        with torch.no_grad():
            for i, block in enumerate(blocks):
                outer_step(t + 1, block, outer[i], momentum[i], mean[i], [run.params[i] for run in runs])
    write(name, curve, options={"sync_every": str(every), **{f"{name}.{key}": value for key, value in options.items()}})


exact()
acco()
delayed("dpu", 5, False)
delayed("wp", 5, True)
apart("diloco", 4, 0.7, 0.9)
apart("local_sgd", 4, 1.0, 0.0)
apart("streaming_diloco", 4, 0.4, 0.9, fragments=2, delay=1, alpha=0.5, codec="f32")
