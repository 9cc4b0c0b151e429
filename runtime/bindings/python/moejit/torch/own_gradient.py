# SPDX-License-Identifier: Apache-2.0
"""Gradients that nobody else holds, whose memory backward may write to.

The gradient of x has the shape of the gradient of y. Where kernels have read the second one before they write the
first, both can have the same memory. The engine of autograd adds up gradients in place on these terms: nobody else
refers to the tensor or to its storage.
"""
from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

import torch

from moejit.torch.first_order import first_order
from moejit.torch.plans import plan_of, row_of

FEWEST_ELEMENTS = 2 ** 20  # to ask for a smaller gradient would cost more than it spares


def with_ownership(backward: Callable) -> Callable:
    """Decorates `backward` of an autograd.Function, below @first_order: behind ctx it gets whether its first gradient
    is large, and held by nobody but autograd."""
    @functools.wraps(backward)
    def wrapper(ctx: Any, *gradients: torch.Tensor | None) -> Any:
        is_own = (not torch.compiler.is_compiling() and type(gradients[0]) is torch.Tensor
                  and gradients[0].numel() >= FEWEST_ELEMENTS and not _is_watched()
                  and _references(gradients[0]) == _fewest_references())
        return backward(ctx, is_own, *gradients)

    return wrapper


def memory_of_dx(layer: str, call: str, is_own: bool, dy: torch.Tensor, rows: torch.Tensor) -> dict[str, torch.Tensor]:
    """Returns {"dx": `rows`} if a backward call may write dx over them, or {}.

    Args:
        layer: The text of the layer.
        call: The call's name.
        is_own: What with_ownership() has found out.
        dy: The gradient that autograd gave.
        rows: rows_of(dy), which the call reads: `dy` or a copy of it.
    """
    if not is_own and rows is dy or torch.compiler.is_compiling() or rows.numel() < FEWEST_ELEMENTS:
        return {}
    return {"dx": rows} if may_overwrite(layer, call) else {}


@functools.lru_cache(maxsize=None)
def may_overwrite(layer: str, call: str) -> bool:
    """Returns whether a call makes dx, and no kernel reads dy any more when dx is written."""
    row, tensors = row_of(layer, call), plan_of(layer).tensors
    return ("dx" in row.made and not row.is_of_all_ranks and "dy" in tensors
            and tensors["dy"].last_use < tensors["dx"].first_use)


def _is_watched() -> bool:
    """Returns whether something may hold references of its own while it looks on."""
    return sys.gettrace() is not None or sys.getprofile() is not None or torch._C._len_torch_dispatch_stack() != 0


def _references(gradient: torch.Tensor) -> tuple[int, int, int]:
    """Returns the numbers of references in Python, of references in C++, and of users of the storage."""
    return (sys.getrefcount(gradient), gradient._use_count(),
            torch._C._storage_Use_Count(gradient.untyped_storage()._cdata))


@functools.lru_cache(maxsize=None)
def _fewest_references() -> tuple[int, int, int]:
    """Returns the references to a gradient that nobody but autograd holds, as with_ownership() counts them."""
    found = []

    def with_references(backward: Callable) -> Callable:
        def wrapper(ctx: Any, *gradients: torch.Tensor | None) -> Any:
            found.append(_references(gradients[0]))
            return backward(ctx, False, *gradients)

        return wrapper

    class Probe(torch.autograd.Function):

        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        @first_order
        @with_references
        def backward(ctx, _, dy):
            return dy

    with torch.enable_grad():
        x = torch.zeros(1, device="cpu", requires_grad=True)
        torch.autograd.grad(2 * Probe.apply(x), x)
    return found[0]
