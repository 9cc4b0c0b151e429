# SPDX-License-Identifier: Apache-2.0
"""Backward in two halves: autograd runs the data half; the weights half waits for backward_dw()."""
from __future__ import annotations

import collections
import dataclasses
import functools
from typing import Callable, Sequence

import torch

from moejit.torch import ops, scales
from moejit.torch.first_order import first_order
from moejit.torch.function import STATE, Options, as_gradient, forward, gradients, kept_names, rows_of
from moejit.torch.layers import WEIGHT_GRADIENTS, reads_of
from moejit.torch.main_grads import add_to_main_grads, dummies_of, take_main_grads
from moejit.torch.own_gradient import memory_of_dx, with_ownership
from moejit.torch.plans import plan_of, row_of


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

    def take_newest(self) -> _WeightsHalf:
        """Returns the newest half and forgets all: the gradients of older ones were not wanted."""
        half = self.queue.pop()
        self.queue.clear()
        return half


@dataclasses.dataclass(eq=False)
class _WeightsHalf:
    """The data that the weights half of one backward call needs."""
    layer: str
    given: dict[str, torch.Tensor]  # what the call reads
    weights: Sequence[torch.Tensor | None]  # w1, w2, b1, b2 as autograd knows them
    gradient_dtypes: tuple[torch.dtype, ...]
    parameters: Sequence[torch.Tensor | None] | None  # have main gradients; None: autograd gets the gradients

    def compute(self, are_wanted: Sequence[bool]) -> list[torch.Tensor | None]:
        """Runs the weights half and returns the weights' gradients for autograd."""
        for tensor in self.given.values():
            if tensor.is_cuda:  # another stream may use it, so its memory must not be reused too early
                tensor.record_stream(torch.cuda.current_stream(tensor.device))
        if self.parameters is None:
            made = ops.run(self.layer, "backward_weights", self.given)
            return [as_gradient(made.get(name), is_wanted, dtype)
                    for name, is_wanted, dtype in zip(WEIGHT_GRADIENTS, are_wanted, self.gradient_dtypes)]
        main, dummies, overwrites = take_main_grads(self.parameters, self.given["dy"])
        add_to_main_grads(self.layer, "backward_weights", self.given, main, overwrites)
        return dummies_of(self.weights, dummies)


def _accumulate(half: _WeightsHalf) -> None:
    with torch.enable_grad():
        done = WeightsHalfFunction.apply(lambda: half, *half.weights)
    if done.requires_grad:  # false if all weights were frozen meanwhile
        # The graph of casts or parametrizations before the weights may serve other halves too.
        torch.autograd.backward(done, done.detach(), retain_graph=True)


class WeightsHalfFunction(torch.autograd.Function):
    """Makes a second part of backward the backward pass of a function of what it has gradients for.

    Its result means nothing.
    """

    @staticmethod
    def forward(ctx, find_half, first, *others):
        ctx.find_half = find_half
        ctx.set_materialize_grads(False)
        return first.new_empty(0)

    @staticmethod
    @first_order
    def backward(ctx, _):
        return None, *ctx.find_half().compute(ctx.needs_input_grad[1:])


def call_with_delayed_gradients(delayed: DelayedGradients, tensors: tuple[torch.Tensor, ...],
                                weights: Sequence[torch.Tensor | None],
                                parameters: Sequence[torch.Tensor | None] | None, options: Options,
                                state: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, torch.Tensor]:
    """Runs the call whose backward computes dx and dprobs, and leaves the gradients of the weights to `delayed`.

    Args:
        delayed: Gets one entry in each backward call.
        tensors: The tensors of inputs_of().
        weights: w1, w2, b1 and b2 as autograd knows them, before they were made row-major; None: absent.
        parameters: Parameters whose main gradients are added to; None: autograd gets the gradients.
        options: Those of the call, whose layer has halves.
        state: The tensors of STATE if the layer has a state.

    Returns:
        y and the status word.
    """
    # The weights are no inputs of the function, since autograd would call their hooks before there are gradients. The
    # anchor wants a gradient, so that there always is a backward call.
    anchor = tensors[0].new_empty(0, dtype=torch.float32).requires_grad_()
    return _call(anchor, delayed, tensors, weights, parameters, options, state)


def call_with_split_backward(tensors: tuple[torch.Tensor, ...], weights: Sequence[torch.Tensor | None],
                             parameters: Sequence[torch.Tensor | None] | None, options: Options,
                             state: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, torch.Tensor]:
    """Runs the call whose backward is two steps of autograd: between them it frees what only the first one reads.

    The arguments are as for call_with_delayed_gradients(). Returns y and the status word.
    """
    halves = DelayedGradients()
    # Autograd runs functions of later calls first, so the weights half comes right behind the data half.
    anchor = WeightsHalfFunction.apply(halves.take_newest, *weights)
    return _call(anchor, halves, tensors, weights, parameters, options, state)


@functools.lru_cache(maxsize=None)
def is_smaller_split(split: str, whole: str) -> bool:
    """Returns whether backward in two steps takes less memory than in one.

    One step needs its workspace, and the column-wise weights until its end. Two steps have freed these, and the
    gradient of y if the second one does not read it, when they make the gradients of weights.

    Args:
        split, whole: The texts of the layer with halves, and of the same layer without.
    """
    reads = row_of(split, "backward_weights").reads
    if any(argument.name == "dy" and not argument.is_shape_only for argument in reads):
        return False
    one, two = plan_of(whole), plan_of(split)
    colwise, of_weights = one.quantized_colwise.bytes, sum(weight_gradient_bytes(whole).values())
    data, weights = (two.calls[name].workspace_bytes for name in ("backward_data", "backward_weights"))
    return spares_memory(two.deferred.most + max(data + colwise, weights + of_weights),
                         one.calls["backward"].workspace_bytes + colwise + of_weights)


def weight_gradient_bytes(layer: str) -> dict[str, int]:
    """Returns the bytes of the gradients of w1 and w2 that a layer makes, by name."""
    tensors = plan_of(layer).tensors
    return {name: tensors[name].bytes for name in ("dw1", "dw2") if name in tensors}


def spares_memory(parted: int, whole: int) -> bool:
    """Returns whether two steps of backward spare so many bytes that they are worth the host's time."""
    return parted < whole - whole // 32


def _call(anchor: torch.Tensor, halves: DelayedGradients, tensors: tuple[torch.Tensor, ...],
          weights: Sequence[torch.Tensor | None], parameters: Sequence[torch.Tensor | None] | None, options: Options,
          state: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, torch.Tensor]:
    x, topk_ids, topk_probs, *operands = tensors
    return _DataHalfFunction.apply(anchor, x, topk_ids, topk_probs, tuple(operands), tuple(weights),
                                   (halves, parameters, state), options)


class _DataHalfFunction(torch.autograd.Function):

    @staticmethod
    def forward(ctx, anchor, x, topk_ids, topk_probs, operands, weights, others, options):
        tensors = forward(options.layer, (x, topk_ids, topk_probs, *operands), dict(zip(STATE, others[2])))
        ctx.names = kept_names(options.layer)
        # A leaf that went through hooks of saved tensors, such as a checkpoint's, could no longer reach its `.grad`.
        ctx.leaves = [weight if weight is not None and weight.is_leaf else None for weight in weights]
        cast = [None if weight is leaf else weight for weight, leaf in zip(weights, ctx.leaves)]
        ctx.save_for_backward(*(tensors[name] for name in ctx.names), *cast)
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(tensors["status"])
        ctx.others, ctx.options = others, options
        return tensors["y"], tensors["status"]

    @staticmethod
    @first_order
    @with_ownership
    def backward(ctx, is_own, dy, _):
        *kept, w1, w2, b1, b2 = ctx.saved_tensors
        weights = [made if leaf is None else leaf for made, leaf in zip((w1, w2, b1, b2), ctx.leaves)]
        (delayed, parameters, state), options = ctx.others, ctx.options
        given = {**dict(zip(ctx.names, kept)), "dy": rows_of(dy)}
        of_state = dict(zip(STATE, state))
        reused = memory_of_dx(options.layer, "backward_data", is_own, dy, given["dy"])
        made = {**ops.run(options.layer, "backward_data", {**given, **of_state, **reused}), **reused}
        if options.updates:
            scales.update(of_state, options.layer)
        given.update(made)
        if any(argument.is_shape_only for argument in row_of(options.layer, "backward_weights").reads):
            given["dy"] = given["dy"].new_empty(dy.shape[0], 0)  # the weights half needs only T of it
        of_half = {name: given[name] for name in reads_of(options.layer, "backward_weights")}
        delayed.queue.append(_WeightsHalf(options.layer, of_half, weights, options.gradient_dtypes, parameters))
        return None, *gradients(ctx.needs_input_grad[1:], made)[:3], *[None] * 4
