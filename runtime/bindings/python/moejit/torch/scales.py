# SPDX-License-Identifier: Apache-2.0
"""Recipes whose scales follow from the steps before: calls with a state, and the update that moves it on by a step.

A state is eight tensors, first FORWARD_STATE and then GRADIENT_STATE. Casts record the largest magnitudes of a step in
row 0 of the histories, by max; an update moves them on. So a forward call that a checkpoint repeats before the update
records what is there already, and casts with the same scales.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch

from moejit.torch import group_ops, ops
from moejit.torch.first_order import first_order
from moejit.torch.function import as_dummy, gradients, pack, rows_of, unpack
from moejit.torch.layers import read_by_backward
from moejit.torch.weights import quantize

State = tuple[torch.Tensor, ...]


def forward(tensors: Sequence[torch.Tensor], state: State, layer: str) -> tuple[torch.Tensor, ...]:
    """Returns y, saved and status of a forward call, given the operator's tensors and a state, which may be empty."""
    if state:
        return ops.forward_with_state(*tensors, *state[:4], layer)
    return ops.forward(*tensors, layer)


def backward_data(tensors: Sequence[torch.Tensor], state: State, layer: str) -> tuple[torch.Tensor, ...]:
    """Returns dx, dprobs and the deferred block, given the operator's tensors and a state, which may be empty."""
    if state:
        return ops.backward_data_with_state(*tensors, *state[4:], layer)
    return ops.backward_data(*tensors, layer)


def update(state: State, layer: str) -> None:
    """Moves a state on by a step: what row 0 of its histories has recorded joins the steps before.

    Columns in which nothing was recorded since the last update stay as they are, so a second update changes nothing.
    """
    ops.update_scales(*state[4:], True, layer)
    ops.update_scales(*state[:4], False, layer)


def reduce_amaxes(states: Sequence[State], group: torch.distributed.ProcessGroup) -> None:
    """Makes row 0 of all histories the largest of all ranks of a group, by one collective."""
    rows = [history[0] for state in states for history in (*state[:2], *state[4:6])]
    joined = torch.cat(rows)
    torch.distributed.all_reduce(joined, torch.distributed.ReduceOp.MAX, group)
    for row, part in zip(rows, joined.split([row.numel() for row in rows])):
        row.copy_(part)


class Options(NamedTuple):
    """The part of a call with gradients that is no tensor.

    Attributes:
        gradient_dtypes: Dtypes of the gradients of w1, w2, b1 and b2.
        dummies: Kinds of the dummies if backward adds to main gradients, else None.
        overwrites: Whether it overwrites them.
        updates: Whether scales move on behind backward.
        quantizes_again: Whether backward quantizes the weights again, so that none are kept.
    """
    gradient_dtypes: tuple[torch.dtype, ...]
    dummies: tuple[str, ...] | None
    overwrites: bool
    updates: bool
    quantizes_again: bool


class StateFunction(torch.autograd.Function):
    """One forward call of a layer with a state, and its backward call. `others` are the state and main gradients."""

    @staticmethod
    def forward(ctx, x, topk_ids, topk_probs, w1, w2, b1, b2, quantized, quantized_colwise, options, layer, *others):
        if options.quantizes_again:
            quantized, quantized_colwise = quantize(w1, w2, layer, others[:4])
        y, saved, status = ops.forward_with_state(x, topk_ids, topk_probs, w1, w2, b1, b2, quantized, *others[:4], layer)
        _keep(ctx, options, layer, (saved, x, topk_probs, w1, w2, b1, b2, quantized, quantized_colwise), others)
        ctx.mark_non_differentiable(status)
        return y, status

    @staticmethod
    @first_order
    def backward(ctx, dy, _):
        kept, others = _kept(ctx)
        dy, state, layer = rows_of(dy), others[4:8], ctx.layer
        if ctx.options.dummies is None:
            made = ops.backward_with_state(dy, *kept, *state, layer)
        else:
            made = ops.backward_add_with_state(dy, *kept, *others[8:], *state, ctx.options.overwrites, layer)
        return *_results(ctx, made, kept[3:7], others), *[None] * len(others)


class GroupStateFunction(torch.autograd.Function):
    """As StateFunction, for a group's layer. `others` are the state, the group's `order`, and main gradients."""

    @staticmethod
    def forward(ctx, x, topk_ids, topk_probs, w1, w2, b1, b2, quantized, quantized_colwise, options, layer, *others):
        y, saved = group_ops.group_forward_with_state(x, topk_ids, topk_probs, w1, w2, b1, b2, quantized, others[8],
                                                      *others[:4], layer)
        _keep(ctx, options, layer, (saved, x, topk_ids, w1, w2, b1, b2, quantized, quantized_colwise), others)
        return y

    @staticmethod
    @first_order
    def backward(ctx, dy):
        kept, others = _kept(ctx)
        dy, order, state, layer = rows_of(dy), others[8], others[4:8], ctx.layer
        if ctx.options.dummies is None:
            made = group_ops.group_backward_with_state(dy, *kept, order, *state, layer)
        else:
            made = group_ops.group_backward_add_with_state(dy, *kept, order, *others[9:], *state,
                                                           ctx.options.overwrites, layer)
        return *_results(ctx, made, kept[3:7], others), *[None] * len(others)


def _is_read(ctx) -> tuple[bool, bool, bool, bool]:
    """Returns what backward reads of the kept tensors; see read_by_backward()."""
    biases, quantized, colwise, x = read_by_backward(ctx.layer)
    keeps = not ctx.options.quantizes_again
    return biases, quantized and keeps, colwise and keeps, x


def _keep(ctx, options: Options, layer: str, given: tuple[torch.Tensor, ...], others: tuple[torch.Tensor, ...]) -> None:
    """Keeps for backward what it reads of saved, x, topk_probs or topk_ids, w1, w2, b1, b2 and both blocks, and others.

    Backward writes the others: they must not go through hooks of saved tensors, which may bring back copies.
    """
    ctx.options, ctx.layer = options, layer
    kept = pack(_is_read(ctx), *given)
    ctx.count = len(kept)
    if torch.compiler.is_compiling():
        ctx.save_for_backward(*kept, *others)
    else:
        ctx.save_for_backward(*kept)
        ctx.others = others
    ctx.set_materialize_grads(False)


def _kept(ctx) -> tuple[tuple[torch.Tensor, ...], tuple[torch.Tensor, ...]]:
    """Returns the arguments of an operator of backward from `saved` to the blocks, and the others."""
    saved = ctx.saved_tensors
    others = saved[ctx.count:] or ctx.others
    none = saved[0].new_empty(0, dtype=torch.bfloat16)
    kept = unpack(_is_read(ctx), none, saved[:ctx.count])
    if ctx.options.quantizes_again:
        kept = (*kept[:7], *quantize(*kept[3:5], ctx.layer, others[:4]))
    return kept, others


def _results(ctx, made: Sequence[torch.Tensor], weights: Sequence[torch.Tensor],
             others: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor | None, ...]:
    """Moves the scales on if asked to. Returns the gradients that autograd takes, up to the one of `layer`."""
    options, (dx, dprobs, *of_weights) = ctx.options, made
    if options.updates:
        update(others[:8], ctx.layer)
    if options.dummies is None:
        results = gradients(ctx.needs_input_grad, dx, dprobs, of_weights, options.gradient_dtypes)
    else:
        results = (*gradients(ctx.needs_input_grad, dx, dprobs),
                   *(as_dummy(weight, kind) for weight, kind in zip(weights, options.dummies)))
    return *results, None, None, None, None
