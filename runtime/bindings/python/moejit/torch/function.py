# SPDX-License-Identifier: Apache-2.0
"""Autograd of the operators, outside of them: torch.library.register_autograd would cost several times as much."""
from __future__ import annotations

import torch

from moejit.torch import ops


def _as_gradient(gradient: torch.Tensor, is_wanted: bool, dtype: torch.dtype) -> torch.Tensor | None:
    """Returns what autograd takes: nothing where no gradient is wanted or the layer made none, which is a list of 0."""
    if not is_wanted or gradient.dim() < 2:
        return None
    return gradient.to(dtype)


class ExpertsFunction(torch.autograd.Function):
    """One forward call and its backward call; backward returns the gradients of the weights."""

    @staticmethod
    def forward(ctx, x, topk_ids, topk_probs, w1, w2, b1, b2, quantized, gradient_dtypes, layer):
        y, saved, status = ops.forward(x, topk_ids, topk_probs, w1, w2, b1, b2, quantized, layer)
        ctx.save_for_backward(saved, topk_probs, w1, w2, b1, b2, quantized)
        ctx.layer = layer
        ctx.gradient_dtypes = gradient_dtypes
        ctx.mark_non_differentiable(status)
        ctx.set_materialize_grads(False)
        return y, status

    @staticmethod
    def backward(ctx, dy, _):
        saved, topk_probs, w1, w2, b1, b2, quantized = ctx.saved_tensors
        dx, dprobs, *weight_gradients = ops.backward(dy.contiguous(), saved, topk_probs, w1, w2, b1, b2, quantized,
                                                     ctx.layer)
        dw1, dw2, db1, db2 = (_as_gradient(*each) for each in zip(weight_gradients, ctx.needs_input_grad[3:7],
                                                                  ctx.gradient_dtypes))
        return (_as_gradient(dx, ctx.needs_input_grad[0], dx.dtype), None,
                _as_gradient(dprobs, ctx.needs_input_grad[2], dprobs.dtype), dw1, dw2, db1, db2, None, None, None)


class MainGradFunction(torch.autograd.Function):
    """The same, where backward adds the gradients of the weights to tensors that are there: main gradients.

    Weights, and the biases where there are some, get dummies as gradients, so that hooks on them run.
    """

    @staticmethod
    def forward(ctx, x, topk_ids, topk_probs, w1, w2, b1, b2, quantized, main1, main2, main3, main4, dummies, overwrite,
                layer):
        y, saved, status = ops.forward(x, topk_ids, topk_probs, w1, w2, b1, b2, quantized, layer)
        ctx.save_for_backward(saved, topk_probs, w1, w2, b1, b2, quantized, main1, main2, main3, main4)
        ctx.layer = layer
        ctx.dummies = dummies
        ctx.overwrite = overwrite
        ctx.mark_non_differentiable(status)
        ctx.set_materialize_grads(False)
        return y, status

    @staticmethod
    def backward(ctx, dy, _):
        saved, topk_probs, w1, w2, b1, b2, quantized, *main = ctx.saved_tensors
        dx, dprobs = ops.backward_add(dy.contiguous(), saved, topk_probs, w1, w2, b1, b2, quantized, *main,
                                      ctx.overwrite, ctx.layer)
        dummies = [_dummy(weight, kind) for weight, kind in zip((w1, w2, b1, b2), ctx.dummies)]
        return (_as_gradient(dx, ctx.needs_input_grad[0], dx.dtype), None,
                _as_gradient(dprobs, ctx.needs_input_grad[2], dprobs.dtype), *dummies, *[None] * 8)


def _dummy(weight: torch.Tensor, kind: str) -> torch.Tensor | None:
    if kind == "none":
        return None
    return torch.zeros_like(weight) if kind == "zero" else torch.empty_like(weight)
