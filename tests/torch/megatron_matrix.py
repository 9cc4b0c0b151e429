# SPDX-License-Identifier: Apache-2.0
"""Prints the largest error of MoE layers of megatron-core beside SequentialMLP in float32: each recipe with each
dispatcher, on one rank and on two, with rows in the order of experts and with tokens. Fails above the tests' bounds.

The variables of run.py's environment() have to be set. megatron_ranks_test.py has some of these layers.
"""
import itertools
import sys

import megatron_device
import megatron_case as case
import torch.distributed as dist
from ranks import run_on_ranks
from support import BOUNDS

BOUNDS = {**BOUNDS, "fp8_current": 0.1}  # which has one scale for all rows
RECIPES = ("bf16", "fp8_flow", "fp8_blockwise", "fp8_current", "fp8_rowwise", "mxfp8")
# (dispatcher, options of convert_spec())
FORMS = (("alltoall", {}), ("allgather", {}), ("allgather", {"input": "tokens"}), ("flex", {}),
         ("flex", {"input": "tokens"}), ("alltoall", {"dispatch": "fp8"}))


def work(device):
    """{(recipe, form): the largest error of y and of all gradients; None: there is no such layer}."""
    ranks = dist.get_world_size()
    megatron_device.start(ranks)
    errors, found = case.Errors(), {}
    for recipe, (form, (dispatcher, options)) in itertools.product(RECIPES, enumerate(FORMS)):
        # The flex dispatcher of 0.16.1 needs several ranks; only fp8_flow sends FP8 rows.
        is_there = (dispatcher != "flex" or ranks > 1) and ("dispatch" not in options or recipe == "fp8_flow")
        found[recipe, form] = max(errors.of(recipe, dispatcher, **options)[0]) if is_there else None
    return found


def main():
    failed = False
    names = [" ".join((dispatcher, *options.values())) for dispatcher, options in FORMS]
    print("| ranks | recipe | " + " | ".join(names) + " |\n" + "|---" * (len(names) + 2) + "|")
    for ranks in (1, 2):
        results = run_on_ranks(work, ranks, method="fork")
        for recipe in RECIPES:
            found = [[result[recipe, form] for result in results] for form in range(len(FORMS))]
            largest = [None if each[0] is None else max(each) for each in found]
            failed = failed or any(each is not None and not each <= BOUNDS.get(recipe, 0.09) for each in largest)
            texts = ("" if each is None else f"{each:.4f}" for each in largest)
            print(f"| {ranks} | {recipe} | " + " | ".join(texts) + " |", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
