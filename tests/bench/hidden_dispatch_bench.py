# SPDX-License-Identifier: Apache-2.0
"""How much of a dispatch a GEMM on another stream hides.

    torchrun --nproc-per-node 2 tests/bench/hidden_dispatch_bench.py --sms 0 48 32 24 --columns 4096 6144

The first GEMM of a shared expert, as in shared_expert_bench.py, starts with the dispatch of experts that have a process
group. The profiler tells when each begins and ends, on each rank: "both" is from the first beginning to the last end.
Hidden is what both take less than the GEMM and then the dispatch, each alone and on all SMs, as a share of that
dispatch; of_own is a share of the dispatch on so many SMs alone, which is what it spares a caller who cannot use more.
Hot are calls back to back, cool ones 10 ms apart, whose ranks meet in an all-reduce right before. Prints JSON.
"""
import json
import statistics
import time

import torch
import torch.distributed as dist
from torch.profiler import ProfilerActivity, profile

from shared_expert_bench import SharedGemm, joined_rank, made, parser_of

GEMM_NAMES = "nvjet", "cutlass", "xmma"  # cuBLASLt's


def kernels_of(trace):
    """Returns (begin, end, name) of a trace's kernels in microseconds, in order."""
    events = [event for event in trace.profiler.kineto_results.events()
              if event.device_type() == torch.autograd.DeviceType.CUDA]
    return sorted((1e-3 * event.start_ns(), 1e-3 * (event.start_ns() + event.duration_ns()), event.name())
                  for event in events)


class Calls:
    """Runs a dispatch, a GEMM or both, and tells what they took."""

    def __init__(self, arguments, device):
        tokens, self.count = arguments.tokens, arguments.calls
        self.x = torch.randn(tokens, arguments.hidden, device=device, dtype=torch.bfloat16)
        self.ids = torch.rand(tokens, arguments.experts, device=device).topk(arguments.top_k).indices.int()
        self.probs = torch.rand(tokens, arguments.top_k, device=device)
        self.side, self.main, self.word = torch.cuda.Stream(), torch.cuda.current_stream(), torch.zeros(1, device=device)

    def run(self, experts, gemm, sms, is_cool):
        if is_cool:
            torch.cuda.synchronize()
            time.sleep(0.01)
            torch.cuda._sleep(6_000_000)  # the host enqueues all of the call meanwhile
            dist.all_reduce(self.word)
        self.side.wait_stream(self.main)
        if experts is not None:
            experts(self.x, self.ids, self.probs)
        if gemm is not None:
            with torch.cuda.stream(self.side):
                gemm.without(sms)
        self.main.wait_stream(self.side)

    def measure(self, experts, gemm, sms, is_cool):
        """Returns the median microseconds from the first beginning to the last end, of calls that did all."""
        for _ in range(3 if is_cool else 12):
            self.run(experts, gemm, sms, is_cool)
        torch.cuda.synchronize()
        dist.barrier()
        with profile(activities=[ProfilerActivity.CUDA]) as trace:
            for _ in range(self.count):
                self.run(experts, gemm, sms, is_cool)
            torch.cuda.synchronize()
        kernels = kernels_of(trace)
        found = []
        if experts is not None:
            found.append([each for each in kernels if "_dispatch_" in each[2]])
        if gemm is not None:
            found.append([each for each in kernels if any(name in each[2] for name in GEMM_NAMES)])
        assert all(len(each) == self.count for each in found), [each[2] for each in kernels[:20]]
        return statistics.median(max(each[1] for each in call) - min(each[0] for each in call)
                                 for call in zip(*found))


def slower(value):
    """Returns the largest value of all ranks."""
    values = [None] * dist.get_world_size()
    dist.all_gather_object(values, value)
    return max(values)


def measure(arguments, device):
    calls = Calls(arguments, device)
    experts = {sms: made(arguments, sms, device) for sms in dict.fromkeys([0, *arguments.sms])}
    rows = []
    for is_cool in (False, True):
        alone = {sms: slower(calls.measure(each, None, sms, is_cool)) for sms, each in experts.items()}
        for arguments.columns in arguments.all_columns:
            gemm = SharedGemm(arguments, device)
            gemm_us = slower(calls.measure(None, gemm, 0, is_cool))
            for sms in arguments.sms:
                both = slower(calls.measure(experts[sms], gemm, sms, is_cool))
                row = {"cool": is_cool, "sms": sms, "columns": arguments.columns, "gemm_us": gemm_us,
                       "dispatch_us": alone[sms], "both_us": both,
                       "hidden": (gemm_us + alone[0] - both) / alone[0],
                       "of_own": (gemm_us + alone[sms] - both) / alone[sms]}
                rows.append({name: round(value, 2) if isinstance(value, float) else value
                             for name, value in row.items()})
    return rows


def main():
    parser = parser_of(__doc__, calls=20)
    parser.add_argument("--columns", type=int, nargs="+", default=[4096, 6144], dest="all_columns",
                        help="columns of the GEMM")
    arguments = parser.parse_args()
    with joined_rank() as device:
        rows = measure(arguments, device)
        if device.index == 0:
            print(json.dumps({"gpu": torch.cuda.get_device_name(), "tokens": arguments.tokens, "rows": rows}))


if __name__ == "__main__":
    main()
