#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times MoE layers of megatron-core whose experts two GPUs share over NCCL: with torch's grouped GEMM as experts, and
with moejit's, whose rows travel in bf16 and in FP8. Prints a result as JSON.

A step is forward and backward of MoELayer. Its time is the median of the slower rank's, of steps back to back. Memory
is as in megatron_bench.py, the larger of both ranks. Bytes are what a rank gives to all-to-alls of rows in a step.

  python3 tests/bench/megatron_ranks_bench.py          # megatron_bench.py says what it needs
  python3 tests/bench/megatron_ranks_bench.py --tiny   # small sizes; without GPUs over gloo, in the simulator
"""
import argparse
import contextlib
import functools
import json
import statistics
import sys
from unittest import mock

import megatron_bench as bench  # finds the tests' modules and chooses their device
import experts_steps
import megatron_device
import torch
import torch.distributed as dist
from ranks import run_on_ranks

RANKS = 2
# (name, spec for so many tokens, and rows for all their choices)
LAYERS = (("grouped_mm", bench.LAYERS[1][2]),
          *((f"moejit {recipe}", bench.of_moejit(recipe, "grouped")) for recipe in ("bf16", "fp8_flow")),
          ("moejit fp8_flow, FP8 rows", bench.of_moejit("fp8_flow", "grouped", dispatch="fp8")))


@contextlib.contextmanager
def counted_bytes():
    """Collects the bytes that this rank gives to exchanges of rows."""
    found, run = [], dist.all_to_all_single

    def counting(output, sent, *args, **kwargs):
        if sent.dim() == 2:
            found.append(sent.nbytes)
        return run(output, sent, *args, **kwargs)
    with mock.patch.object(dist, "all_to_all_single", counting):
        yield found


def step_times(step, count):
    """The times of steps back to back, in ms, after half as many to warm up. Ranks take the same number of steps."""
    for _ in range(max(count // 2, 1)):
        step()
    if bench.DEVICE.type == "cpu":
        return experts_steps.host_times(step, count)
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(count + 1)]
    dist.barrier()
    marks[0].record()
    for mark in marks[1:]:
        step()
        mark.record()
    torch.cuda.synchronize()
    return [one.elapsed_time(other) for one, other in zip(marks, marks[1:])]


def measure(sizes, name, spec_of, kept, count):
    """A row of this rank's figures."""
    rows = sizes[4] * sizes[1]
    step = bench.make_step(sizes, "alltoall", spec_of(sizes[4], RANKS * rows))
    with counted_bytes() as sent:
        results = step.results()
    row = {"experts": name, "bytes_sent": sum(sent),
           "error_beside_grouped_mm": experts_steps.relative_error(results[0], kept.setdefault("grouped_mm", results)[0])}
    if name == "moejit fp8_flow":
        kept["fp8_flow"] = results
    elif "fp8_flow" in kept:
        row["bits_of_bf16_rows"] = all(map(torch.equal, results, kept["fp8_flow"]))
    del results
    row["peak_bytes"] = experts_steps.peak_bytes(step, bench.DEVICE)
    row["step_ms"] = statistics.median(step_times(step, count))
    return row


def work(cases, count, device):
    megatron_device.start(RANKS)
    found = []
    for case, sizes in cases.items():
        kept = {}
        found.append({"name": case, "layers": [measure(sizes, *layer, kept, count) for layer in LAYERS]})
    return found


def of_all_ranks(rows):
    """One row of the rows that ranks have of the same layer."""
    slowest = {key: max(row[key] for row in rows) for key in ("step_ms", "peak_bytes", "error_beside_grouped_mm")
               if rows[0][key] is not None}
    bits = {"bits_of_bf16_rows": all(row["bits_of_bf16_rows"] for row in rows)} if "bits_of_bf16_rows" in rows[0] else {}
    return {"experts": rows[0]["experts"], "bytes_sent": [row["bytes_sent"] for row in rows], **slowest, **bits}


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tiny", action="store_true", help="small sizes and few repeats: to try the program")
    parser.add_argument("--steps", type=int, default=60, help="that are timed, behind half as many of warm-up")
    settings = parser.parse_args(arguments)
    cases, count = (bench.TINY, 1) if settings.tiny else (bench.CASES, settings.steps)
    of_ranks = run_on_ranks(functools.partial(work, cases, count), RANKS)
    result = [{"name": same[0]["name"], "layers": [of_all_ranks(rows) for rows in zip(*(each["layers"] for each in same))]}
              for same in zip(*of_ranks)]
    print(json.dumps({"kind": "megatron ranks", "ranks": RANKS, "cases": result}, indent=1))


if __name__ == "__main__":
    main(sys.argv[1:])
