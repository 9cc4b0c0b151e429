#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A router beside torch's operators, eager and compiled, one GPU.

Formulas are Qwen3's and DeepSeek-V3's. Prints medians in microseconds of calls in a CUDA graph, hot, in turns: forward,
and forward with the gradient of the logits. The share of tokens that choose the same experts is checked with distinct
scores.

    python3 tests/bench/router_bench.py [--tokens 128 8192] [--calls 20]
"""
import argparse

import torch

import moejit.torch
from graph_capture import warmed_up
from weight_checks_bench import medians


def qwen3(logits, bias):
    probs, ids = torch.topk(torch.softmax(logits, -1), 8, sorted=True)
    return probs / probs.sum(-1, keepdim=True), ids


def deepseek_v3(logits, bias):
    scores = torch.sigmoid(logits)
    order = scores + bias
    groups = order.view(len(logits), 8, -1)
    kept = torch.topk(groups.topk(2, -1).values.sum(-1), 4, -1).indices
    is_kept = torch.zeros(len(logits), 8, dtype=torch.bool, device=logits.device).scatter_(1, kept, True)
    ids = torch.topk(groups.masked_fill(~is_kept[..., None], float("-inf")).flatten(1), 8).indices
    probs = scores.gather(1, ids)
    return 2.5 * probs / (probs.sum(-1, keepdim=True) + 1e-20), ids


def of_library(name):
    fields = ({"normalize": "sum"} if name == "qwen3" else
              {"score": "sigmoid", "groups": 8, "groups_kept": 4, "normalize": "sum", "epsilon": 1e-20, "scale": 2.5})

    def run(logits, bias):
        of_choice = bias if name == "deepseek_v3" else None
        return moejit.torch.router(logits, 8, bias=of_choice, max_tokens=len(logits), **fields)[:2]

    return run


def step(function, logits, bias, dprobs):
    def forward():
        with torch.no_grad():
            function(logits, bias)

    def both():
        torch.autograd.grad(function(logits, bias)[0], logits, dprobs)

    return forward, both


def captured(call, calls):
    stream = warmed_up(call)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        for _ in range(calls):
            call()
    return graph.replay


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--tokens", type=int, nargs="+", default=[1, 128, 8192])
    parser.add_argument("--calls", type=int, default=20, help="calls in a graph")
    options = parser.parse_args()
    torch.manual_seed(0)
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}; us: eager, compiled, library")
    for name, function, experts in (("qwen3", qwen3, 128), ("deepseek_v3", deepseek_v3, 256)):
        for tokens in options.tokens:
            logits = torch.randn(tokens, experts, device="cuda", requires_grad=True)
            bias = torch.randn(experts, device="cuda").mul_(0.1)
            dprobs = torch.randn(tokens, 8, device="cuda")
            library = of_library(name)
            equal = (library(logits, bias)[1].sort(-1).values == function(logits, bias)[1].sort(-1).values).all(-1)
            runs = [step(each, logits, bias, dprobs) for each in (function, torch.compile(function), library)]
            times = [medians([captured(run[index], options.calls) for run in runs], options.calls) for index in (0, 1)]
            print(f"{name} E {experts} T {tokens}: forward {' '.join(f'{us:.1f}' for us in times[0])}; with gradient "
                  f"{' '.join(f'{us:.1f}' for us in times[1])}; equal choices {equal.float().mean().item():.5f}")


if __name__ == "__main__":
    main()
