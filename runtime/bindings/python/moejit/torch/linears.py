# SPDX-License-Identifier: Apache-2.0
"""Backward in two steps of autograd, the last for w1: what only the first one reads is freed between them."""
from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence

import torch

from moejit.torch import ops
from moejit.torch.first_order import first_order
from moejit.torch.function import Options, forward, gradients, kept_names, rows_of
from moejit.torch.halves import DelayedGradients, WeightsHalfFunction, spares_memory, weight_gradient_bytes
from moejit.torch.layers import reads_of
from moejit.torch.own_gradient import memory_of_dx, with_ownership
from moejit.torch.plans import layer_text, plan_of, row_of

_RECIPES_OF_TILES = ("fp8_flow", "fp8_blockwise")  # whose columns of weights backward can cast by themselves


@functools.lru_cache(maxsize=None)
def with_columns_cast(layer: str) -> str:
    """Returns the text of a layer whose backward casts the columns of weights itself, or `layer` where it cannot.

    Backward then has the columns in its workspace, so its peak is the same; between the passes nothing of them is held.
    """
    whole = plan_of(layer)
    if whole.description["recipe"] not in _RECIPES_OF_TILES:
        return layer
    return layer_text({**whole.description, "backward_quantizes_weights": True}, whole.target)


@functools.lru_cache(maxsize=None)
def with_linears(layer: str, casts_columns: bool = False) -> str | None:
    """Returns the text of a layer whose backward has these two parts, or None if they take no less memory at the peak.

    One call has the saved block, its workspace and the gradients of all weights at once. When the part of fc1 makes
    dw1, the saved block and the gradient of y are free, if it reads neither. The workspace of the part of fc2 is free,
    too.

    Args:
        layer: The text of the layer whose backward is one call.
        casts_columns: Whether the part of fc2 casts the columns of weights where the recipe can, so that nothing of
            them is held between the passes.
    """
    whole = plan_of(layer)
    of_columns = plan_of(with_columns_cast(layer)) if casts_columns else whole
    parted = layer_text({**of_columns.description, "backward_linears": True}, whole.target)
    planned, of_fc1 = plan_of(parted), row_of(parted, "backward_fc1")
    if any(argument.name in ("saved", "dy") and not argument.is_shape_only for argument in of_fc1.reads):
        return None
    of_weights = weight_gradient_bytes(layer)
    fc2, fc1 = (planned.calls[name].workspace_bytes for name in ("backward_fc2", "backward_fc1"))
    in_parts = planned.deferred.most + max(planned.saved.most + fc2 + of_weights.get("dw2", 0),
                                           fc1 + sum(of_weights.values()))
    at_once = (whole.saved.most + whole.quantized_colwise.bytes - planned.quantized_colwise.bytes
               + whole.calls["backward"].workspace_bytes + sum(of_weights.values()))
    return parted if spares_memory(in_parts, at_once) else None


def is_held_anyway(weight: torch.Tensor) -> bool:
    """Returns whether a weight is a parameter's memory as it lies. A copy, made for the call, backward would hold."""
    leaf = weight if weight._base is None else weight._base
    return leaf.is_leaf and weight.is_contiguous()


@dataclasses.dataclass(eq=False)
class _PartOfFc1:
    """What the part of fc1 needs, and what the part of fc2 has made."""
    options: Options
    given: dict[str, torch.Tensor]
    made: dict[str, torch.Tensor]

    def compute(self, are_wanted: Sequence[bool]) -> tuple[torch.Tensor | None, ...]:
        """Runs the part and returns the gradients of x, topk_ids, topk_probs, w1, w2, b1 and b2."""
        made = ops.run(self.options.layer, "backward_fc1", self.given)
        return gradients(are_wanted, {**self.made, **made}, self.options.gradient_dtypes)


def call_with_parted_backward(tensors: tuple[torch.Tensor, ...], weights: Sequence[torch.Tensor | None],
                              options: Options) -> tuple[torch.Tensor, torch.Tensor]:
    """Runs the call whose backward has the parts of fc2 and of fc1.

    Args:
        tensors: The tensors of inputs_of().
        weights: w1, w2, b1 and b2 as autograd knows them; None: absent.
        options: Those of the call, whose layer has such parts, no state and no main gradients.

    Returns:
        y and the status word.
    """
    parts = DelayedGradients()
    # Autograd runs functions of later calls first, so the part of fc1 comes right behind the part of fc2.
    anchor = WeightsHalfFunction.apply(parts.take_newest, *tensors[:3], *weights)
    return _PartOfFc2.apply(anchor, tensors, parts, options)


class _PartOfFc2(torch.autograd.Function):
    """The call, whose gradients the function before it gives to autograd."""

    @staticmethod
    def forward(ctx, anchor, tensors, parts, options):
        made = forward(options.layer, tensors, {})
        ctx.names = kept_names(options.layer)
        ctx.save_for_backward(*(made[name] for name in ctx.names))
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(made["status"])
        ctx.parts, ctx.options = parts, options
        return made["y"], made["status"]

    @staticmethod
    @first_order
    @with_ownership
    def backward(ctx, is_own, dy, _):
        given = {**dict(zip(ctx.names, ctx.saved_tensors)), "dy": rows_of(dy)}
        layer = ctx.options.layer
        reused = memory_of_dx(layer, "backward_fc2", is_own, dy, given["dy"])
        made = {**ops.run(layer, "backward_fc2", {**given, **reused}), **reused}
        given.update(made, dy=given["dy"].new_empty(dy.shape[0], 0))  # the part of fc1 needs only T of it
        of_fc1 = {name: given[name] for name in reads_of(layer, "backward_fc1")}
        ctx.parts.queue.append(_PartOfFc1(ctx.options, of_fc1, {name: made[name] for name in made if name != "deferred"}))
        return (None,) * 4
