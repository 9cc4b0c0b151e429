# SPDX-License-Identifier: Apache-2.0
"""Token dispatchers of Megatron-Core that leave tokens as they came, and which dispatcher replaces which."""
from __future__ import annotations

import functools
from typing import Any, NamedTuple

import torch
from megatron.core.transformer.moe.token_dispatcher import (
    MoEAllGatherTokenDispatcher, MoEAlltoAllTokenDispatcher, MoEFlexTokenDispatcher)

from moejit.torch.megatron_fp8_dispatch import FP8AllToAllDispatcher, FP8FlexDispatcher
from moejit.torch.megatron_layers import hidden_of, refuse


class FlexDispatcher(MoEFlexTokenDispatcher):
    """Leaves what DeepEP brings: each token once, with the ids of this rank's experts, or -1, and probabilities."""

    def dispatch_postprocess(self, hidden_states: torch.Tensor,
                             probs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Returns tokens [N, H], ids [N, K] and probabilities [N, K]."""
        return hidden_states, self._comm_manager.dispatched_indices, probs

    def combine_preprocess(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """Returns the sums of this rank's experts, which combine adds up over ranks."""
        return hidden_states


class AllGatherDispatcher(MoEAllGatherTokenDispatcher):
    """Gathers tokens with the ids and probabilities of their K experts, in place of maps of all experts."""

    def dispatch_preprocess(self, hidden_states: torch.Tensor, routing_map: torch.Tensor,
                            probs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns tokens [N, H] and probabilities [N, K]; keeps ids where token_dispatch() gathers the map."""
        ids, probs = choices_of(routing_map, probs, self.router_topk)
        return super().dispatch_preprocess(hidden_states, ids, probs)

    def dispatch_postprocess(self, hidden_states: torch.Tensor,
                             probs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Returns tokens [N, H], ids [N, K] and probabilities [N, K]."""
        ids = (self.routing_map - self.local_expert_indices[0]).clamp(min=-1)  # below -1 would be a mistake
        self.routing_map = None
        self.local_probs = probs.detach()  # token_combine() adds up in its dtype; a graph would outlive the step
        return hidden_states, ids, probs

    def combine_preprocess(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """Returns the sums of this rank's experts, which combine adds up over ranks."""
        return hidden_states


def choices_of(routing_map: torch.Tensor, probs: torch.Tensor, top_k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the experts of each token, int32 [N, K], and their probabilities; the host waits for nothing.

    Args:
        routing_map: [N, E], true for at most K experts of a token.
        probs: [N, E].
        top_k: K. The id of a choice that a token does not have is E.
    """
    experts = routing_map.shape[1]
    ranks = torch.arange(experts, 0, -1, dtype=torch.int32, device=probs.device)
    ids = experts - (routing_map * ranks).topk(top_k).values  # ascending: no order that depends on the device
    return ids, probs.gather(1, ids.clamp(max=experts - 1).long())


class Replacement(NamedTuple):
    """A class of Megatron's dispatchers, ours, and K of the tokens that experts get then; 0: rows in their order."""
    given: type
    ours: type
    top_k: int


# By moe_token_dispatcher_type.
_OF_TOKENS = {"flex": (MoEFlexTokenDispatcher, FlexDispatcher),
              "allgather": (MoEAllGatherTokenDispatcher, AllGatherDispatcher)}
_OF_FP8 = {"flex": (MoEFlexTokenDispatcher, FP8FlexDispatcher),
           "alltoall": (MoEAlltoAllTokenDispatcher, FP8AllToAllDispatcher)}
# Fields that would have rows travel, or gradients of weights computed, apart from the call of the experts.
_APART = ("moe_shared_expert_overlap", "overlap_moe_expert_parallel_comm", "delay_wgrad_compute",
          "overlap_dispatch_backward_with_experts_wgrad")


def dispatcher_of(config: Any, input: str, dispatch: str) -> Replacement | None:
    """Returns what is to replace the dispatcher of a configuration; None: nothing.

    Args:
        config: A TransformerConfig.
        input, dispatch: As for convert_spec().

    Raises:
        RuntimeError: The configuration has another dispatcher, or asks for what does not go with it.
    """
    if dispatch != "fp8" and input != "tokens":
        return None
    known, option = (_OF_FP8, 'dispatch="fp8"') if dispatch == "fp8" else (_OF_TOKENS, 'input="tokens"')
    kind, backend = config.moe_token_dispatcher_type, getattr(config, "moe_flex_dispatcher_backend", "deepep")
    if kind not in known:
        refuse(f"moe_token_dispatcher_type with {option}", kind, " or ".join(known), f"leave {option} out")
    if kind == "flex" and backend != "deepep":
        refuse(f"moe_flex_dispatcher_backend with {option}", backend, "deepep",
               f"leave {option} out: rows come in the order of experts")
    if dispatch == "fp8":
        for field in _APART:
            if getattr(config, field, False):
                refuse(f"{field} with {option}", True, False,
                       f"leave one of the two out: with {option} rows travel within the call of the experts")
        if kind == "flex" and hidden_of(config) % 128 != 0:
            refuse(f"hidden_size with {option} over DeepEP", hidden_of(config), "a multiple of 128",
                   f"leave {option} out")
    return Replacement(*known[kind], top_k=config.moe_router_topk if kind in _OF_TOKENS else 0)


@functools.cache
def join_experts_and_dispatchers() -> None:
    """Gives each MoE layer the dispatcher that its experts need, when it takes experts that have one.

    A subclass of MoELayer would not do. TransformerLayer of Megatron-Core 0.16 gives a model's process groups to
    MoELayer alone; subclasses would take the default groups. And a layer does not tell its experts of itself. So torch
    is asked to tell of parts that layers take, once experts need this.
    """
    def join(layer: torch.nn.Module, _: str, part: torch.nn.Module | None) -> None:
        replacement = getattr(part, "dispatcher", None)
        if isinstance(replacement, Replacement) and hasattr(layer, "token_dispatcher"):
            _replace(layer, replacement)

    torch.nn.modules.module.register_module_module_registration_hook(join)


def _replace(layer: torch.nn.Module, replacement: Replacement) -> None:
    """Makes the dispatcher of an MoE layer one of ours."""
    dispatcher = layer.token_dispatcher
    if type(dispatcher) is replacement.given:
        dispatcher.__class__ = replacement.ours  # which adds no attributes
    elif type(dispatcher) is not replacement.ours:
        refuse("token_dispatcher", type(dispatcher).__name__, replacement.given.__name__,
               "leave input and dispatch of convert_spec() out: they need a dispatcher of Megatron-Core")
