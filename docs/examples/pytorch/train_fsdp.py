# SPDX-License-Identifier: Apache-2.0
"""Trains a small Qwen3-MoE of transformers, its experts in FP8, with FSDP2.

  torchrun --nproc-per-node 2 train_fsdp.py [cpu | cuda]
"""
import sys

import torch
import torch.distributed as dist
import transformers
from torch.distributed.fsdp import fully_shard

import moejit.torch

device_type = sys.argv[1] if len(sys.argv) > 1 else "cuda" if torch.cuda.is_available() else "cpu"
dist.init_process_group("nccl" if device_type == "cuda" else "gloo")
device = torch.device(device_type, dist.get_node_local_rank() if device_type == "cuda" else None)
if device_type == "cuda":
    torch.cuda.set_device(device)

torch.manual_seed(0)  # the same weights on all ranks
config = transformers.Qwen3MoeConfig(
    vocab_size=64, hidden_size=64, intermediate_size=64, moe_intermediate_size=32, num_hidden_layers=2,
    num_attention_heads=2, num_key_value_heads=2, head_dim=32, num_experts=8, num_experts_per_tok=2)
model = transformers.Qwen3MoeForCausalLM(config).bfloat16().to(device)

moejit.torch.register_hf(recipe="fp8_flow")
model.set_experts_implementation("moejit")
for layer in model.model.layers:
    fully_shard(layer)
fully_shard(model)

torch.manual_seed(dist.get_rank())  # other tokens on each
tokens = torch.randint(0, 64, (2, 16), device=device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(6):
    loss = model(tokens, labels=tokens).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    mean = loss.detach().clone()
    dist.all_reduce(mean)
    if dist.get_rank() == 0:
        print(f"step {step}: loss {mean.item() / dist.get_world_size():.3f}", flush=True)
dist.destroy_process_group()
