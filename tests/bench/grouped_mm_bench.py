#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times moejit.torch.grouped_mm() in all formats beside torch.nn.functional.grouped_mm, and compares both with float32.

Times are medians of back-to-back calls in ms, forward alone and with backward to rows and weights. Errors are relative
Frobenius norms of the result and of both gradients. Groups have random sizes; 100 rows belong to nobody. Prints JSON.

  python3 tests/bench/grouped_mm_bench.py
  python3 tests/bench/grouped_mm_bench.py --tiny    # small sizes; without a GPU in the simulator
"""
import argparse
import functools
import json
import statistics
import sys
import time

import torch
from torch.nn import functional as F

import bench_machine
from moejit.torch import grouped_mm
from moejit.torch.grouped_formats import FORMATS

# (experts, k, n, rows)
CASES = ((8, 7168, 4096, 32768), (128, 2048, 1536, 65536))
TINY = ((8, 64, 64, 200),)
REST = 100


class Step:
    """The inputs of a case."""

    def __init__(self, experts, k, n, rows, device):
        generator = torch.Generator(device).manual_seed(0)

        def random(*shape, scale=1.0):
            return (torch.randn(*shape, generator=generator, device=device) * scale).bfloat16()

        owners = torch.randint(experts, (rows - REST,), generator=generator, device=device)
        self.offs = owners.bincount(minlength=experts).cumsum(0, dtype=torch.int32)
        self.a, self.w = random(rows, k).requires_grad_(), random(experts, n, k, scale=k ** -0.5).requires_grad_()
        self.dd = random(rows, n)
        with torch.no_grad():  # torch leaves rows of nobody as memory was
            self.a[-REST:], self.dd[-REST:] = 0, 0

    def forward(self, function):
        return function(self.a, self.w.transpose(-2, -1), offs=self.offs)

    def all_results(self, function):
        """[result, gradients of rows and weights], of rows with an expert."""
        d = self.forward(function)
        da, dw = torch.autograd.grad(d, (self.a, self.w), self.dd)
        return [d.detach()[:-REST], da[:-REST], dw]

    def exact(self):
        """The same in float32."""
        a, dd = self.a.detach().float(), self.dd.float()
        results, start = [[], [], []], 0
        for w, end in zip(self.w.detach().float(), self.offs.tolist()):
            rows, gradient = a[start:end], dd[start:end]
            for list_, made in zip(results, (rows @ w.T, gradient @ w, gradient.T @ rows)):
                list_.append(made)
            start = end
        return [torch.cat(results[0]), torch.cat(results[1]), torch.stack(results[2])]


def median_ms(run, device, rounds):
    """The median time of back-to-back calls, after some that are not counted."""
    for _ in range(min(rounds, 5)):
        run()
    if device.type == "cpu":
        times = []
        for _ in range(rounds):
            start = time.perf_counter()
            run()
            times.append(1000 * (time.perf_counter() - start))
        return statistics.median(times)
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(rounds + 1)]
    for mark in marks[:-1]:
        mark.record()
        run()
    marks[-1].record()
    torch.cuda.synchronize()
    return statistics.median(first.elapsed_time(second) for first, second in zip(marks, marks[1:]))


def measure(case, device, rounds):
    """A row for each function."""
    step = Step(*case, device)
    want = step.exact()
    functions = {"torch": F.grouped_mm, **{format: functools.partial(grouped_mm, format=format) for format in FORMATS}}
    for name, function in functions.items():
        errors = [((got.float() - exact).norm() / exact.norm()).item()
                  for got, exact in zip(step.all_results(function), want)]
        with torch.no_grad():
            forward = median_ms(lambda: step.forward(function), device, rounds)
        whole = median_ms(lambda: step.all_results(function), device, rounds)
        print(f"{case} {name}: {forward:.3f} {whole:.3f} ms", file=sys.stderr)
        yield {"function": name, "forward_ms": forward, "step_ms": whole, "errors": errors}


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--tiny", action="store_true")
    options = parser.parse_args(arguments)
    device = torch.device(options.device)
    watch = bench_machine.Watch(device)
    result = {"torch": torch.__version__, **watch.facts(), "cases": [
        {**dict(zip(("experts", "k", "n", "rows"), case)), "results": list(measure(case, device, options.rounds))}
        for case in (TINY if options.tiny else CASES)]}
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main(sys.argv[1:])
