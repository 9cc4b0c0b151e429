# SPDX-License-Identifier: Apache-2.0
"""Stands in for DeepEP, which needs GPUs: its legacy Buffer over torch.distributed, as far as Megatron calls it.

Megatron's own manager and autograd functions run on it. Tokens go once to each rank that has experts of theirs, in the
order of ranks and tokens; combine adds up in float32.
"""
import sys

import torch
import torch.distributed as dist


class EventHandle:
    pass


class EventOverlap:

    def __init__(self, event=None):
        self.event = event

    def current_stream_wait(self):
        pass


class _Config:

    def get_nvl_buffer_size_hint(self, hidden_bytes, ranks):
        return hidden_bytes * ranks

    def get_rdma_buffer_size_hint(self, hidden_bytes, ranks):
        return 0


class Buffer:
    num_sms = 20

    def __init__(self, group, num_nvl_bytes, num_rdma_bytes):
        self.group, self.num_nvl_bytes, self.num_rdma_bytes = group, num_nvl_bytes, num_rdma_bytes

    @staticmethod
    def get_dispatch_config(ranks):
        return _Config()

    get_combine_config = get_dispatch_config

    @classmethod
    def set_num_sms(cls, num_sms):
        cls.num_sms = num_sms

    def get_dispatch_layout(self, topk_idx, num_experts, previous_event=None, async_finish=False,
                            allocate_on_comm_stream=False):
        ranks = self.group.size()
        chosen = topk_idx[topk_idx >= 0]
        of_rank = torch.where(topk_idx < 0, -1, topk_idx // (num_experts // ranks))
        is_token_in_rank = (of_rank[:, :, None] == torch.arange(ranks, device=topk_idx.device)).any(1)
        return (is_token_in_rank.sum(0).int(), None, chosen.bincount(minlength=num_experts).int(), is_token_in_rank,
                EventOverlap())

    def dispatch(self, x, handle=None, num_tokens_per_rank=None, num_tokens_per_rdma_rank=None, is_token_in_rank=None,
                 num_tokens_per_expert=None, topk_idx=None, topk_weights=None, expert_alignment=1, previous_event=None,
                 async_finish=False, allocate_on_comm_stream=False):
        parts = x if isinstance(x, tuple) else (x,)
        if isinstance(x, tuple):
            assert [part.dtype for part in x] == [torch.float8_e4m3fn, torch.float32]
            assert x[0].shape[1] == 128 * x[1].shape[1]  # what DeepEP takes
        if handle is not None:
            came = tuple(self._send(part, *handle[:3]) for part in parts)
            return came if isinstance(x, tuple) else came[0], None, None, None, None, EventOverlap()
        assert topk_weights.dtype == torch.float32
        tokens = torch.cat([is_token_in_rank[:, rank].nonzero()[:, 0] for rank in range(self.group.size())])
        sent = num_tokens_per_rank.tolist()
        received = torch.empty_like(num_tokens_per_rank)
        dist.all_to_all_single(received, num_tokens_per_rank, group=self.group)
        handle = tokens, sent, received.tolist(), is_token_in_rank.shape[0]
        *came, ids, weights = (self._send(part, *handle[:3]) for part in (*parts, topk_idx, topk_weights))
        experts = len(num_tokens_per_expert) // self.group.size()
        ids = ids - self.group.rank() * experts
        is_here = (ids >= 0) & (ids < experts)
        ids, weights = torch.where(is_here, ids, -1), torch.where(is_here, weights, 0.0)
        counts = ids[is_here].bincount(minlength=experts).tolist()
        return tuple(came) if isinstance(x, tuple) else came[0], ids, weights, counts, handle, EventOverlap()

    def combine(self, x, handle, topk_weights=None, previous_event=None, async_finish=False,
                allocate_on_comm_stream=False):
        assert x.dtype == torch.bfloat16
        weights = None if topk_weights is None else self._sum(topk_weights, handle)
        return self._sum(x, handle), weights, EventOverlap()

    def _send(self, part, tokens, sent, received):
        rows = part.view(torch.uint8)[tokens]
        came = rows.new_empty(sum(received), rows.shape[1])
        dist.all_to_all_single(came, rows, received, sent, group=self.group)
        return came.view(part.dtype)

    def _sum(self, rows, handle):
        tokens, sent, received, count = handle
        home = rows.new_empty(sum(sent), rows.shape[1])
        dist.all_to_all_single(home, rows.contiguous(), sent, received, group=self.group)
        total = rows.new_zeros(count, rows.shape[1], dtype=torch.float32).index_add(0, tokens, home.float())
        return total.to(rows.dtype)


def install():
    """Makes `import deep_ep` find this module, where the real one is not."""
    for name in ("deep_ep", "deep_ep.utils"):
        sys.modules.setdefault(name, sys.modules[__name__])
