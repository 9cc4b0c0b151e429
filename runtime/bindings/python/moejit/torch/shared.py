# SPDX-License-Identifier: Apache-2.0
"""Shared experts: weights of both kinds of experts as one tensor, and probabilities of both kinds.

Layers take the weights of all experts as one tensor, the shared ones last. Where both parameters lie behind each other
in one memory, joining them copies nothing.

Where the shared experts have a gate, a call brings the probabilities of both kinds as one tensor: [T * K] of the
router's, and behind them [T] of the gate's. So functions of autograd have as many inputs as without a gate. Operators
get its parts, which are views.
"""
from __future__ import annotations

from collections.abc import Mapping

import torch


class Whole:
    """Joins a module's parameters. Calls without gradients get the same tensors as before, so that quantized weights
    are kept for them."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[tuple, torch.Tensor]] = {}

    def __deepcopy__(self, memo: dict) -> Whole:
        return Whole()

    def __reduce__(self) -> tuple:
        return Whole, ()

    def join(self, name: str, routed: torch.Tensor, shared: torch.Tensor) -> torch.Tensor:
        """Returns the experts' weights or biases with those of the shared experts behind them, differentiably."""
        if torch.compiler.is_compiling() or not are_neighbors(routed, shared):
            return torch.cat((routed, shared))
        if torch.is_grad_enabled():
            return _Join.apply(routed, shared)
        place = routed.data_ptr(), routed.shape, shared.shape, routed.dtype
        if name not in self._last or self._last[name][0] != place:
            self._last[name] = place, _Join.apply(routed, shared)
        return self._last[name][1]


def are_neighbors(routed: torch.Tensor, shared: torch.Tensor) -> bool:
    """Returns whether the second one lies behind the first one in the same memory."""
    return (routed.untyped_storage()._cdata == shared.untyped_storage()._cdata and routed.dtype == shared.dtype
            and routed.is_contiguous() and shared.is_contiguous()
            and shared.storage_offset() == routed.storage_offset() + routed.numel())


class _Join(torch.autograd.Function):
    """torch.cat() of neighbors, without a copy."""

    @staticmethod
    def forward(ctx, routed, shared):
        ctx.experts = routed.shape[0]
        whole = routed.new_empty(0)
        return whole.set_(routed.untyped_storage(), routed.storage_offset(),
                          (routed.shape[0] + shared.shape[0], *routed.shape[1:]))

    @staticmethod
    def backward(ctx, gradient):
        return gradient[:ctx.experts], gradient[ctx.experts:]


def join_probs(topk_probs: torch.Tensor, shared_probs: torch.Tensor) -> torch.Tensor:
    """Returns the probabilities of both kinds, in the dtype of the router's."""
    tokens = topk_probs.numel() // topk_probs.shape[-1]
    if shared_probs.numel() != tokens:
        raise RuntimeError(f"moejit: tensor_mismatch: tensor shared_probs: it has {shared_probs.numel()} elements, wanted "
                           f"{tokens}: one of each token")
    return torch.cat((topk_probs.reshape(-1), shared_probs.reshape(-1).to(topk_probs.dtype)))


def with_parts(given: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Returns the tensors of a call with the probabilities of both kinds by their names."""
    joined, ids = given["topk_probs"], given["topk_ids"]
    return {**given, "topk_probs": joined[:ids.numel()].view(ids.shape), "shared_probs": joined[ids.numel():]}


def dprobs_of(made: Mapping[str, torch.Tensor]) -> torch.Tensor | None:
    """Returns the gradient of the probabilities that a call got, of one kind or of both; None: it made none."""
    if "dshared_probs" not in made:
        return made.get("dprobs")
    return torch.cat((made["dprobs"].reshape(-1), made["dshared_probs"]))
