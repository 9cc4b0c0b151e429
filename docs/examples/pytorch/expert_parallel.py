# SPDX-License-Identifier: Apache-2.0
"""Trains blocks whose experts the ranks share, a GPU each: torchrun --nproc-per-node 2 expert_parallel.py"""
import os
import sys

import torch
import torch.distributed as dist

import moejit.torch

HIDDEN, INTERMEDIATE, EXPERTS, TOP_K, TOKENS = 64, 32, 8, 2, 32


class Block(torch.nn.Module):
    def __init__(self, device, process_group):
        super().__init__()
        self.router = torch.nn.Linear(HIDDEN, EXPERTS, dtype=torch.bfloat16, device=device)
        # Each rank has EXPERTS / ranks of the experts. TOKENS is the most that one rank brings.
        self.experts = moejit.torch.Experts(EXPERTS, HIDDEN, INTERMEDIATE, TOP_K, max_tokens=TOKENS, device=device,
                                            process_group=process_group)

    def forward(self, x):
        probs, ids = self.router(x).float().softmax(-1).topk(TOP_K)
        return x + self.experts(x, ids, probs)


rank, ranks, local_rank = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
if torch.cuda.device_count() < ranks:
    if rank == 0:
        print(f"{ranks} ranks need a GPU each, this host has {torch.cuda.device_count()}: nothing was trained")
    sys.exit(0)
device = torch.device("cuda", local_rank)
torch.cuda.set_device(device)
dist.init_process_group("nccl", device_id=device)

torch.manual_seed(0)  # the same on all ranks, for the routers; each keeps its own part of the experts
model = torch.nn.Sequential(*(Block(device, dist.group.WORLD) for _ in range(2)))
of_experts = {parameter for block in model for parameter in block.experts.parameters()}
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
generator = torch.Generator().manual_seed(rank)
tokens = torch.randn(TOKENS - 4 * rank, HIDDEN, generator=generator).to(torch.bfloat16).to(device)  # T may differ
for step in range(4):
    loss = (model(tokens) - tokens).float().square().mean()
    loss.backward()
    for parameter in model.parameters():
        # The step's loss is the mean of the ranks' losses. A gradient of experts is a sum over the tokens of all ranks.
        if parameter not in of_experts:
            dist.all_reduce(parameter.grad)
        parameter.grad /= ranks
    optimizer.step()
    optimizer.zero_grad()
    dist.all_reduce(loss)
    if rank == 0:
        print(f"step {step}: loss {loss.item() / ranks:.4f}")
moejit.check_status(model[0].experts.status())  # of all layers on this process group; waits for the GPU
dist.destroy_process_group()
