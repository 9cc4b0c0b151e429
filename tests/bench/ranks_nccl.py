# SPDX-License-Identifier: Apache-2.0
"""Times dispatch and combine as they are usually made with NCCL: an all-to-all of the rows of all choices.

  torchrun --nproc-per-node R tests/bench/ranks_nccl.py TOKENS HIDDEN TOP_K EXPERTS

Rows of dispatch are e4m3 with a scale for 128 values, already quantized; those of combine are bf16. "payload" is NCCL's
all-to-all alone, with counts that the host knows. "eager" is what a framework does: it sorts choices by expert,
exchanges counts, waits for them on the host, gathers rows, sends them, and puts them into the order of experts; back,
the same without counts, and each token's rows are added with their probabilities. Pad rows are left out. Prints JSON:
the median of the slowest rank in microseconds, by the wall clock, since the host waits for the GPU.
"""
import json
import os
import statistics
import sys
import time

os.environ.setdefault("NCCL_NVLS_ENABLE", "0")  # no multicast memory

import torch
import torch.distributed as dist

ROUNDS = 30


def exchange(source, sent, received):
    """Sends rows, [rows, columns]; the number for each rank in turn."""
    got = torch.empty((sum(received), source.shape[1]), dtype=source.dtype, device=source.device)
    dist.all_to_all_single(got, source, received, sent)
    return got


class Rank:
    """The tokens of a rank and their choices, drawn uniformly."""

    def __init__(self, tokens, hidden, top_k, experts):
        self.ranks, self.experts, self.top_k = dist.get_world_size(), experts, top_k
        torch.manual_seed(dist.get_rank())
        self.ids = torch.rand(tokens, experts, device="cuda").topk(top_k).indices
        self.probs = torch.rand(tokens, top_k, device="cuda")
        self.rows = torch.randint(0, 256, (tokens, hidden + hidden // 128 * 4), dtype=torch.uint8, device="cuda")
        self.dispatch()
        self.h2 = torch.randn(self.by_expert.numel(), hidden, dtype=torch.bfloat16, device="cuda")
        self.permuted = self.rows[self.order // top_k]
        self.unpermuted = self.h2[self.by_expert.argsort()]

    def dispatch(self):
        """From quantized tokens to the rows of this rank's experts, in their order."""
        self.order = self.ids.view(-1).argsort(stable=True)
        counts = torch.bincount(self.ids.view(-1), minlength=self.experts)
        theirs = torch.empty_like(counts)
        dist.all_to_all_single(theirs, counts)
        both = torch.stack([counts, theirs]).view(2, self.ranks, -1).sum(2).tolist()  # the host waits
        self.sent, self.received = both
        rows = exchange(self.rows[self.order // self.top_k], self.sent, self.received)
        local = torch.arange(self.experts // self.ranks, device="cuda").repeat(self.ranks)
        self.by_expert = local.repeat_interleave(theirs, output_size=sum(self.received)).argsort(stable=True)
        return rows[self.by_expert]

    def combine(self):
        """From the rows of this rank's experts to its tokens."""
        home = exchange(self.h2[self.by_expert.argsort()], self.received, self.sent)
        of_choices = home[self.order.argsort()].view(self.ids.shape[0], self.top_k, -1)
        return torch.einsum("tkh,tk->th", of_choices, self.probs.to(of_choices.dtype))

    def send_rows(self):
        exchange(self.permuted, self.sent, self.received)

    def send_results(self):
        exchange(self.unpermuted, self.received, self.sent)


def microseconds(call):
    """The median of a call, of the slowest rank."""
    times = []
    for _ in range(ROUNDS):
        dist.barrier()
        torch.cuda.synchronize()
        began = time.perf_counter()
        call()
        torch.cuda.synchronize()
        times.append(1e6 * (time.perf_counter() - began))
    slowest = torch.tensor(statistics.median(times[ROUNDS // 4:]), device="cuda")
    dist.all_reduce(slowest, dist.ReduceOp.MAX)
    return round(slowest.item(), 1)


def main():
    tokens, hidden, top_k, experts = map(int, sys.argv[1:])
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl", device_id=torch.device("cuda", torch.cuda.current_device()))
    rank = Rank(tokens, hidden, top_k, experts)
    found = {"ranks": rank.ranks, "tokens": tokens, "hidden": hidden, "top_k": top_k, "experts": experts,
             "nccl": ".".join(map(str, torch.cuda.nccl.version())),
             "dispatch_payload_us": microseconds(rank.send_rows), "dispatch_eager_us": microseconds(rank.dispatch),
             "combine_payload_us": microseconds(rank.send_results), "combine_eager_us": microseconds(rank.combine)}
    if dist.get_rank() == 0:
        print(json.dumps(found), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
