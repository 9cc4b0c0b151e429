# SPDX-License-Identifier: Apache-2.0
"""Decodes tokens with a captured CUDA graph: python decode_graph.py [cpu | cuda].

One graph serves all steps, although each routes its tokens to other experts. On the CPU the loop runs without a graph.
"""
import sys

import torch

import moejit.torch

VOCABULARY, HIDDEN, INTERMEDIATE, EXPERTS, TOP_K, BATCH, STEPS = 128, 64, 32, 8, 2, 4, 8


class Block(torch.nn.Module):
    """A router and its experts. There is no attention: a step needs nothing but the last tokens."""

    def __init__(self):
        super().__init__()
        self.norm = torch.nn.RMSNorm(HIDDEN)
        self.router = torch.nn.Linear(HIDDEN, EXPERTS, bias=False)
        self.experts = moejit.torch.Experts(EXPERTS, HIDDEN, INTERMEDIATE, TOP_K, max_tokens=BATCH, recipe="fp8_flow")

    def forward(self, x):
        normal = self.norm(x)
        probs, ids = self.router(normal).float().softmax(-1).topk(TOP_K)
        return x + self.experts(normal, ids, probs)


device = sys.argv[1] if len(sys.argv) > 1 else "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Embedding(VOCABULARY, HIDDEN), Block(), Block(),
                            torch.nn.Linear(HIDDEN, VOCABULARY)).bfloat16().to(device)
first = torch.arange(BATCH, device=device)


@torch.no_grad()
def decode(step):
    """The tokens of all steps: [STEPS, BATCH]. `step` puts the next ones in the place of `tokens`."""
    tokens.copy_(first)
    decoded = []
    for _ in range(STEPS):
        step()
        decoded.append(tokens.clone())
    return torch.stack(decoded)


@torch.no_grad()
def next_tokens():
    tokens.copy_(model(tokens).argmax(-1))


tokens = first.clone()
# The first calls compile kernels and quantize the weights, which a capture must not do.
eager = decode(next_tokens)
print("tokens of the first sequence:", eager[:, 0].tolist())
if device == "cpu":
    print("no GPU: decoded without a CUDA graph")
    sys.exit()

graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    next_tokens()
replayed = decode(graph.replay)
print("the graph decodes the same tokens:", torch.equal(replayed, eager))
