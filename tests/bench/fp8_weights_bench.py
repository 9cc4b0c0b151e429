#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A layer on FP8 codes of a checkpoint, beside the same layer from bf16 weights whose quantized copies are kept, one GPU.

Both calls have the shape of Qwen3-30B-A3B's layer and the same codes, so their results have the same bits, which is
checked. Prints medians in microseconds of calls in a CUDA graph, hot, in turns, and the memory that each takes beside
the weights it is given.

    python3 tests/bench/fp8_weights_bench.py [--recipe fp8_flow] [--tokens 1 32 512]
"""
import argparse
import functools

import torch

from moejit.torch import fp8_weights, layer_text, serving
from moejit.torch.gathered import parts_of_block
from moejit.torch.weights import quantize
from weight_checks_bench import EXPERTS, HIDDEN, INTERMEDIATE, TOP_K, captured, inputs, medians


def codes_of(w1, w2, recipe):
    """Returns FP8 weights with the codes that the library makes of bf16 weights."""
    layer = layer_text({"experts": EXPERTS, "top_k": TOP_K, "hidden": HIDDEN, "intermediate": INTERMEDIATE,
                        "recipe": recipe, "max_tokens": 16, "passes": ["forward"]}, "cuda:sm_90a")
    parts = parts_of_block(quantize(w1, w2, layer)[0], layer)
    return fp8_weights(*(parts[name].clone() if name.endswith("inv") else parts[name].clone().view(torch.float8_e4m3fn)
                         for name in ("w1_q", "w1_scale_inv", "w2_q", "w2_scale_inv")))


def taken_by(function, *given):
    """Returns (the result, bytes that stay allocated beside it)."""
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    y = function(*given)
    torch.cuda.synchronize()
    return y, torch.cuda.memory_allocated() - before - y.untyped_storage().nbytes()


@torch.no_grad()
def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--recipe", default="fp8_flow")
    parser.add_argument("--tokens", type=int, nargs="+", default=[1, 32, 512])
    parser.add_argument("--calls", type=int, default=20, help="calls in a graph")
    options = parser.parse_args()
    torch.manual_seed(0)
    w1, w2 = (torch.randn(EXPERTS, rows, columns, device="cuda").mul_(columns ** -0.5).bfloat16()
              for rows, columns in ((2 * INTERMEDIATE, HIDDEN), (HIDDEN, INTERMEDIATE)))
    weights = codes_of(w1, w2, options.recipe)
    weights.check_values()
    run = functools.partial(serving.run, activation="swiglu", recipe=options.recipe)
    serving.update_weights(w1)  # the kept copies are not looked at in each call
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, {options.recipe}, E {EXPERTS} K {TOP_K} "
          f"{HIDDEN}x{INTERMEDIATE}")
    print("tokens   codes us   bf16 us   same bits   MiB beside the codes   MiB beside bf16")
    for tokens in options.tokens:
        given = inputs(tokens)
        of_codes, beside_codes = taken_by(run, *given, weights)
        of_bf16, beside_bf16 = taken_by(run, *given, w1, w2)
        graphs = [captured(lambda *_, each=each: run(*given, *each), given, options.calls) for each in ((weights,), (w1, w2))]
        times = medians(graphs, options.calls)
        print(f"{tokens:6} {times[0]:10.1f} {times[1]:9.1f}   {str(torch.equal(of_codes, of_bf16)):9} "
              f"{beside_codes / 2**20:22.1f} {beside_bf16 / 2**20:17.1f}")


if __name__ == "__main__":
    main()
