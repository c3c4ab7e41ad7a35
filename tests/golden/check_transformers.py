"""Does transformers load a checkpoint folder of ours, with nothing missing, unexpected or mismatched?

usage: check_transformers.py FOLDER...       (a checkpoint-N, or a folder that holds folders of checkpoints)
Made with torch 2.13.0 and transformers 5.24.0 on the CPU. Prints one line a folder and exits 1 when one of them fails.
With --logits IDS (numbers separated by commas) the last position's logits are printed as JSON, to compare with ours.
"""
import argparse
import json
import pathlib
import sys
import warnings

import torch
import transformers
from safetensors.torch import load_file


def check(folder, ids):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model, info = transformers.AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True, dtype=torch.float32)
    problems = [f"{key}: {sorted(map(str, info[key]))}" for key in info if info[key]]
    problems += [f"warning: {w.message}" for w in caught]
    stored = load_file(folder / "model.safetensors")
    state = model.state_dict()
    tied = model.config.tie_word_embeddings
    if set(state) - set(stored) != ({"lm_head.weight"} if tied else set()):
        problems.append(f"not stored: {sorted(set(state) - set(stored))}")
    problems += [f"differs: {name}" for name in stored if not torch.equal(stored[name], state[name])]
    if tied and state["lm_head.weight"].data_ptr() != model.get_input_embeddings().weight.data_ptr():
        problems.append("the head is not tied")
    ours = json.loads((folder / "config.json").read_text())
    for key, value in ours.items():
        if key in ("torch_dtype", "dtype", "rope_scaling", "rope_theta"):
            continue
        if getattr(model.config, key, None) != value:
            problems.append(f"config {key}: ours {value}, theirs {getattr(model.config, key, None)}")
    with torch.no_grad():
        tokens = torch.tensor([ids or [i % model.config.vocab_size for i in range(12)]])
        logits = model(tokens).logits[0, -1]
    if not torch.isfinite(logits).all():
        problems.append("logits are not finite")
    print(f"{folder}: {type(model).__name__}, {len(stored)} tensors: {'; '.join(problems) or 'good'}")
    if ids:
        print(json.dumps(logits.tolist()))
    return not problems


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folders", nargs="+", type=pathlib.Path)
    parser.add_argument("--logits", type=lambda text: [int(i) for i in text.split(",")])
    arguments = parser.parse_args()
    folders = []
    for folder in arguments.folders:
        folders += [folder] if (folder / "config.json").exists() else sorted(p.parent for p in folder.rglob("config.json"))
    good = [check(folder, arguments.logits) for folder in folders]
    sys.exit(0 if good and all(good) else 1)


if __name__ == "__main__":
    main()
