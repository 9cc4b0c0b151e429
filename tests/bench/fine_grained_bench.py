#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times experts of models with many small ones: moejit's, and SonicMoE's and Liger's where they are installed.

All have the same weights and routing, and run in turns, hot: a forward pass, and a step, which is forward and backward
with gradients of tokens, probabilities and weights in bf16. fp8_flow casts the weights in each step. Prints medians of
rounds as JSON, TFLOP/s of unpadded rows, and errors beside float32 for the fewest tokens. The peers tune themselves in
their first calls, which took more than five minutes for both on an H200.

  python3 tests/bench/fine_grained_bench.py
  python3 tests/bench/fine_grained_bench.py --layer 128,8,2048,768 --tokens 2048 8192 --only moejit
  python3 tests/bench/fine_grained_bench.py --tiny    # small sizes; without a GPU in the simulator
"""
import argparse
import datetime
import json
import shlex
import statistics
import sys
import traceback

import bench_machine
import experts_steps
import torch

from moejit.torch import Experts

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class Case:
    """Tensors of a layer: E experts, K choices, hidden H, intermediate I, over T tokens."""

    def __init__(self, sizes, tokens):
        experts, top_k, hidden, intermediate = self.sizes = sizes
        generator = torch.Generator(DEVICE).manual_seed(0)

        def normal(*shape, deviation=1.0):
            return (torch.randn(shape, generator=generator, device=DEVICE) * deviation).bfloat16()

        self.tokens = tokens
        self.w1 = normal(experts, 2 * intermediate, hidden, deviation=hidden ** -0.5)
        self.w2 = normal(experts, hidden, intermediate, deviation=intermediate ** -0.5)
        self.x, self.dy = normal(tokens, hidden).requires_grad_(), normal(tokens, hidden)
        probs, ids = torch.rand(tokens, experts, generator=generator, device=DEVICE).topk(top_k)
        self.ids, self.probs = ids.int(), (probs / probs.sum(1, keepdim=True)).requires_grad_()

    def flops(self):
        """Of a forward pass; a step has three times as many."""
        _, top_k, hidden, intermediate = self.sizes
        return 6 * self.tokens * top_k * hidden * intermediate

    def exact(self):
        """y, dx, dprobs, dw1 and dw2 in float32."""
        leaves = [tensor.detach().float().requires_grad_() for tensor in (self.x, self.probs, self.w1, self.w2)]
        x, probs, w1, w2 = leaves
        y = torch.zeros_like(x)
        for expert in range(self.sizes[0]):
            token, choice = (self.ids == expert).nonzero(as_tuple=True)
            gate, up = (x[token] @ w1[expert].T).chunk(2, -1)
            rows = (torch.nn.functional.silu(gate) * up) @ w2[expert].T
            y = y.index_add(0, token, rows * probs[token, choice, None])
        return [y.detach(), *torch.autograd.grad(y, leaves, self.dy.float())]


def of_moejit(recipe):
    def make(case):
        experts, top_k, hidden, intermediate = case.sizes
        module = Experts(experts, hidden, intermediate, top_k, max_tokens=case.tokens, recipe=recipe, device=DEVICE)
        module.gate_up_proj, module.down_proj = torch.nn.Parameter(case.w1), torch.nn.Parameter(case.w2)
        return lambda: module(case.x, case.ids, case.probs), (module.gate_up_proj, module.down_proj)
    return make


def of_sonic(case):
    """SonicMoE's weights are [2I, H, E] and [H, I, E], with the experts outermost in memory."""
    from sonicmoe import moe_general_routing_inputs
    from sonicmoe.enums import ActivationType
    rows = torch.arange(case.tokens, device=DEVICE, dtype=torch.int32).repeat_interleave(case.sizes[1])
    ids, w1, w2 = case.ids.flatten(), case.w1.requires_grad_(), case.w2.requires_grad_()
    return lambda: moe_general_routing_inputs(
        case.x, case.probs.flatten(), rows, ids, w1.permute(1, 2, 0), None, w2.permute(1, 2, 0), None, case.sizes[0],
        torch.cuda.current_stream().cuda_stream, ActivationType.SWIGLU, not torch.is_grad_enabled(), True)[0], (w1, w2)


def of_liger(case):
    from liger_kernel.ops.fused_moe import LigerFusedMoEFunction
    w1, w2 = case.w1.requires_grad_(), case.w2.requires_grad_()
    return lambda: LigerFusedMoEFunction.apply(case.x, w1, w2, case.ids, case.probs), (w1, w2)


MAKERS = {"moejit bf16": of_moejit("bf16"), "moejit fp8_flow": of_moejit("fp8_flow"), "Liger": of_liger,
          "SonicMoE": of_sonic}


class Implementation:

    def __init__(self, case, make):
        self.case = case
        self.call, self.weights = make(case)

    def forward(self):
        with torch.no_grad():
            return self.call()

    def step(self):
        y = self.call()
        return [y.detach(), *torch.autograd.grad(y, (self.case.x, self.case.probs, *self.weights), self.case.dy)]


def made(case, makers, rows, wants_errors):
    """Implementations that could be called, by name. `rows` gets their errors beside float32, or what stopped them."""
    found, exact = {}, case.exact() if wants_errors else []
    for name, make in makers.items():
        try:
            implementation = Implementation(case, make)
            results = implementation.step()
            implementation.forward()
        except Exception as error:  # of any kind: the others must still be timed
            traceback.print_exc()
            rows[name] = {"error": f"{type(error).__name__}: {error}".split("\n")[0]}
            continue
        found[name] = implementation
        rows[name] = {"errors": [experts_steps.relative_error(*pair) for pair in zip(results, exact)]} if exact else {}
    return found


def measure(case, makers, settings, watch, wants_errors):
    rows = {}
    implementations = made(case, makers, rows, wants_errors)
    times = {(name, kind): [] for name in implementations for kind in ("forward", "step")}
    for _ in range(settings.rounds):
        for (name, kind), found in times.items():
            fields = experts_steps.time_call(getattr(implementations[name], kind), DEVICE, settings, watch, kind)
            found.append(fields.pop(f"{kind}_hot_ms"))
            rows[name].update(fields)
    for (name, kind), found in times.items():
        milliseconds = statistics.median(found)
        rows[name].update({f"{kind}_hot_ms": milliseconds, f"{kind}_rounds_ms": found,
                           f"{kind}_tflops": case.flops() * {"forward": 1, "step": 3}[kind] / milliseconds / 1e9})
    return rows


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layer", default="128,8,2048,768", help="E,K,H,I; Qwen3-30B-A3B's by default")
    parser.add_argument("--tokens", type=int, nargs="+", default=[8192, 32768])
    parser.add_argument("--tiny", action="store_true", help="small sizes and few repeats: to try the program")
    parser.add_argument("--only", default="", help="only implementations whose names contain this")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=0.5, help="of hot calls, behind half as many of warm-up")
    parser.add_argument("--cool-repeats", type=int, default=3)
    parser.add_argument("--pause", type=float, default=0.05, help="seconds before each cool call")
    parser.add_argument("--warm-ups", type=int, default=2)
    settings = parser.parse_args(arguments)
    if settings.tiny:
        settings.layer, settings.tokens, settings.rounds, settings.cool_repeats = "8,2,64,32", [32], 1, 1
    return settings


def main(arguments):
    settings = parse(arguments)
    watch = bench_machine.Watch(DEVICE)
    makers = {name: make for name, make in MAKERS.items() if settings.only in name}
    cases = []
    for tokens in settings.tokens:
        case = Case(tuple(map(int, settings.layer.split(","))), tokens)
        rows = measure(case, makers, settings, watch, tokens == min(settings.tokens))
        cases.append({"tokens": tokens, "experts": rows})
        for name, row in rows.items():
            print(f"{tokens} tokens, {name}: " + (row.get("error") or f"{row['forward_hot_ms']:.3f} ms, a step "
                                                  f"{row['step_hot_ms']:.3f} ms"), file=sys.stderr, flush=True)
    now = datetime.datetime.now(datetime.timezone.utc)
    print(json.dumps({"kind": "fine_grained", "date": now.strftime("%Y-%m-%dT%H:%M:%SZ"),
                      "command_line": shlex.join(["python3", "tests/bench/fine_grained_bench.py", *arguments]),
                      "gpu": bench_machine.gpu_facts(DEVICE, watch), "versions": bench_machine.versions(),
                      "layer": settings.layer, "cases": cases}, indent=1))


if __name__ == "__main__":
    main(sys.argv[1:])
