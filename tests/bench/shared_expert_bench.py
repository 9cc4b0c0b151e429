# SPDX-License-Identifier: Apache-2.0
"""What an exchange on few SMs gains where a shared expert's GEMM runs on another stream.

    torchrun --nproc-per-node 2 tests/bench/shared_expert_bench.py --sms 0 48 24

Experts with a process group run forward on one stream while x @ w runs on another one, in e4m3: the first GEMM of a
shared expert, which leaves as many SMs as the exchange takes. Medians on each rank of calls back to back, in turns:
experts alone, the GEMM alone, and both, which start at the same event. Gained is what both take less than experts
with all SMs and the GEMM behind them. Prints JSON and judges nothing.
"""
import argparse
import contextlib
import json
import os
import statistics

os.environ.setdefault("TORCH_SYMM_MEM_DISABLE_MULTICAST", "1")  # nothing here multicasts

import torch
import torch.distributed as dist

from moejit.torch import Experts


def made(arguments, sms, device):
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

    def without(self, sms):
        """Multiplies with CTAs for all SMs but so many."""
        torch._C._set_sm_carveout_experimental(sms or None)
        try:
            return self()
        finally:
            torch._C._set_sm_carveout_experimental(None)


def median_us(calls, run):
    """Returns the median time of run(), of calls that the host enqueues ahead of the GPU."""
    for _ in range(10):
        run()
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(calls + 1)]
    marks[0].record()
    for mark in marks[1:]:
        run()
        mark.record()
    torch.cuda.synchronize()
    return statistics.median(1000 * first.elapsed_time(last) for first, last in zip(marks, marks[1:]))


def measure(arguments, device):
    """Returns the median times of what is alone and of both, over rounds in which all of them take turns."""
    tokens = arguments.tokens
    x = torch.randn(tokens, arguments.hidden, device=device, dtype=torch.bfloat16)
    ids = torch.rand(tokens, arguments.experts, device=device).topk(arguments.top_k).indices.int()
    probs = torch.rand(tokens, arguments.top_k, device=device)
    gemm, side, main_stream = SharedGemm(arguments, device), torch.cuda.Stream(), torch.cuda.current_stream()

    def both(experts, sms):
        side.wait_stream(main_stream)
        experts(x, ids, probs)
        with torch.cuda.stream(side):
            gemm.without(sms)
        main_stream.wait_stream(side)

    made_for = {sms: made(arguments, sms, device) for sms in dict.fromkeys([0, *arguments.sms])}
    loops = {"gemm": gemm}
    for sms, experts in made_for.items():
        loops[f"experts_{sms}"] = lambda experts=experts: experts(x, ids, probs)
        loops[f"both_{sms}"] = lambda experts=experts, sms=sms: both(experts, sms)
    times = {name: [] for name in loops}
    for _ in range(arguments.rounds):
        for name, run in loops.items():
            times[name].append(median_us(arguments.calls, run))
    return {name: statistics.median(values) for name, values in times.items()}


def parser_of(description, **defaults):
    """Returns a parser of numbers with these defaults, of the layer's sizes and of the SMs of the exchange."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    sizes = {"experts": 16, "hidden": 7168, "intermediate": 2048, "top_k": 8, "tokens": 4096}
    for name, value in {**sizes, **defaults}.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=value)
    parser.add_argument("--sms", type=int, nargs="+", default=[0, 48, 32, 24], help="SMs of the exchange; 0: all")
    return parser


@contextlib.contextmanager
def joined_rank():
    """Joins the ranks that torchrun has started, and yields this one's device, with a stream of high priority."""
    device = torch.device("cuda", int(os.environ["RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    with torch.no_grad(), torch.cuda.stream(torch.cuda.Stream(priority=-1)):
        yield device
    dist.barrier()
    dist.destroy_process_group()


def main():
    arguments = parser_of(__doc__, columns=4096, calls=30, rounds=5).parse_args()
    with joined_rank() as device:
        times = measure(arguments, device)
        told = {"rank": device.index, "gpu": torch.cuda.get_device_name(), "tokens": arguments.tokens,
                "us": {name: round(value, 1) for name, value in times.items()},
                "gained_us": {sms: round(times["experts_0"] + times["gemm"] - times[f"both_{sms}"], 1)
                              for sms in arguments.sms}}
        every = [None] * dist.get_world_size()
        dist.all_gather_object(every, told)
        if device.index == 0:
            print(json.dumps(every))


if __name__ == "__main__":
    main()
