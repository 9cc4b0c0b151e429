# SPDX-License-Identifier: Apache-2.0
"""Autograd functions around the operators: torch.library.register_autograd would cost several times as much."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from moejit.torch import ops
from moejit.torch.first_order import first_order
from moejit.torch.layers import backward_reads_quantized, backward_reads_x, read_by_backward


class ExpertsFunction(torch.autograd.Function):
    """One forward call and its backward call; backward returns the gradients of the weights."""

    @staticmethod
    def forward(ctx, x, topk_ids, topk_probs, w1, w2, b1, b2, quantized, quantized_colwise, gradient_dtypes, layer):
        y, saved, status = ops.forward(x, topk_ids, topk_probs, w1, w2, b1, b2, quantized, layer)
        keep(ctx, layer, status, *pack(read_by_backward(layer), saved, x, topk_probs, w1, w2, b1, b2, quantized,
                                       quantized_colwise))
        ctx.gradient_dtypes = gradient_dtypes
        return y, status

    @staticmethod
    @first_order
    def backward(ctx, dy, _):
        kept = ctx.saved_tensors
        none = kept[0].new_empty(0, dtype=torch.bfloat16)
        dx, dprobs, *of_weights = ops.backward(rows_of(dy), *unpack(read_by_backward(ctx.layer), none, kept), ctx.layer)
        return *gradients(ctx.needs_input_grad, dx, dprobs, of_weights, ctx.gradient_dtypes), None, None, None, None


class MainGradFunction(torch.autograd.Function):
    """As ExpertsFunction, but backward adds the weights' gradients to existing tensors: main gradients.

    Weights and biases get dummies as gradients, so that hooks on them run.
    """

    @staticmethod
    def forward(ctx, x, topk_ids, topk_probs, w1, w2, b1, b2, quantized, quantized_colwise, main1, main2, main3, main4,
                dummies, overwrite, layer):
        y, saved, status = ops.forward(x, topk_ids, topk_probs, w1, w2, b1, b2, quantized, layer)
        keep(ctx, layer, status, saved, x_of_backward(x, layer), topk_probs, w1, w2, b1, b2,
             *of_backward(quantized, quantized_colwise, layer), main1, main2, main3, main4)
        ctx.dummies = dummies
        ctx.overwrite = overwrite
        return y, status

    @staticmethod
    @first_order
    def backward(ctx, dy, _):
        kept = ctx.saved_tensors
        dx, dprobs = ops.backward_add(rows_of(dy), *kept, ctx.overwrite, ctx.layer)
        dummies = tuple(as_dummy(weight, kind) for weight, kind in zip(kept[3:7], ctx.dummies))
        return *gradients(ctx.needs_input_grad, dx, dprobs), *dummies, *[None] * 9


def keep(ctx: Any, layer: str, status: torch.Tensor, *tensors: torch.Tensor) -> None:
    """Keeps tensors and the layer for backward."""
    ctx.save_for_backward(*tensors)
    ctx.layer = layer
    ctx.mark_non_differentiable(status)
    ctx.set_materialize_grads(False)


def pack(is_read: tuple[bool, bool, bool, bool], saved: torch.Tensor, x: torch.Tensor, topk_probs: torch.Tensor,
         w1: torch.Tensor, w2: torch.Tensor, b1: torch.Tensor, b2: torch.Tensor, quantized: torch.Tensor,
         quantized_colwise: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Returns the tensors to keep for backward. Others, such as quantized weights that only forward reads, are freed.

    Two calls of a layer keep as many, of the same shapes and dtypes, since checkpoints demand this of a repeated
    forward call.

    Args:
        is_read: The result of read_by_backward().
        saved: The block that forward returned; the others are the operator's arguments.
    """
    kept = (saved, topk_probs, w1, w2)
    if is_read[0]:
        kept += (b1, b2)
    for each, tensor in zip(is_read[1:], (quantized, quantized_colwise, x)):
        if each:
            kept += (tensor,)
    return kept


def unpack(is_read: tuple[bool, bool, bool, bool], none: torch.Tensor,
           kept: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    """Returns the arguments of an operator of backward from `saved` on, given what pack() returned.

    `none`, which has no elements, stands for tensors that were not kept.
    """
    saved, topk_probs, w1, w2, *others = kept
    rest = iter(others)
    b1, b2 = (next(rest), next(rest)) if is_read[0] else (none, none)
    quantized, quantized_colwise, x = (next(rest) if each else none for each in is_read[1:])
    return saved, x, topk_probs, w1, w2, b1, b2, quantized, quantized_colwise


def rows_of(dy: torch.Tensor | None) -> torch.Tensor:
    """Returns the gradient of y without gaps, as operators take it.

    Raises:
        RuntimeError: There is none: autograd differentiates backward, which has no derivative.
    """
    if dy is None:
        raise RuntimeError("moejit: unsupported: backward got no gradient of y: a second derivative goes through the "
                           "experts, which have none\nhint: take gradients of gradients on models with another "
                           "implementation of experts")
    return dy.contiguous()


def x_of_backward(x: torch.Tensor, layer: str) -> torch.Tensor:
    """Returns x if backward reads it again, else an empty tensor, so that x may be freed after forward."""
    return x if backward_reads_x(layer) else x.new_empty(0)


def of_backward(quantized: torch.Tensor, quantized_colwise: torch.Tensor,
                layer: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the blocks of quantized weights that backward needs; another one is freed after forward."""
    if quantized.numel() == 0 or backward_reads_quantized(layer):
        return quantized, quantized_colwise
    return quantized.new_empty(0), quantized_colwise


def gradients(wanted: Sequence[bool], dx: torch.Tensor, dprobs: torch.Tensor, of_weights: Sequence[torch.Tensor] = (),
              dtypes: Sequence[torch.dtype] = ()) -> tuple[torch.Tensor | None, ...]:
    """Returns the gradients that autograd takes for x, topk_ids, topk_probs and, if given, w1, w2, b1, b2.

    Args:
        wanted: Whether a gradient is wanted, for each of these inputs.
        dx: [T, H].
        dprobs: [T, K].
        of_weights: dw1, dw2, db1, db2. A one-dimensional tensor stands for a gradient that the layer does not make.
        dtypes: Dtypes of the gradients of w1, w2, b1 and b2.
    """
    return (as_gradient(dx, wanted[0], dx.dtype), None, as_gradient(dprobs, wanted[2], dprobs.dtype),
            *(as_gradient(gradient, is_wanted, dtype)
              for gradient, is_wanted, dtype in zip(of_weights, wanted[3:7], dtypes)))


def as_gradient(gradient: torch.Tensor, is_wanted: bool, dtype: torch.dtype) -> torch.Tensor | None:
    """Returns the gradient for autograd: None if it is not wanted or the layer made none (a one-dimensional tensor)."""
    if not is_wanted or gradient.dim() < 2:
        return None
    return gradient if gradient.dtype == dtype else gradient.to(dtype)


def as_dummy(weight: torch.Tensor, kind: str) -> torch.Tensor | None:
    """Returns a gradient of kind "zero" or "empty" that stands for the gradient in main_grad; None for "none"."""
    if kind == "none":
        return None
    return torch.zeros_like(weight) if kind == "zero" else torch.empty_like(weight)
