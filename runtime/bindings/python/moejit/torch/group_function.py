# SPDX-License-Identifier: Apache-2.0
"""Autograd functions around the operators of groups. They differ from the functions of one rank only in backward, which
takes the ids again."""
from __future__ import annotations

import torch

from moejit.torch import group_ops
from moejit.torch.first_order import first_order
from moejit.torch.function import as_dummy, gradients, pack, rows_of, unpack
from moejit.torch.layers import read_by_backward


class GroupFunction(torch.autograd.Function):
    """One forward call and its backward call, which all ranks make; backward returns the gradients of the weights."""

    @staticmethod
    def forward(ctx, x, topk_ids, topk_probs, w1, w2, b1, b2, quantized, quantized_colwise, order, dtypes, layer):
        y, saved = group_ops.group_forward(x, topk_ids, topk_probs, w1, w2, b1, b2, quantized, order, layer)
        _keep(ctx, layer, (saved, x, topk_ids, w1, w2, b1, b2, quantized, quantized_colwise), (order,))
        ctx.dtypes = dtypes
        return y

    @staticmethod
    @first_order
    def backward(ctx, dy):
        kept, (order,) = _kept(ctx, 1)
        dx, dprobs, *of_weights = group_ops.group_backward(rows_of(dy), *kept, order, ctx.layer)
        return *gradients(ctx.needs_input_grad, dx, dprobs, of_weights, ctx.dtypes), *[None] * 5


class GroupMainGradFunction(torch.autograd.Function):
    """As GroupFunction, but backward adds the weights' gradients to main gradients."""

    @staticmethod
    def forward(ctx, x, topk_ids, topk_probs, w1, w2, b1, b2, quantized, quantized_colwise, order, main1, main2, main3,
                main4, dummies, overwrite, layer):
        y, saved = group_ops.group_forward(x, topk_ids, topk_probs, w1, w2, b1, b2, quantized, order, layer)
        _keep(ctx, layer, (saved, x, topk_ids, w1, w2, b1, b2, quantized, quantized_colwise),
              (w1, w2, b1, b2, order, main1, main2, main3, main4))
        ctx.dummies, ctx.overwrite = dummies, overwrite
        return y

    @staticmethod
    @first_order
    def backward(ctx, dy):
        kept, (w1, w2, b1, b2, order, *main) = _kept(ctx, 9)
        dx, dprobs = group_ops.group_backward_add(rows_of(dy), *kept, order, *main, ctx.overwrite, ctx.layer)
        dummies = tuple(as_dummy(weight, kind) for weight, kind in zip((w1, w2, b1, b2), ctx.dummies))
        return *gradients(ctx.needs_input_grad, dx, dprobs), *dummies, *[None] * 10


def _keep(ctx, layer: str, given: tuple[torch.Tensor, ...], others: tuple[torch.Tensor, ...]) -> None:
    """Keeps for backward what it reads of saved, x, topk_ids, w1, w2, b1, b2 and both blocks, and other tensors."""
    ctx.save_for_backward(*others, *pack(read_by_backward(layer), *given))
    ctx.layer = layer
    ctx.set_materialize_grads(False)


def _kept(ctx, others: int) -> tuple[tuple[torch.Tensor, ...], tuple[torch.Tensor, ...]]:
    """Returns the arguments of an operator of backward from `saved` to the blocks, and the `others` tensors."""
    kept = ctx.saved_tensors
    none = kept[others].new_empty(0, dtype=torch.bfloat16)
    return unpack(read_by_backward(ctx.layer), none, kept[others:]), kept[:others]
