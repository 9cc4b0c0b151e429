# SPDX-License-Identifier: Apache-2.0
"""Backward in two halves: autograd runs the data half; the weights half waits for backward_dw()."""
from __future__ import annotations

import collections
import dataclasses
from typing import Callable, Sequence

import torch

from moejit.torch import ops, scales
from moejit.torch.first_order import first_order
from moejit.torch.function import as_dummy, as_gradient, gradients, keep, of_backward, rows_of, x_of_backward
from moejit.torch.main_grads import take_main_grads


class DelayedGradients:
    """The weights halves of a module's backward calls that have not run yet, the oldest first.

    It does not belong to a module's state: a copy of the module starts with an empty one.
    """

    def __init__(self) -> None:
        self.queue: collections.deque[_WeightsHalf] = collections.deque()
        self.hooks: list[Callable[[], None]] = []

    def __reduce__(self) -> tuple:
        return DelayedGradients, ()

    def run_oldest(self) -> None:
        """Computes the gradients of the oldest half, gives them to autograd, and then calls the hooks.

        Autograd adds them up as in an ordinary backward call, so hooks on parameters run here too. After an error the
        oldest half stays in the queue.
        """
        _accumulate(self.queue[0])
        self.queue.popleft()
        for hook in self.hooks:
            hook()


@dataclasses.dataclass(eq=False)
class _WeightsHalf:
    """The data that the weights half of one backward call needs."""
    layer: str
    arguments: tuple[torch.Tensor, ...]  # arguments of the operator, up to the deferred block
    weights: Sequence[torch.Tensor | None]  # w1, w2, b1, b2 as autograd knows them
    gradient_dtypes: tuple[torch.dtype, ...]
    parameters: Sequence[torch.Tensor | None] | None  # have main gradients; None: autograd gets the gradients

    def compute(self, are_wanted: Sequence[bool]) -> list[torch.Tensor | None]:
        """Runs the weights half and returns the weights' gradients for autograd."""
        for tensor in self.arguments:
            if tensor.is_cuda:  # another stream may use it, so its memory must not be reused too early
                tensor.record_stream(torch.cuda.current_stream(tensor.device))
        if self.parameters is None:
            made = ops.backward_weights(*self.arguments, self.layer)
            return list(map(as_gradient, made, are_wanted, self.gradient_dtypes))
        main, dummies, overwrites = take_main_grads(self.parameters, self.arguments[0])
        ops.backward_weights_add(*self.arguments, *main, overwrites, self.layer)
        return list(map(as_dummy, self.weights, dummies))


def _accumulate(half: _WeightsHalf) -> None:
    with torch.enable_grad():
        done = _WeightsHalfFunction.apply(half, *half.weights)
    if done.requires_grad:  # false if all weights were frozen meanwhile
        # The graph of casts or parametrizations before the weights may serve other halves too.
        torch.autograd.backward(done, done.detach(), retain_graph=True)


class _WeightsHalfFunction(torch.autograd.Function):
    """Makes the weights half the backward pass of a function of the weights. Its result means nothing."""

    @staticmethod
    def forward(ctx, half, *weights):
        ctx.half = half
        return weights[0].new_empty(())

    @staticmethod
    @first_order
    def backward(ctx, _):
        return None, *ctx.half.compute(ctx.needs_input_grad[1:])


def call_with_delayed_gradients(delayed: DelayedGradients, tensors: tuple[torch.Tensor, ...],
                                weights: Sequence[torch.Tensor | None], gradient_dtypes: tuple[torch.dtype, ...],
                                parameters: Sequence[torch.Tensor | None] | None, layer: str,
                                state: tuple[torch.Tensor, ...] = (), updates_scales: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
    """Runs the call whose backward computes dx and dprobs, and leaves the gradients of the weights to `delayed`.

    Args:
        delayed: Gets one entry in each backward call.
        tensors: The inputs of the operator `forward`: x, topk_ids, topk_probs, w1, w2, b1, b2, and both blocks of
            quantized weights.
        weights: w1, w2, b1 and b2 as autograd knows them, before they were made row-major; None: absent.
        gradient_dtypes: Dtypes of their gradients.
        parameters: Parameters whose main gradients are added to; None: autograd gets the gradients.
        layer: The text of the layer, which has halves.
        state: The tensors of FORWARD_STATE and GRADIENT_STATE if the layer has a state.
        updates_scales: Whether backward moves that state on by a step.

    Returns:
        y and the status word.
    """
    x, topk_ids, topk_probs, *operands = tensors
    # The weights are no inputs of the function, since autograd would call their hooks before there are gradients. The
    # anchor wants a gradient, so that there always is a backward call.
    anchor = x.new_empty(0, dtype=torch.float32).requires_grad_()
    return _DataHalfFunction.apply(anchor, x, topk_ids, topk_probs, tuple(operands), tuple(weights),
                                   (delayed, gradient_dtypes, parameters, state, updates_scales), layer)


class _DataHalfFunction(torch.autograd.Function):

    @staticmethod
    def forward(ctx, anchor, x, topk_ids, topk_probs, operands, weights, others, layer):
        *of_layer, quantized, quantized_colwise = operands
        y, saved, status = scales.forward((x, topk_ids, topk_probs, *of_layer, quantized), others[3], layer)
        # A leaf that went through hooks of saved tensors, such as a checkpoint's, could no longer reach its `.grad`.
        ctx.leaves = [weight if weight is not None and weight.is_leaf else None for weight in weights]
        made = [None if weight is leaf else weight for weight, leaf in zip(weights, ctx.leaves)]
        keep(ctx, layer, status, saved, x_of_backward(x, layer), topk_probs, *of_layer,
             *of_backward(quantized, quantized_colwise, layer), *made)
        ctx.others = others
        return y, status

    @staticmethod
    @first_order
    def backward(ctx, dy, _):
        *kept, w1, w2, b1, b2 = ctx.saved_tensors
        weights = [made if leaf is None else leaf for made, leaf in zip((w1, w2, b1, b2), ctx.leaves)]
        dy = rows_of(dy)
        delayed, gradient_dtypes, parameters, state, updates_scales = ctx.others
        dx, dprobs, deferred = scales.backward_data((dy, *kept), state, ctx.layer)
        if updates_scales:
            scales.update(state, ctx.layer)
        arguments = (dy, *kept)
        if dx.dim() == 2 or dprobs.dim() == 2:  # the data half has read the inputs
            none = dy.new_empty(0)
            arguments = (dy.new_empty(dy.shape[0], 0), *kept[:2], none, none, none, none, none, none, none)
        delayed.queue.append(_WeightsHalf(ctx.layer, (*arguments, deferred), weights, gradient_dtypes, parameters))
        return None, *gradients(ctx.needs_input_grad[1:], dx, dprobs), *[None] * 4
