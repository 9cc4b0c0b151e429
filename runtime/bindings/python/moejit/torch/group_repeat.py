# SPDX-License-Identifier: Apache-2.0
"""Eager calls of a group like an earlier one: the record of moejit.torch.repeat, with the group's operators."""
from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from moejit.torch import group_ops, ops
from moejit.torch.first_order import first_order
from moejit.torch.function import pack, rows_of, unpack
from moejit.torch.repeat import Inference, Training

if TYPE_CHECKING:
    from moejit.torch.call import State
    from moejit.torch.weights import KeptBlocks


class GroupInference(Inference):
    """A record of a group's call without gradients whose quantized weights are kept.

    Args:
        given, none, state, kept, layer: As for Inference.
        order: The group's tensor for the order of calls.
    """
    __slots__ = ("order",)

    def __init__(self, given: tuple, none: torch.Tensor, state: State, kept: KeptBlocks, order: torch.Tensor,
                 layer: str) -> None:
        super().__init__(given, none, state, kept, layer)
        self.order = order

    def infer(self, *tensors: torch.Tensor) -> torch.Tensor:
        """Returns y of the tensors that the operators of inference take, without the layer and the order."""
        return _forward(*tensors, self.order, self.layer)[0]

    def renew_infer(self, *tensors: torch.Tensor) -> torch.Tensor:
        """Changed weights are quantized again first."""
        _renew(tensors[3], tensors[4], *self.kept.blocks, self.layer)
        return _forward(*tensors, self.order, self.layer)[0]


class GroupTraining(Training):
    """A record of a group's call with gradients that keeps no quantized weights and gives all gradients to autograd.

    Args:
        given, weights, none, state, gradient_dtypes, layer: As for Training.
        order: The group's tensor for the order of calls.
    """
    __slots__ = ("order",)

    def __init__(self, given: tuple, weights: tuple, none: torch.Tensor, state: State,
                 gradient_dtypes: tuple[torch.dtype, ...], order: torch.Tensor, layer: str) -> None:
        super().__init__(given, weights, none, state, gradient_dtypes, layer)
        self.order = order


class _GroupTrainingFunction(torch.autograd.Function):
    """Runs GroupFunction's calls, and keeps as many tensors: a checkpoint may repeat either by the other."""

    @staticmethod
    def forward(ctx, x, topk_ids, topk_probs, w1, w2, b1, b2, record):
        quantized = colwise = record.none
        if record.is_quantized:
            quantized, colwise = ops.quantize(w1, w2, record.layer)
        y, saved = group_ops.group_forward(x, topk_ids, topk_probs, w1, w2, b1, b2, quantized, record.order,
                                           record.layer)
        ctx.save_for_backward(record.order, *pack(record.is_read, saved, x, topk_ids, w1, w2, b1, b2, quantized, colwise))
        ctx.set_materialize_grads(False)
        ctx.record = record
        return y

    @staticmethod
    @first_order
    def backward(ctx, dy):
        record = ctx.record
        order, *kept = ctx.saved_tensors
        given = unpack(record.is_read, record.none, kept)
        made = group_ops.group_backward(rows_of(dy), *given, order, record.layer)
        return record.results(ctx.needs_input_grad, made)


GroupTraining.apply = staticmethod(super(torch.autograd.Function, _GroupTrainingFunction).apply)
_forward = group_ops.group_forward._op
_renew = ops.renew_._op
