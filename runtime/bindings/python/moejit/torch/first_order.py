# SPDX-License-Identifier: Apache-2.0
"""Autograd functions that have a first derivative and no second one."""
from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch


class _Refused(torch.autograd.Function):
    """Hands gradients on. Differentiating them is an error."""

    @staticmethod
    def forward(ctx, *gradients):
        return tuple(gradient.view_as(gradient) for gradient in gradients)

    @staticmethod
    def backward(ctx, *_):
        raise RuntimeError("moejit: unsupported: a second derivative goes through the experts, which have none\n"
                           "hint: take gradients of gradients on models with another implementation of experts")


def first_order(backward: Callable) -> Callable:
    """Decorates `backward` of an autograd.Function whose gradients cannot be differentiated.

    torch's once_differentiable() refuses only if the given gradients can be differentiated. If the loss is linear in
    the function's result, they are constants. Then the second derivative by the saved tensors would be missing without
    a word.
    """
    @functools.wraps(backward)
    def wrapper(ctx: Any, *gradients: torch.Tensor | None) -> Any:
        if not torch.is_grad_enabled() or torch.compiler.is_compiling():  # compiled graphs refuse by themselves
            return backward(ctx, *gradients)
        with torch.no_grad():
            made = backward(ctx, *gradients)
        places = [place for place, gradient in enumerate(made) if gradient is not None]
        results = list(made)
        if not places:
            return made
        for place, refused in zip(places, _Refused.apply(*(made[place].detach().requires_grad_() for place in places))):
            results[place] = refused
        return tuple(results)

    return wrapper
