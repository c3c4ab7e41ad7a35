#!/usr/bin/env python3
"""The shortest honest PyTorch script: import, a tiny model, one training step. bench/run.py takes the time until "step 1"."""
import torch
import torch.nn as nn
import torch.nn.functional as F

model = nn.Sequential(nn.Embedding(257, 64),
                      nn.TransformerEncoderLayer(64, 4, 256, dropout=0.0, activation="gelu", batch_first=True, norm_first=True),
                      nn.Linear(64, 257))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
tokens = torch.randint(257, (4, 33))
loss = F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
loss.backward()
optimizer.step()
print("step 1", loss.item(), flush=True)
