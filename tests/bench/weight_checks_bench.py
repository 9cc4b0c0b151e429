#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What it costs that calls without gradients look whether weights have changed, on one GPU.

Times calls of Experts with the shape of Qwen3-30B-A3B's layer, hot, in turns: kept weights that are promised
(update_weights()), kept weights that are looked at (the default), and weights that are quantized in each call
(cache_weights=False). Prints medians in microseconds, of calls in a CUDA graph and of eager calls.

    python3 tests/bench/weight_checks_bench.py [--recipe fp8_flow] [--tokens 1 32 128 2048]
"""
import argparse
import statistics

import torch

import moejit.torch

EXPERTS, TOP_K, HIDDEN, INTERMEDIATE = 128, 8, 2048, 768


def make(recipe, tokens, **options):
    torch.manual_seed(0)
    return moejit.torch.Experts(EXPERTS, HIDDEN, INTERMEDIATE, TOP_K, max_tokens=max(16, tokens), recipe=recipe,
                                device="cuda", **options)


def inputs(tokens):
    x = torch.randn(tokens, HIDDEN, device="cuda").bfloat16()
    probs, ids = torch.topk(torch.rand(tokens, EXPERTS, device="cuda"), TOP_K)
    return x, ids, probs


def milliseconds(run):
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    run()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end)


def medians(runs, calls, rounds=15):
    """Returns the microseconds of a call for each of the runs, which take turns; a run makes so many calls."""
    times = [[] for _ in runs]
    for number in range(rounds + 2):
        for run, kept in zip(runs, times):
            elapsed = milliseconds(run)
            if number >= 2:
                kept.append(1000 * elapsed / calls)
    return [statistics.median(each) for each in times]


def captured(module, given, calls):
    for _ in range(3):
        module(*given)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(calls):
            module(*given)
    return graph.replay


@torch.no_grad()
def measure_inference(recipe, tokens, calls):
    given = inputs(tokens)
    promised, looked, quantized = (make(recipe, tokens), make(recipe, tokens), make(recipe, tokens, cache_weights=False))
    promised.update_weights()

    def eager(module):
        def run():
            for _ in range(calls):
                module(*given)
        return run

    modules = (promised, looked, quantized)
    return (medians([captured(module, given, calls) for module in modules], calls),
            medians([eager(module) for module in modules], calls))


def measure_training(recipe, tokens, calls=10):
    given = inputs(tokens)
    module = make(recipe, tokens)

    def run():
        for _ in range(calls):
            module(*given).backward(given[0])
            for parameter in module.parameters():
                parameter.grad = None

    return medians([run], calls)[0]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--recipe", nargs="+", default=["fp8_flow"])
    parser.add_argument("--tokens", nargs="+", type=int, default=[1, 32, 128, 2048])
    parser.add_argument("--calls", type=int, default=20)
    options = parser.parse_args()
    print(torch.cuda.get_device_name(), "us a call: promised, looked at, quantized in each call")
    for recipe in options.recipe:
        for tokens in options.tokens:
            for kind, (promised, looked, quantized) in zip(("graph", "eager"),
                                                           measure_inference(recipe, tokens, options.calls)):
                print(f"{recipe} T {tokens:5} {kind}: {promised:8.2f} {looked:8.2f} {quantized:8.2f}   looking "
                      f"{looked - promised:+.2f} us, {100 * (looked / promised - 1):+.1f} %", flush=True)
            torch.cuda.empty_cache()
        print(f"{recipe} a training step of 2048 tokens: {measure_training(recipe, 2048):.1f}", flush=True)
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
