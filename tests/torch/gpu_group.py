# SPDX-License-Identifier: Apache-2.0
"""Experts with a process group on GPUs: torchrun --nproc-per-node 2 tests/torch/gpu_group.py [options]

Compares with one rank that has all tokens, bit for bit, and prints a line for each check; any failure ends with
status 1. --transport nccl lets NCCL move the bytes, --combine rows sends the row of each expert home; --check names
the checks to make. --time adds the host's and the GPU's time of calls. It needs as many GPUs as ranks, which reach
each other if the transport is "peer". What does not end is given up after --patience seconds, with status 3.
"""
import argparse
import faulthandler
import os
import sys
import threading
import time

os.environ.setdefault("MOEJIT_TEST_DEVICE", "cuda")
os.environ.setdefault("TORCH_SYMM_MEM_DISABLE_MULTICAST", "1")  # nothing here multicasts

import torch
import torch.distributed as dist
from torch.utils.checkpoint import checkpoint

from group_case import Case
from scales_case import STATE
from moejit.torch import Experts
from moejit.torch.groups import layers_of

RESULTS = ("y", "dx", "dprobs", "dw1", "dw2", "db1", "db2")
REPLAYS = 100


class Checks:
    """The checks, which all ranks make together."""

    def __init__(self, rank, ranks, device, transport, combine):
        self.rank, self.ranks, self.device, self.failed = rank, ranks, device, 0
        self.of_group = {"transport": transport, "combine": combine}

    def case(self, recipe, tokens, **options):
        """A case with this many tokens on each rank, the given ones in turn."""
        return Case(recipe, [tokens[rank % len(tokens)] for rank in range(self.ranks)], self.device,
                    of_group=self.of_group, **options)

    def tell(self, what, differing):
        """Prints a check: the names of what differs on any rank."""
        told = [None] * self.ranks
        dist.all_gather_object(told, differing)
        bad = [f"rank {rank}: {', '.join(map(str, each))}" for rank, each in enumerate(told) if each]
        self.failed += bool(bad)
        if self.rank == 0:
            print(f"{'FAILED' if bad else 'ok'}: {what}{': ' if bad else ''}{'; '.join(bad)}", flush=True)

    def compare(self, what, got, want):
        self.tell(what, [name for name in RESULTS if name in want and not torch.equal(got[name], want[name])]
                  + ([f"status {got['status']}"] if got.get("status") else []))

    def bits(self):
        for recipe in ("fp8_flow", "bf16", "fp8_blockwise", "fp8_rowwise", "mxfp8", "nvfp4"):
            for tokens in ((48, 31), (0, 64), (64, 0), (0, 0)):
                case = self.case(recipe, tokens)
                self.compare(f"{recipe}, tokens {tokens}", case.step(case.module(dist.group.WORLD), self.rank),
                             case.expected()[self.rank])
        if self.of_group["transport"] == "peer":
            case = self.case("fp8_flow", (48, 31))
            self.compare("fp8_flow on 3 SMs", case.step(case.module(dist.group.WORLD, sms=3), self.rank),
                         case.expected()[self.rank])
        case = self.case("fp8_flow", (48, 31), bias=True, recompute="moe_expert")
        self.compare("fp8_flow with biases and recompute", case.step(case.module(dist.group.WORLD), self.rank),
                     case.expected()[self.rank])
        case = self.case("fp8_flow", (700, 1024), sizes=(16, 1024, 512, 4), max_tokens=1024)
        self.compare("fp8_flow, 16 experts 1024 x 512", case.step(case.module(dist.group.WORLD), self.rank),
                     case.expected()[self.rank])

    def scales(self):
        """Steps of delayed scaling, and the state behind each."""
        case = self.case("fp8_delayed", (48, 31), update_scales_in_backward=False, amax_history_len=4)
        module = case.module(dist.group.WORLD)
        for seed in range(4):
            got = case.step(module, self.rank, seed)
            self.compare(f"fp8_delayed, step {seed}", got, case.expected(seed)[self.rank])
            module.update_scales()
            case.whole.update_scales()
            part = case.part_of_rank(self.rank)
            self.tell(f"fp8_delayed, state behind step {seed}",
                      [name for name in STATE if not torch.equal(getattr(module, name), part[name])])

    def graph(self):
        """Replays of a captured step with other tokens, routing and weights are what eager calls give."""
        case = self.case("fp8_flow", (48, 31))
        module = case.module(dist.group.WORLD)
        for parameter in module.parameters():
            parameter.grad = torch.zeros_like(parameter)
        static = case.inputs(self.rank)
        x, ids, probs, dy = static

        def step():
            y = module(x, ids, probs)
            grads = torch.autograd.grad(y, (x, probs, *module.parameters()), dy)
            return dict(zip(RESULTS, (y.detach(), *grads)))
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            step()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            captured = step()
        differing = set()
        for seed in range(REPLAYS):
            with torch.no_grad():
                for each, new in zip(static, case.inputs(self.rank, seed)):
                    each.copy_(new)
                module.gate_up_proj.mul_(-1)
            graph.replay()
            got = {name: each.clone() for name, each in captured.items()}
            want = case.step(module, self.rank, seed)
            differing |= {f"{name} of replay {seed}" for name in got if not torch.equal(got[name], want[name])}
        self.tell(f"{REPLAYS} replays of a graph with other tokens, routing and weights", sorted(differing)[:5])

    def steps(self):
        case = self.case("fp8_flow", (48, 31))
        module = case.module(dist.group.WORLD)
        apart = [case.step(module, self.rank, seed) for seed in range(4)]
        inputs = [case.inputs(self.rank, seed) for seed in range(4)]
        results = [module(*given[:3]) for given in inputs]
        differing = []
        for (x, _, probs, dy), y, want in reversed(list(zip(inputs, results, apart))):
            for parameter in module.parameters():
                parameter.grad = None
            y.backward(dy)
            got = dict(zip(RESULTS, (y, x.grad, probs.grad, module.gate_up_proj.grad, module.down_proj.grad)))
            differing += [name for name in got if not torch.equal(got[name], want[name])]
        self.tell("four forward calls before their backward calls", differing)
        for use_reentrant in (False, True):
            got = case.step(module, self.rank, call=lambda *given: checkpoint(module, *given,
                                                                              use_reentrant=use_reentrant))
            self.compare(f"a checkpoint, use_reentrant={use_reentrant}", got, apart[0])
        with torch.no_grad():
            y = module(*case.inputs(self.rank)[:3])
        self.compare("a call without gradients", {**apart[0], "y": y}, apart[0])
        compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
        self.compare("torch.compile", case.step(module, self.rank, call=compiled), apart[0])

    def memory(self):
        """Layers of a model take the memory of one."""
        group, sizes = dist.new_group(), (16, 1024, 512, 4)
        case = self.case("fp8_flow", (700, 1024), sizes=sizes, max_tokens=1024)
        for _ in range(4):
            case.step(case.module(group), self.rank)
        self.tell("four layers share one group", [] if len(layers_of(group).groups) == 1 else ["more than one"])

    def silent(self):
        """A rank that makes no call is told by the others, and all go on after a reset."""
        if self.of_group["transport"] == "nccl":
            return self.silent_over_nccl()
        group = dist.new_group()
        case = self.case("fp8_flow", (48, 31))
        module = case.module(group, timeout_ms=2000)
        want, word = case.step(module, self.rank), 0
        if self.rank == 0:
            module(*case.inputs(0)[:3])
            word = module.status()
        self.tell("a silent rank is told", [] if self.rank or word & 256 else [f"status {word}"])
        module.reset_group()
        self.compare("a step after the reset", case.step(module, self.rank), want)

    def silent_over_nccl(self):
        """A rank waits for another in NCCL until its call is aborted: by status(), and by another thread."""
        group = dist.new_group()
        case = self.case("fp8_flow", (48, 31))
        module = case.module(group, timeout_ms=20000)
        want = case.step(module, self.rank)
        graph = self.capture(case, module)
        graph.replay()
        torch.cuda.synchronize()
        for way in ("status()", "abort_group()", "abort_group() of a replay"):
            begin, sentence = time.monotonic(), "none"
            if self.rank == 0:
                graph.replay() if way.endswith("replay") else module(*case.inputs(0)[:3])
                if way != "status()":
                    threading.Timer(1, module.abort_group).start()
                    torch.cuda.synchronize()
                try:
                    module.status()
                except RuntimeError as error:
                    sentence = str(error)
            lasted = time.monotonic() - begin
            self.tell(f"a call that waits for a rank ends by {way}, after {lasted:.1f} s",
                      [] if self.rank or ("aborted" in sentence and lasted < 30) else [sentence, f"{lasted:.1f} s"])
            module.reset_group()
            self.compare("a step after the reset", case.step(module, self.rank), want)
            del graph
            graph = self.capture(case, module)
            graph.replay()
            torch.cuda.synchronize()

    def capture(self, case, module):
        """A graph of a call without gradients."""
        x, ids, probs, _ = case.inputs(self.rank)
        with torch.no_grad():
            module(x, ids, probs)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                graph.y = module(x, ids, probs)
        graph.inputs = (x, ids, probs)
        return graph

    def times(self):
        """Prints the host's time of calls, and the time of whole steps, in microseconds."""
        for sizes, tokens in (((16, 1024, 512, 4), 64), ((64, 4096, 1536, 8), 4096)):
            torch.manual_seed(self.rank)
            module = Experts(*sizes, max_tokens=tokens, device=self.device, process_group=dist.group.WORLD,
                             **self.of_group)
            x = torch.randn(tokens, sizes[1], device=self.device).bfloat16().requires_grad_()
            ids = torch.rand(tokens, sizes[0], device=self.device).topk(sizes[3]).indices
            probs = torch.rand(tokens, sizes[3], device=self.device)
            for _ in range(5):
                module(x, ids, probs).sum().backward()
            host, begin, end = {"forward": [], "backward": []}, *(torch.cuda.Event(True) for _ in range(2))
            torch.cuda.synchronize()
            dist.barrier()
            begin.record()
            for _ in range(50):
                start = time.perf_counter()
                y = module(x, ids, probs)
                middle = time.perf_counter()
                y.backward(y.detach())
                host["forward"].append(middle - start)
                host["backward"].append(time.perf_counter() - middle)
            end.record()
            torch.cuda.synchronize()
            if self.rank == 0:
                medians = {name: 1e6 * sorted(each)[len(each) // 2] for name, each in host.items()}
                print(f"time: {sizes}, {tokens} tokens a rank: host {medians['forward']:.0f} us forward, "
                      f"{medians['backward']:.0f} us backward; {1000 * begin.elapsed_time(end) / 50:.0f} us a step",
                      flush=True)


def main():
    parser = argparse.ArgumentParser()
    names = ("bits", "scales", "graph", "steps", "memory", "silent")
    parser.add_argument("--transport", choices=("peer", "nccl"), default="peer")
    parser.add_argument("--combine", choices=("partial", "rows"), default="partial")
    parser.add_argument("--check", choices=names, action="append")
    parser.add_argument("--patience", type=int, default=540)
    parser.add_argument("--time", action="store_true")
    options = parser.parse_args()
    faulthandler.dump_traceback_later(options.patience - 5)
    watch = threading.Timer(options.patience, os._exit, (3,))
    watch.daemon = True
    watch.start()
    rank, ranks, local_rank = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
    if torch.cuda.device_count() < ranks:
        sys.exit(f"{ranks} ranks need a GPU each, this host has {torch.cuda.device_count()}")
    device = torch.device("cuda", local_rank)
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    checks = Checks(rank, ranks, device, options.transport, options.combine)
    for name in options.check or names:
        getattr(checks, name)()
    if options.time:
        checks.times()
    dist.destroy_process_group()
    sys.exit(1 if checks.failed else 0)


if __name__ == "__main__":
    main()
