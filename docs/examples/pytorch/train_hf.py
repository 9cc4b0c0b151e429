# SPDX-License-Identifier: Apache-2.0
"""Trains a small Qwen3-MoE of transformers for some steps, its experts in FP8: python train_hf.py [cpu | cuda]."""
import sys

import torch
import transformers

import moejit.torch

device = sys.argv[1] if len(sys.argv) > 1 else "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)
config = transformers.Qwen3MoeConfig(
    vocab_size=64, hidden_size=64, intermediate_size=64, moe_intermediate_size=32, num_hidden_layers=2,
    num_attention_heads=2, num_key_value_heads=2, head_dim=32, num_experts=8, num_experts_per_tok=2)
model = transformers.Qwen3MoeForCausalLM(config).bfloat16().to(device)

moejit.torch.register_hf(recipe="fp8_flow")
model.set_experts_implementation("moejit")

tokens = torch.randint(0, 64, (2, 16), device=device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(6):
    loss = model(tokens, labels=tokens).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(f"step {step}: loss {loss.item():.3f}")
