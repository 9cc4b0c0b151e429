# SPDX-License-Identifier: Apache-2.0
"""Trains blocks with experts that FSDP2 shards, whose weights travel as FP8: torchrun --nproc-per-node 2 fsdp2.py"""
import os

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

import moejit.torch
import moejit.torch.fsdp

HIDDEN, INTERMEDIATE, EXPERTS, TOP_K, TOKENS = 64, 32, 8, 2, 32


class Block(torch.nn.Module):
    def __init__(self, device):
        super().__init__()
        self.router = torch.nn.Linear(HIDDEN, EXPERTS, dtype=torch.bfloat16, device=device)
        self.experts = moejit.torch.Experts(EXPERTS, HIDDEN, INTERMEDIATE, TOP_K, max_tokens=TOKENS, device=device)

    def forward(self, x):
        probs, ids = self.router(x).float().softmax(-1).topk(TOP_K)
        return x + self.experts(x, ids, probs)


rank = int(os.environ["RANK"])
device = torch.device("cpu")
if torch.cuda.device_count() >= int(os.environ["LOCAL_WORLD_SIZE"]):
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
dist.init_process_group("gloo" if device.type == "cpu" else "nccl")

torch.manual_seed(0)
model = torch.nn.Sequential(Block(device), Block(device))
moejit.torch.fsdp.enable_fp8_all_gather(model)
for block in model:
    fully_shard(block)
fully_shard(model)

optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
generator = torch.Generator().manual_seed(rank)
tokens = torch.randn(TOKENS, HIDDEN, generator=generator).to(torch.bfloat16).to(device)
for step in range(4):
    loss = (model(tokens) - tokens).float().square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    dist.all_reduce(loss)
    if rank == 0:
        print(f"step {step}: loss {loss.item() / dist.get_world_size():.4f}")
dist.destroy_process_group()
