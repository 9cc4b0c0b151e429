# SPDX-License-Identifier: Apache-2.0
"""The autograd function of calls: torch.library.register_autograd would cost several times as much."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch

from moejit.torch import ops, scales
from moejit.torch.first_order import first_order
from moejit.torch.layers import BLOCKS, FORWARD_STATE, GRADIENT_STATE, WEIGHT_GRADIENTS, inputs_of, reads_of
from moejit.torch.main_grads import add_to_main_grads, dummies_of, take_main_grads
from moejit.torch.own_gradient import memory_of_dx, with_ownership
from moejit.torch.shared import dprobs_of

STATE = FORWARD_STATE + GRADIENT_STATE
_WEIGHTS = ("w1", "w2", "b1", "b2")


class Options(NamedTuple):
    """The part of a call with gradients that is no tensor.

    Attributes:
        layer: The text of the layer.
        gradient_dtypes: Dtypes of the gradients of w1, w2, b1 and b2.
        dummies: Kinds of the dummies if backward adds to main gradients, else None. Weights and biases get dummies as
            gradients, so that hooks on them run.
        overwrites: Whether it overwrites them.
        has_state: Whether the layer has a state.
        updates: Whether its scales move on behind backward.
        keeps_weights: Whether quantized weights are kept for backward; else it quantizes again.
        is_of_group: Whether all ranks of a group make the call.
        owners: Parameters whose main gradients backward asks for; None: they are among the tensors.
    """
    layer: str
    gradient_dtypes: tuple[torch.dtype, ...]
    dummies: tuple[str, ...] | None = None
    overwrites: bool = False
    has_state: bool = False
    updates: bool = False
    keeps_weights: bool = True
    is_of_group: bool = False
    owners: Sequence[torch.Tensor | None] | None = None


def forward(layer: str, inputs: Sequence[torch.Tensor | None], state: Mapping[str, torch.Tensor],
            order: torch.Tensor | None = None) -> dict[str, torch.Tensor]:
    """Makes a forward call, and returns by name what it got and what it made.

    Args:
        layer: The text of the layer.
        inputs: The tensors of inputs_of(); without blocks of quantized weights, None, the call quantizes.
        state: The state's tensors by name, if the layer has a state.
        order: As for ops.run().
    """
    given = {name: tensor for name, tensor in zip(inputs_of(layer), inputs) if tensor is not None}
    call = "forward" if BLOCKS[0] in given else "update_weights+forward"
    return {**given, **ops.run(layer, call, {**given, **state}, order)}


class ExpertsFunction(torch.autograd.Function):
    """One forward call and its backward call.

    Takes the options, the tensors of inputs_of(), and others: the state's tensors, main gradients, and the group's `order`,
    as far as the options have them. Without blocks of quantized weights, forward quantizes. Returns y and the status
    word; of a group y alone.
    """

    @staticmethod
    def forward(ctx, options, x, topk_ids, topk_probs, w1, w2, b1, b2, quantized, quantized_colwise, *others):
        state, _, order = _parts(options, others)
        tensors = forward(options.layer, (x, topk_ids, topk_probs, w1, w2, b1, b2, quantized, quantized_colwise), state,
                          order)
        _keep(ctx, options, tensors, others)
        if options.is_of_group:
            return tensors["y"]
        ctx.mark_non_differentiable(tensors["status"])
        return tensors["y"], tensors["status"]

    @staticmethod
    @first_order
    @with_ownership
    def backward(ctx, is_own, dy, *_):
        options = ctx.options
        given, others = _kept(ctx)
        state, main, order = _parts(options, others)
        if options.owners is not None:
            main, dummies, overwrites = take_main_grads(options.owners, dy)
            options = options._replace(dummies=dummies, overwrites=overwrites)
        if not options.keeps_weights:
            given.update(ops.run(options.layer, "update_weights", {**given, **state}))
        rows = rows_of(dy)
        reused = memory_of_dx(options.layer, "backward", is_own, dy, rows)
        given.update(state, dy=rows, **reused)
        if options.dummies is None:
            made = ops.run(options.layer, "backward", given, order)
        else:
            made = add_to_main_grads(options.layer, "backward", given, main, options.overwrites, order)
        made.update(reused)
        if options.updates:
            scales.update(state, options.layer)
        wanted = ctx.needs_input_grad[1:]
        if options.dummies is None:
            results = gradients(wanted, made, options.gradient_dtypes)
        else:
            weights = [given.get(name) for name in _WEIGHTS]
            given.clear()
            _free_saved_tensors(ctx)  # so that dummies may have their memory
            results = *gradients(wanted, made)[:3], *dummies_of(weights, options.dummies)
        return None, *results, None, None, *[None] * len(others)


def _parts(options: Options, others: Sequence[torch.Tensor]) -> tuple[dict, list, torch.Tensor | None]:
    """Returns the state by name, the main gradients, and the group's `order`."""
    rest = list(others)
    state = dict(zip(STATE, [rest.pop(0) for _ in STATE])) if options.has_state else {}
    main = []
    if options.dummies is not None and options.owners is None:
        main = [rest.pop(0) for _ in WEIGHT_GRADIENTS]
    return state, main, rest[0] if options.is_of_group else None


def _keep(ctx: Any, options: Options, tensors: Mapping[str, torch.Tensor], others: tuple[torch.Tensor, ...]) -> None:
    """Keeps for backward what it reads of these tensors, and the others.

    Backward writes the others: they must not go through hooks of saved tensors, which may bring back copies.
    """
    names = kept_names(options.layer)
    more = () if options.dummies is None else _WEIGHTS
    if not options.keeps_weights:
        names, more = tuple(name for name in names if name not in BLOCKS), more or _WEIGHTS[:2]
    names += tuple(name for name in more if name not in names)
    ctx.options, ctx.names = options, names
    kept = [tensors[name] for name in names]
    if torch.compiler.is_compiling():
        ctx.save_for_backward(*kept, *others)
        ctx.others = ()
    else:
        ctx.save_for_backward(*kept)
        ctx.others = others
    ctx.set_materialize_grads(False)


def _kept(ctx: Any) -> tuple[dict[str, torch.Tensor], tuple[torch.Tensor, ...]]:
    saved = ctx.saved_tensors
    return dict(zip(ctx.names, saved)), saved[len(ctx.names):] or ctx.others


def _free_saved_tensors(ctx: Any) -> None:
    """Frees what was saved for backward before autograd does, unless the graph is kept or torch has no such function."""
    if not torch.compiler.is_compiling() and hasattr(ctx, "maybe_clear_saved_tensors"):
        ctx.maybe_clear_saved_tensors()


def kept_names(layer: str) -> tuple[str, ...]:
    """Returns the names of what backward reads again, tensors and blocks. All else is freed after forward.

    Two calls of a layer keep as many, of the same shapes and dtypes, since checkpoints demand this of a repeated
    forward call.
    """
    inputs = inputs_of(layer)
    return tuple(name for name in reads_of(layer, "backward") if name in inputs or name == "saved")


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


def gradients(wanted: Sequence[bool], made: Mapping[str, torch.Tensor],
              dtypes: Sequence[torch.dtype] = ()) -> tuple[torch.Tensor | None, ...]:
    """Returns the gradients that autograd takes for x, topk_ids, topk_probs, w1, w2, b1 and b2.

    Args:
        wanted: Whether a gradient is wanted, for each of these inputs.
        made: dx [T, H], dprobs [T, K], dw1, ..., as far as the layer makes them.
        dtypes: Dtypes of the gradients of w1, w2, b1 and b2.
    """
    of_weights = (as_gradient(made.get(name), is_wanted, dtype)
                  for name, is_wanted, dtype in zip(WEIGHT_GRADIENTS, wanted[3:7], dtypes))
    return (made.get("dx") if wanted[0] else None, None, dprobs_of(made) if wanted[2] else None, *of_weights)


def as_gradient(gradient: torch.Tensor | None, is_wanted: bool, dtype: torch.dtype) -> torch.Tensor | None:
    """Returns the gradient for autograd: None if it is not wanted or the layer made none."""
    if not is_wanted or gradient is None:
        return None
    return gradient if gradient.dtype == dtype else gradient.to(dtype)
