#!/usr/bin/env python3
"""Tiny Hugging Face models with the values transformers computes on them: logits, loss, gradients.

usage: make_models.py        (torch 2.13.0 and transformers in the environment; writes models/NAME beside itself)
Random weights of deviation 0.2 and seed 0; f32, one thread, eager attention. test_model_golden.c reads the result.
"""
import json
import os

import torch
import transformers
from transformers import GPT2Config, LlamaConfig, Qwen2Config, Qwen3Config, AutoModelForCausalLM

torch.set_num_threads(1)
HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "models")
COMMON = dict(vocab_size=97, bos_token_id=0, eos_token_id=0)
LLAMA = dict(COMMON, hidden_size=24, intermediate_size=40, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=64)
CONFIGS = {
    "gpt2": GPT2Config(**COMMON, n_embd=24, n_layer=2, n_head=3, n_positions=64),
    "llama": LlamaConfig(**LLAMA, head_dim=10, tie_word_embeddings=False),
    "qwen2": Qwen2Config(**LLAMA, tie_word_embeddings=True),
    "qwen3": Qwen3Config(**LLAMA, head_dim=8, tie_word_embeddings=False),
}


def listed(tensor):
    return [float(f"{x:.9g}") for x in tensor.detach().flatten().tolist()]


for name, config in CONFIGS.items():
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").float().eval()
    for p in model.parameters():
        torch.nn.init.normal_(p, std=0.2)
    folder = os.path.join(HERE, name)
    model.save_pretrained(folder)
    for extra in ("generation_config.json",):
        path = os.path.join(folder, extra)
        if os.path.exists(path):
            os.remove(path)
    ids = torch.randint(97, (1, 41))
    out = model(ids, labels=ids, use_cache=False)
    out.loss.backward()
    params = dict(model.named_parameters())
    golden = {
        "made_by": "make_models.py", "torch": torch.__version__, "transformers": transformers.__version__,
        "ids": ids[0].tolist(), "last_logits": listed(out.logits[0, -1]), "loss": listed(out.loss)[0],
        "grad_l2": {k: listed(p.grad.norm())[0] for k, p in params.items()},
        "grads": [{"tensor": k, "row": 1 if p.dim() == 2 else None,
                   "values": listed(p.grad[1, :6] if p.dim() == 2 else p.grad[:6])} for k, p in params.items()],
    }
    with open(os.path.join(folder, "golden.json"), "w", encoding="utf-8") as f:
        json.dump(golden, f, indent=1)
        f.write("\n")
