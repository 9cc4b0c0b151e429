# SPDX-License-Identifier: Apache-2.0
"""Token dispatchers of Megatron-Core whose tokens and gradients travel to the experts as FP8 codes and scales.

Their steps before the experts move nothing but probabilities: dispatch_postprocess() hands the exchange to the experts,
which quantize before it and combine behind it.
"""
from __future__ import annotations

import torch
from megatron.core.tensor_parallel import all_to_all
from megatron.core.transformer.moe.fused_a2a import get_buffer, get_hidden_bytes
from megatron.core.transformer.moe.moe_utils import permute, sort_chunks_by_idxs, unpermute
from megatron.core.transformer.moe.token_dispatcher import MoEAlltoAllTokenDispatcher, MoEFlexTokenDispatcher

from moejit.torch.devices import on_device_of
from moejit.torch.dispatch import Dispatched


class _AllToAllExchange:
    """Codes and scales of a row are one message.

    Args:
        dispatcher: Has been called for this exchange. Later calls change its attributes, so this keeps what backward
            needs.
        tokens_per_expert: On the device.
        order: Of received rows; None: they lie in the order of experts.
    """
    top_k = 0

    def __init__(self, dispatcher: FP8AllToAllDispatcher, tokens_per_expert: torch.Tensor,
                 order: torch.Tensor | None) -> None:
        self.tokens_per_expert, self.index_dtype, self.order = tokens_per_expert, tokens_per_expert.dtype, order
        self.group, self.splits = dispatcher.ep_group, (dispatcher.output_splits, dispatcher.input_splits)
        self.tokens = dispatcher.reversed_local_input_permutation_mapping  # of each row to send
        self.shape, self.routing_map = dispatcher.hidden_shape_before_permute, dispatcher.routing_map
        self.is_padded = dispatcher.drop_and_pad

    def dispatch(self, codes: torch.Tensor, scales: torch.Tensor, probs: torch.Tensor) -> Dispatched:
        return Dispatched(*self.dispatch_gradient(codes, scales), self.tokens_per_expert, probs)

    def dispatch_gradient(self, codes: torch.Tensor, scales: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        message = torch.cat([codes.view(torch.uint8), scales.view(torch.uint8)], dim=1)[self.tokens]
        came = all_to_all(self.group, message, *self.splits)
        parts = came.split([codes.shape[1], message.shape[1] - codes.shape[1]], dim=1)
        came_codes, came_scales = (part.contiguous() if self.order is None else part[self.order] for part in parts)
        return came_codes.view(codes.dtype), came_scales.view(scales.dtype)

    def combine(self, y: torch.Tensor) -> torch.Tensor:
        if self.order is not None:
            y = torch.empty_like(y).index_copy_(0, self.order, y)
        home = all_to_all(self.group, y, *self.splits[::-1])
        return unpermute(home, self.tokens, self.shape, routing_map=self.routing_map, drop_and_pad=self.is_padded)

    def combine_gradients(self, dx: torch.Tensor, dprobs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.combine(dx), dprobs


class FP8AllToAllDispatcher(MoEAlltoAllTokenDispatcher):
    """Gives experts tokens [T, H], an exchange, and the probabilities of the rows of this rank's experts."""

    def dispatch_preprocess(self, hidden_states: torch.Tensor, routing_map: torch.Tensor,
                            probs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns tokens as they are, and the probability of each row to send."""
        self.hidden_shape, self.probs, self.routing_map = hidden_states.shape, probs, routing_map
        hidden_states = hidden_states.view(-1, self.hidden_shape[-1])
        self.hidden_shape_before_permute = hidden_states.shape
        self.tokens_per_expert = self.preprocess(routing_map)
        self.tokens_per_expert = self._maybe_dtoh_and_synchronize("before_permutation_1", self.tokens_per_expert)
        tokens = torch.arange(len(hidden_states), device=hidden_states.device)[:, None]
        rows, probs, *_ = permute(tokens, routing_map, probs=probs, num_out_tokens=self.num_out_tokens,
                                  drop_and_pad=self.drop_and_pad)
        self.reversed_local_input_permutation_mapping = rows[:, 0]
        return hidden_states, probs

    def token_dispatch(self, hidden_states: torch.Tensor, probs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Sends the probabilities alone."""
        self.tokens_per_expert = self._maybe_dtoh_and_synchronize("before_ep_alltoall", self.tokens_per_expert)
        return hidden_states, all_to_all(self.ep_group, probs, self.output_splits, self.input_splits)

    def dispatch_postprocess(self, hidden_states: torch.Tensor,
                             probs: torch.Tensor) -> tuple[torch.Tensor, _AllToAllExchange, torch.Tensor]:
        """Returns tokens, the exchange, and the probabilities in the order of experts."""
        self.tokens_per_expert = self._maybe_dtoh_and_synchronize("before_permutation_2", self.tokens_per_expert)
        order = None
        if self.num_local_experts > 1:
            received = torch.arange(len(probs), device=probs.device)
            if self.drop_and_pad:
                order = received.view(-1, self.num_local_experts, self.capacity).transpose(0, 1).flatten()
            else:
                order, _ = sort_chunks_by_idxs(received, self.num_global_tokens_per_local_expert.ravel(),
                                               self.sort_input_by_local_experts)
            probs = probs[order]
        counts = self._maybe_dtoh_and_synchronize("before_finish", self.tokens_per_expert)
        self.tokens_per_expert = None
        return hidden_states, _AllToAllExchange(self, on_device_of(hidden_states, counts), order), probs

    def combine_preprocess(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """Returns what the exchange has combined, as token_combine() does."""
        return hidden_states

    def token_combine(self, hidden_states: torch.Tensor, *_: bool, **__: bool) -> torch.Tensor:
        return hidden_states

    def combine_postprocess(self, permutated_local_input_tokens: torch.Tensor) -> torch.Tensor:
        """Returns the results in the shape of the tokens."""
        return permutated_local_input_tokens.view(self.hidden_shape)


class _DeepEPExchange:
    """DeepEP's dispatch of codes and scales, and its combine; the handle of one call serves all."""

    def __init__(self, dispatcher: FP8FlexDispatcher) -> None:
        manager = dispatcher._comm_manager
        self.group, self.experts, self.ids = manager.group, manager.num_experts, manager.token_indices
        self.top_k, self.index_dtype = self.ids.shape[1], self.ids.dtype

    def dispatch(self, codes: torch.Tensor, scales: torch.Tensor, probs: torch.Tensor) -> Dispatched:
        buffer = get_buffer(self.group, get_hidden_bytes(codes))
        per_rank, per_rdma_rank, per_expert, is_in_rank, _ = buffer.get_dispatch_layout(self.ids, self.experts)
        (codes, scales), ids, probs, _, self.handle, _ = buffer.dispatch(
            (codes, scales), topk_idx=self.ids, topk_weights=probs, num_tokens_per_rank=per_rank,
            num_tokens_per_rdma_rank=per_rdma_rank, is_token_in_rank=is_in_rank, num_tokens_per_expert=per_expert)
        return Dispatched(codes, scales, ids, probs)

    def dispatch_gradient(self, codes: torch.Tensor, scales: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return get_buffer(self.group, get_hidden_bytes(codes)).dispatch((codes, scales), handle=self.handle)[0]

    def combine(self, y: torch.Tensor) -> torch.Tensor:
        return get_buffer(self.group, get_hidden_bytes(y)).combine(y, handle=self.handle)[0]

    def combine_gradients(self, dx: torch.Tensor, dprobs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return get_buffer(self.group, get_hidden_bytes(dx)).combine(dx, handle=self.handle, topk_weights=dprobs)[:2]


class FP8FlexDispatcher(MoEFlexTokenDispatcher):
    """Gives experts tokens [T, H], an exchange over DeepEP, and the probabilities of the tokens' choices."""

    def token_dispatch(self, hidden_states: torch.Tensor, probs: torch.Tensor, *_: bool,
                       **__: bool) -> tuple[torch.Tensor, torch.Tensor]:
        """Moves nothing."""
        return hidden_states, probs.float()

    def dispatch_postprocess(self, hidden_states: torch.Tensor,
                             probs: torch.Tensor) -> tuple[torch.Tensor, _DeepEPExchange, torch.Tensor]:
        """Returns tokens, the exchange, and the probabilities [T, K]."""
        return hidden_states, _DeepEPExchange(self), probs

    def combine_preprocess(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """Returns what the exchange has combined, as token_combine() does."""
        return hidden_states

    def token_combine(self, hidden_states: torch.Tensor, *_: bool, **__: bool) -> torch.Tensor:
        return hidden_states
