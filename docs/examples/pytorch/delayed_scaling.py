# SPDX-License-Identifier: Apache-2.0
"""Trains a block with delayed scaling, two microbatches a step: delayed_scaling.py [cuda | cpu]"""
import io
import sys

import torch

import moejit.torch

HIDDEN, INTERMEDIATE, EXPERTS, TOP_K, TOKENS = 64, 32, 8, 2, 32


class Block(torch.nn.Module):
    def __init__(self, device):
        super().__init__()
        self.router = torch.nn.Linear(HIDDEN, EXPERTS, dtype=torch.bfloat16, device=device)
        # Leave update_scales_in_backward out where each step has one microbatch: scales then move on by themselves.
        self.experts = moejit.torch.Experts(EXPERTS, HIDDEN, INTERMEDIATE, TOP_K, max_tokens=TOKENS, device=device,
                                            recipe="fp8_delayed", amax_history_len=16, update_scales_in_backward=False)

    def forward(self, x, is_first_microbatch):
        probs, ids = self.router(x).float().softmax(-1).topk(TOP_K)
        return x + self.experts(x, ids, probs, is_first_microbatch=is_first_microbatch)


device = torch.device(sys.argv[1] if len(sys.argv) > 1 else "cuda")
torch.manual_seed(0)
model = Block(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
batch = torch.randn(2, TOKENS, HIDDEN).to(torch.bfloat16).to(device)
for step in range(8):
    total = 0.0
    for index, tokens in enumerate(batch):
        loss = (model(tokens, index == 0) - tokens).float().square().mean() / len(batch)
        loss.backward()
        total += loss.detach()
    moejit.torch.update_scales(model)  # with replicas: amax_reduction_group=their process group
    optimizer.step()
    optimizer.zero_grad()
    print(f"step {step}: loss {total.item():.4f}")

checkpoint = io.BytesIO()
torch.save(model.state_dict(), checkpoint)
checkpoint.seek(0)
resumed = Block(device)
resumed.load_state_dict(torch.load(checkpoint))
print("scales of the inputs of experts:", [f"{scale:.1f}" for scale in resumed.experts.fc1_scale[0::3].tolist()])
