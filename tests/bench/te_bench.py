#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How long moe_permute_and_pad_with_probs() and moe_unpermute() of moejit.torch.te take, beside torch's indexing.

Forward and backward of both, hot, in turns, on one GPU. Prints medians in microseconds, and for moejit's the share of
the memory's rate that the least traffic of a step makes.

    python3 tests/bench/te_bench.py [--tokens 16384] [--experts 64] [--top-k 8] [--hidden 4096] [--gb-per-s 4800]
"""
import argparse
import statistics

import torch

from moejit.torch import te

ALIGN = 16


def made(options):
    """(x, probs, map, gradient of y), each token with `top_k` experts."""
    torch.manual_seed(0)
    ids = torch.rand(options.tokens, options.experts, device="cuda").topk(options.top_k).indices
    chosen = torch.zeros(options.tokens, options.experts, dtype=torch.bool, device="cuda").scatter(1, ids, True)
    x = torch.randn(options.tokens, options.hidden, device="cuda").bfloat16().requires_grad_()
    probs = (torch.rand(options.tokens, options.experts, device="cuda") * chosen).requires_grad_()
    return x, probs, chosen, torch.randn(options.tokens, options.hidden, device="cuda").bfloat16()


def of_moejit(x, probs, chosen, **arguments):
    rows, row_probs, row_id_map, pad_offsets, _ = te.moe_permute_and_pad_with_probs(x, probs, chosen, chosen, ALIGN,
                                                                                    **arguments)
    return te.moe_unpermute(rows, row_id_map, restore_shape=x.shape, pad_offsets=pad_offsets), row_probs


def of_torch(x, probs, chosen):
    """The same with indices; the host waits for the number of rows."""
    sizes = chosen.sum(0)
    targets = (sizes + ALIGN - 1) // ALIGN * ALIGN
    pads = targets - sizes
    expert, token = chosen.T.nonzero(as_tuple=True)
    place = torch.arange(token.shape[0], device=x.device) + (pads.cumsum(0) - pads)[expert]
    rows = x.new_zeros(int(targets.sum()), x.shape[1]).index_copy(0, place, x[token])
    row_probs = probs.new_zeros(rows.shape[0]).index_copy(0, place, probs[token, expert])
    return torch.zeros_like(x).index_add(0, token, rows[place]), row_probs


def step(function, x, probs, chosen, dy, **arguments):
    y, row_probs = function(x, probs, chosen, **arguments)
    return torch.autograd.grad((y, row_probs), (x, probs), (dy, torch.ones_like(row_probs)))


def microseconds(run):
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    run()
    end.record()
    end.synchronize()
    return 1000 * begin.elapsed_time(end)


def main():
    parser = argparse.ArgumentParser()
    for name, value in (("tokens", 16384), ("experts", 64), ("top-k", 8), ("hidden", 4096), ("gb-per-s", 4800)):
        parser.add_argument(f"--{name}", type=int, default=value)
    options = parser.parse_args()
    given = made(options)
    kinds = {"torch's indexing": (of_torch, {}), "te": (of_moejit, {}),
             "te, top_k": (of_moejit, {"top_k": options.top_k}),
             "te, top_k, strict_shape=False": (of_moejit, {"top_k": options.top_k, "strict_shape": False})}
    times = {name: [] for name in kinds}
    for number in range(23):
        for name, (function, arguments) in kinds.items():
            elapsed = microseconds(lambda: step(function, *given, **arguments))
            if number >= 3:
                times[name].append(elapsed)
    # Forward and backward each read and write the tokens once and their rows once.
    least_bytes = 4 * 2 * options.tokens * options.hidden * (1 + options.top_k)
    for name, each in times.items():
        median = statistics.median(each)
        print(f"{name:32} {median:9.1f} us  {least_bytes / median / 1e3 / options.gb_per_s:5.1%} of the memory's rate")


if __name__ == "__main__":
    main()
