#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A block of router, routed and shared experts in one plan, beside the same experts with operators around them.

All compute with the parameters of one moejit.torch.MoE. "around": torch's operators choose, and experts of the same
recipe compute the shared expert on all tokens, which an addition joins; "compiled" is that by torch.compile; "router":
the library's router chooses. "block": the module. Formulas and sizes are Qwen3-30B-A3B's and DeepSeek-V3's.

Prints medians in microseconds, in turns: a forward pass in a CUDA graph, and a training step of calls back to back.

    python3 tests/bench/block_bench.py [--recipe bf16] [--only deepseek_v3] [--tokens 1 32 128] [--step 8192] [--tiny]
"""
import argparse

import torch

import moejit.torch
from experts_steps import relative_error
from moejit.torch.moe import gate_logits
from router_bench import captured, deepseek_v3, qwen3
from weight_checks_bench import medians

GROUPED = {"score": "sigmoid", "bias": True, "groups": 8, "groups_kept": 4, "normalize": "sum", "epsilon": 1e-20,
           "scale": 2.5}
# (eager router, formula, experts, hidden, intermediate, shared experts); all choose 8. DeepSeek-V3 has 32 experts here:
# with as many rows each as on one of 8 ranks whose tokens go to 256.
CASES = {"qwen3": (qwen3, {"normalize": "sum"}, 128, 2048, 768, 0),
         "deepseek_v3": (deepseek_v3, GROUPED, 32, 7168, 2048, 1)}
TINY = {"qwen3": (qwen3, {"normalize": "sum"}, 16, 64, 32, 0),
        "deepseek_v3": (deepseek_v3, GROUPED, 32, 64, 32, 1)}
TOP_K = 8


class Block:
    """A MoE module, and the same block out of parts."""

    def __init__(self, case, recipe, max_tokens, device):
        self.eager, self.formula, experts, hidden, intermediate, shared = case
        self.moe = moejit.torch.MoE(experts, hidden, intermediate, TOP_K, router=self.formula, max_tokens=max_tokens,
                                    recipe=recipe, num_shared_experts=shared, device=device)
        self.x = torch.randn(max_tokens, hidden, device=device).bfloat16().requires_grad_()
        self.dy = torch.randn(max_tokens, hidden, device=device).bfloat16()
        sizes = {"hidden": hidden, "intermediate": intermediate, "recipe": recipe, "max_tokens": max_tokens}
        self.routed = moejit.torch.HostedExperts({"experts": experts, "top_k": TOP_K, **sizes}, device=device)
        self.shared = moejit.torch.HostedExperts({"experts": shared, "input": "grouped", **sizes},
                                                 device=device) if shared else None
        self.ones = torch.ones(max_tokens, device=device)
        self.all_rows = torch.tensor([max_tokens], dtype=torch.int32, device=device)
        self.bias = self.moe.gate.e_score_correction_bias

    def library_router(self, logits, bias):
        return moejit.torch.router(logits, TOP_K, bias=bias, **{key: value for key, value in self.formula.items()
                                                                if key != "bias"})[:2]

    def around(self, choose):
        """Returns the block whose router is choose(logits, bias)."""
        own = self.moe.experts

        def run(x):
            probs, ids = choose(gate_logits(x, self.moe.gate.weight), self.bias)
            y = self.routed(x, ids, probs, own.gate_up_proj, own.down_proj)
            if self.shared is None:
                return y
            return y + self.shared(x, self.all_rows, self.ones, own.shared_gate_up_proj, own.shared_down_proj)

        return run

    def forms(self):
        return {"around": self.around(self.eager),
                "compiled": torch.compile(self.around(self.eager), dynamic=False),
                "router": self.around(self.library_router), "block": self.moe}

    def step(self, form):
        def run():
            self.x.grad = None
            self.moe.zero_grad(set_to_none=True)
            form(self.x).backward(self.dy)
        return run


def inference(form, x):
    def call():
        with torch.no_grad():
            form(x)
    return call


def repeated(step, calls):
    def run():
        for _ in range(calls):
            step()
    return run


def errors(block, forms):
    """Returns the largest relative difference of y and of dx from those of "around"."""
    results = []
    for form in forms.values():
        y = form(block.x)
        block.x.grad = None
        y.backward(block.dy)
        results.append((y.detach(), block.x.grad.clone()))
    return max(relative_error(got, want) for other in results[1:] for got, want in zip(other, results[0]))


def told(name, forms, times):
    print(name + ": " + ", ".join(f"{form} {us:.1f}" for form, us in zip(forms, times)), flush=True)


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--recipe", default="fp8_flow")
    parser.add_argument("--only", default="", help="one case")
    parser.add_argument("--tokens", type=int, nargs="*", default=[1, 32, 128], help="of forward passes")
    parser.add_argument("--step", type=int, nargs="*", default=[8192], help="tokens of training steps")
    parser.add_argument("--tiny", action="store_true", help="small layers, compared and not timed; without a GPU, too")
    options = parser.parse_args(arguments)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    for name, case in (TINY if options.tiny else CASES).items():
        if options.only not in name:
            continue
        for tokens in [8] if options.tiny else sorted({*options.tokens, *options.step}):
            torch.manual_seed(0)
            torch._dynamo.reset()
            block = Block(case, options.recipe, tokens, device)
            forms = block.forms()
            label = f"{name} {options.recipe} T {tokens}"
            print(f"{label}: differences {errors(block, forms):.4f}", flush=True)
            if device == "cuda" and tokens in options.tokens:
                graphs = [captured(inference(form, block.x), 8) for form in forms.values()]
                told(f"{label} forward, graph", forms, medians(graphs, 8))
            if device == "cuda" and tokens in options.step:
                told(f"{label} step", forms, medians([repeated(block.step(form), 5) for form in forms.values()], 5))
            del block, forms


if __name__ == "__main__":
    main()
