# SPDX-License-Identifier: Apache-2.0
"""Backward in two halves: autograd runs the data half, and the weights half waits until somebody asks for it."""
from __future__ import annotations

import collections
import dataclasses
from typing import Callable, Sequence

import torch

from moejit.torch import ops
from moejit.torch.function import as_dummy, as_gradient, gradients, keep, of_backward, rows_of
from moejit.torch.main_grads import take_main_grads


class DelayedGradients:
    """The weights halves of a module's backward calls that have not run yet, the oldest first.

    It is no part of a module's state: copies of the module have an empty one.
    """

    def __init__(self) -> None:
        self.queue: collections.deque[_WeightsHalf] = collections.deque()
        self.hooks: list[Callable[[], None]] = []

    def __reduce__(self) -> tuple:
        return DelayedGradients, ()

    def run_oldest(self) -> None:
        """Computes the gradients of the oldest one, gives them to autograd, and then calls the hooks.

        Autograd adds them up as in a backward call of its own, so the hooks on parameters run here too. An error leaves
        the oldest one where it is.
        """
        _accumulate(self.queue[0])
        self.queue.popleft()
        for hook in self.hooks:
            hook()


@dataclasses.dataclass(eq=False)
class _WeightsHalf:
    """What the weights half of one backward call needs."""
    layer: str
    arguments: tuple[torch.Tensor, ...]  # of the operator, up to the deferred block
    weights: Sequence[torch.Tensor | None]  # as autograd knows them: w1, w2, b1, b2
    gradient_dtypes: tuple[torch.dtype, ...]
    parameters: Sequence[torch.Tensor | None] | None  # those with main gradients; None: there are no main gradients

    def compute(self, are_wanted: Sequence[bool]) -> list[torch.Tensor | None]:
        """Runs the weights half and returns what autograd takes for the weights."""
        for tensor in self.arguments:
            if tensor.is_cuda:  # and perhaps of another stream, which may not get its memory back too early
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
    if done.requires_grad:  # or all weights were frozen since
        # The graph of casts or parametrizations before the weights may serve other halves too.
        torch.autograd.backward(done, done.detach(), retain_graph=True)


class _WeightsHalfFunction(torch.autograd.Function):
    """Stands behind the weights: its backward is the weights half. The result means nothing."""

    @staticmethod
    def forward(ctx, half, *weights):
        ctx.half = half
        return weights[0].new_empty(())

    @staticmethod
    def backward(ctx, _):
        return None, *ctx.half.compute(ctx.needs_input_grad[1:])


def call_with_delayed_gradients(delayed: DelayedGradients, tensors: tuple[torch.Tensor, ...],
                                weights: Sequence[torch.Tensor | None], gradient_dtypes: tuple[torch.dtype, ...],
                                parameters: Sequence[torch.Tensor | None] | None,
                                layer: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Runs the call whose backward computes dx and dprobs, and leaves the gradients of the weights to `delayed`.

    Args:
        delayed: Gets one entry in each backward call.
        tensors: What the operator `forward` takes: x, topk_ids, topk_probs, w1, w2, b1, b2, and the two blocks of
            quantized weights.
        weights: w1, w2, b1 and b2 as autograd knows them, before they were made row-major; None: there is none.
        gradient_dtypes: Of their gradients.
        parameters: Those whose main gradients are added to; None: autograd gets the gradients.
        layer: The text of the layer, which has halves.

    Returns:
        y and the status word.
    """
    x, topk_ids, topk_probs, *operands = tensors
    # The weights are no inputs of the function, or autograd would call their hooks before there are gradients. So
    # that there is a backward call in any case, another tensor wants a gradient.
    anchor = x.new_empty(0, dtype=torch.float32).requires_grad_()
    return _DataHalfFunction.apply(anchor, x, topk_ids, topk_probs, tuple(operands), tuple(weights),
                                   (delayed, gradient_dtypes, parameters), layer)


class _DataHalfFunction(torch.autograd.Function):

    @staticmethod
    def forward(ctx, anchor, x, topk_ids, topk_probs, operands, weights, others, layer):
        *of_layer, quantized, quantized_colwise = operands
        y, saved, status = ops.forward(x, topk_ids, topk_probs, *of_layer, quantized, layer)
        # A leaf that went through hooks of saved tensors, as of checkpoints, has lost its way to `.grad`.
        ctx.leaves = [weight if weight is not None and weight.is_leaf else None for weight in weights]
        made = [None if weight is leaf else weight for weight, leaf in zip(weights, ctx.leaves)]
        keep(ctx, layer, status, saved, topk_probs, *of_layer, *of_backward(quantized, quantized_colwise, layer), *made)
        ctx.others = others
        return y, status

    @staticmethod
    def backward(ctx, dy, _):
        *kept, w1, w2, b1, b2 = ctx.saved_tensors
        weights = [made if leaf is None else leaf for made, leaf in zip((w1, w2, b1, b2), ctx.leaves)]
        dy = rows_of(dy)
        dx, dprobs, deferred = ops.backward_data(dy, *kept, ctx.layer)
        delayed, gradient_dtypes, parameters = ctx.others
        arguments = (dy, *kept)
        if dx.dim() == 2 or dprobs.dim() == 2:  # the data half has read them
            none = dy.new_empty(0)
            arguments = (dy.new_empty(dy.shape[0], 0), kept[0], none, none, none, none, none, none, none)
        delayed.queue.append(_WeightsHalf(ctx.layer, (*arguments, deferred), weights, gradient_dtypes, parameters))
        return None, *gradients(ctx.needs_input_grad[1:], dx, dprobs), *[None] * 4
