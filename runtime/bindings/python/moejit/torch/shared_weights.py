# SPDX-License-Identifier: Apache-2.0
"""Weights of both kinds of experts as one tensor, for modules whose shared experts have parameters of their own.

Layers take the weights of all experts as one tensor, the shared ones last. Where both parameters lie behind each other
in one memory, joining them copies nothing.
"""
from __future__ import annotations

import torch

from moejit.torch.first_order import first_order
from moejit.torch.gathered import GatheredWeight


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
        """Returns the experts' weights or biases with the shared experts' behind them, differentiably."""
        if isinstance(routed, GatheredWeight):
            raise RuntimeError("moejit: unsupported: weights that FSDP gathers as FP8 codes, of experts with "
                               "num_shared_experts\nhint: leave enable_fp8_all_gather() out for these modules")
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
        shape = routed.shape[0] + shared.shape[0], *routed.shape[1:]
        return routed.detach().as_strided(shape, routed.stride(), routed.storage_offset())

    @staticmethod
    @first_order
    def backward(ctx, gradient):
        return gradient[:ctx.experts], gradient[ctx.experts:]
