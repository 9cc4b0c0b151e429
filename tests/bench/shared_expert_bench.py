# SPDX-License-Identifier: Apache-2.0
"""How much of an exchange hides behind a shared expert's GEMM on another stream.

    torchrun --nproc-per-node 2 tests/bench/shared_expert_bench.py --sms 0 48 24

Experts with a process group run forward on one stream while x @ w runs on another one, in e4m3: the first GEMM of a
shared expert. Three loops are timed on each rank, medians of calls back to back: experts alone with all SMs, the GEMM
alone, and both, which start at the same event. What both take less than the first two is hidden. --dispatch-us is
the time of a dispatch alone, of exchange_bench, of which the share is told. Prints JSON and judges nothing.
"""
import argparse
import json
import os
import statistics

os.environ.setdefault("TORCH_SYMM_MEM_DISABLE_MULTICAST", "1")  # nothing here multicasts

import torch
import torch.distributed as dist

from moejit.torch import Experts


def made(arguments, ranks, sms, device):
    """Returns experts with quantized weights that calls keep."""
    torch.manual_seed(0)
    experts = Experts(arguments.experts, arguments.hidden, arguments.intermediate, arguments.top_k,
                      max_tokens=arguments.tokens, process_group=dist.group.WORLD, cache_weights=True, sms=sms or None,
                      device=device)
    with torch.no_grad():
        for parameter in experts.parameters():
            parameter.normal_(0, 0.02)
    return experts


class SharedGemm:
    """x @ w of e4m3 values, [T, H] x [H, N], as torch multiplies them."""

    def __init__(self, arguments, device):
        shape = (arguments.tokens, arguments.hidden), (arguments.columns, arguments.hidden)
        self.x, self.w = (torch.randn(each, device=device).to(torch.float8_e4m3fn) for each in shape)
        self.scale = torch.ones((), device=device)

    def __call__(self):
        return torch._scaled_mm(self.x, self.w.t(), self.scale, self.scale, out_dtype=torch.bfloat16)


def median_us(calls, warm_up, run):
    """Returns the median time of run(), of calls that the host enqueues ahead of the GPU."""
    for _ in range(warm_up):
        run()
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(calls + 1)]
    marks[0].record()
    for mark in marks[1:]:
        run()
        mark.record()
    torch.cuda.synchronize()
    return statistics.median(1000 * first.elapsed_time(last) for first, last in zip(marks, marks[1:]))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in {"experts": 16, "hidden": 7168, "intermediate": 2048, "top_k": 8, "tokens": 4096,
                        "columns": 4096, "calls": 60}.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=value)
    parser.add_argument("--sms", type=int, nargs="+", default=[0, 48, 24], help="SMs of the exchange; 0: all")
    parser.add_argument("--dispatch-us", type=float, default=0.0)
    arguments = parser.parse_args()
    rank = int(os.environ["RANK"])
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", device_id=torch.device("cuda", rank))
    device, tokens = torch.device("cuda", rank), arguments.tokens
    x = torch.randn(tokens, arguments.hidden, device=device, dtype=torch.bfloat16)
    ids = torch.rand(tokens, arguments.experts, device=device).topk(arguments.top_k).indices.int()
    probs = torch.rand(tokens, arguments.top_k, device=device)
    gemm, side = SharedGemm(arguments, device), torch.cuda.Stream()
    main_stream = torch.cuda.Stream(priority=-1)
    with torch.no_grad(), torch.cuda.stream(main_stream):
        run = {sms: made(arguments, dist.get_world_size(), sms, device) for sms in dict.fromkeys([0, *arguments.sms])}
        alone = median_us(arguments.calls, 20, lambda: run[0](x, ids, probs))
        shared = median_us(arguments.calls, 20, gemm)
        rows = []
        for sms in arguments.sms:
            def both(experts=run[sms]):
                side.wait_stream(main_stream)
                experts(x, ids, probs)
                with torch.cuda.stream(side):
                    gemm()
                main_stream.wait_stream(side)
            together = median_us(arguments.calls, 20, both)
            few = median_us(arguments.calls, 20, lambda experts=run[sms]: experts(x, ids, probs))
            rows.append({"sms": sms, "experts_us": round(few, 1), "both_us": round(together, 1),
                         "hidden_us": round(alone + shared - together, 1)})
            if arguments.dispatch_us:
                rows[-1]["of_dispatch"] = round((alone + shared - together) / arguments.dispatch_us, 2)
    told = {"rank": rank, "gpu": torch.cuda.get_device_name(), "tokens": tokens, "experts_us": round(alone, 1),
            "gemm_us": round(shared, 1), "sms": rows}
    every = [None] * dist.get_world_size()
    dist.all_gather_object(every, told)
    if rank == 0:
        print(json.dumps(every, indent=1))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
