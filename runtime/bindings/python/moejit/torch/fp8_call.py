# SPDX-License-Identifier: Apache-2.0
"""Calls with quantized weights of the caller: forward reads codes and scales where they are, backward the same transposed."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from moejit.torch import ops
from moejit.torch.arguments import biases_of, check_biases, gradient_dtype
from moejit.torch.devices import no_elements
from moejit.torch.first_order import first_order
from moejit.torch.fp8_weights import FP8Weights
from moejit.torch.function import gradients, kept_names, rows_of
from moejit.torch.gathered import ROWS, columns_of
from moejit.torch.layers import inputs_of
from moejit.torch.plans import plan_of
from moejit.torch.repeat import InferenceOfCodes
from moejit.torch.state import ExpertsCall


def call_with_codes(call: ExpertsCall, given: tuple, weights: FP8Weights, biases: Sequence[torch.Tensor | None],
                    wanted: tuple[str, ...]) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns y and the status word.

    Args:
        call: The common part of the calls.
        given: x, topk_ids and topk_probs, or what grouped input has in their places.
        weights: The weights.
        biases: b1 and b2; None: absent.
        wanted: Names of the gradients that autograd wants.
    """
    if wanted and weights.prefill is not None:
        weights = weights.prefill
    if wanted and weights.is_packed:
        raise RuntimeError(f"moejit: unsupported: backward of {weights.what}, which only forward reads\n"
                           + ("hint: mxfp4_weights() without packed=True makes FP8 weights, which have a backward pass"
                              if weights.kind == "tile" else "hint: expand the weights to bf16"))
    if wanted and weights.kind != "block":
        raise RuntimeError("moejit: unsupported: backward of FP8 weights with a scale for each channel: dgrad multiplies "
                           "with columns, which have no scale of their own\nhint: take weights with a scale for each "
                           "128x128 block, or bf16 weights")
    dtypes = tuple(torch.bfloat16 if bias is None else gradient_dtype(bias) for bias in biases)
    layer = call.layer(*given, wanted, "f32" if torch.float32 in dtypes else "bf16", False, False,
                       weights.weight_format)
    check_biases(layer, *biases)
    recipe, layout, sharing, *widths = _facts_of(layer)
    weights.check_recipe(recipe)
    if weights.is_packed and widths != [weights.hidden, weights.intermediate]:
        raise RuntimeError(f"moejit: tensor_mismatch: packed weights of hidden {weights.hidden} and intermediate "
                           f"{weights.intermediate}, wanted {widths[0]} and {widths[1]} as the layer has\n"
                           "hint: x has as many columns as rows of w1 had when they were packed")
    # The layout tells the order of the bias alone where weights are packed.
    if layout != "concat" and (not weights.is_packed or weights.prefill is not None):
        raise RuntimeError(f'moejit: unsupported: FP8 weights with gate_up_layout "{layout}", wanted "concat": all rows of '
                           "gate, then all of up\nhint: sort the rows of codes and scales after loading")
    if sharing != 1:
        raise RuntimeError(f"moejit: unsupported: FP8 weights with scale_sharing_k {sharing}, wanted 1: neighboring blocks of a "
                           "checkpoint have scales of their own\nhint: leave the field out")
    tensors = (*given, *biases_of(given[0], (None, None, *biases)), *weights.tensors.values())
    if wanted or torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors[5:]):
        return FP8Function.apply(*tensors, dtypes, layer)
    made = ops.run(layer, "forward", _by_name(layer, tensors))
    if call.may_be_repeated(given[0]):
        call.inference = InferenceOfCodes(given, weights, biases[0] is not None, no_elements(given[0].device), call.state,
                                          layer)
    return made["y"], made["status"]


@torch.compiler.assume_constant_result
def _facts_of(layer: str) -> tuple[str, str, int, int, int]:
    """Returns recipe, gate_up_layout, scale_sharing_k, hidden and intermediate of a layer."""
    description = plan_of(layer).description
    return (description["recipe"], description["gate_up_layout"], description.get("scale_sharing_k", 1),
            description["hidden"], description["intermediate"])


def _by_name(layer: str, tensors: Sequence[torch.Tensor]) -> dict[str, torch.Tensor]:
    """Returns x, topk_ids, topk_probs, b1, b2 and the tensors of ROWS by the layer's names."""
    names = inputs_of(layer)
    return dict(zip((*names[:3], *names[5:7], *ROWS), tensors))


class FP8Function(torch.autograd.Function):
    """One forward call and its backward call. The weights are frozen: they get no gradient."""

    @staticmethod
    def forward(ctx: Any, x, topk_ids, topk_probs, b1, b2, w1_q, w1_scale_inv, w2_q, w2_scale_inv, gradient_dtypes,
                layer):
        given = _by_name(layer, (x, topk_ids, topk_probs, b1, b2, w1_q, w1_scale_inv, w2_q, w2_scale_inv))
        tensors = {**given, **ops.run(layer, "forward", given)}
        if "saved" in tensors:
            ctx.names = (*(name for name in kept_names(layer) if name in tensors), *ROWS)
            ctx.save_for_backward(*(tensors[name] for name in ctx.names))
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(tensors["status"])
        ctx.layer, ctx.gradient_dtypes = layer, gradient_dtypes
        return tensors["y"], tensors["status"]

    @staticmethod
    @first_order
    def backward(ctx: Any, dy, _):
        if any(ctx.needs_input_grad[5:9]):
            raise RuntimeError("moejit: unsupported: a gradient of FP8 weights: their codes take no optimizer's step\n"
                               "hint: freeze them with requires_grad_(False), and train adapters, or bf16 weights")
        given = dict(zip(ctx.names, ctx.saved_tensors))
        given.update(columns_of(given, ctx.layer), dy=rows_of(dy))
        made = ops.run(ctx.layer, "backward", given)
        wanted = ctx.needs_input_grad
        dx, _, dprobs, *_, db1, db2 = gradients((*wanted[:3], False, False, *wanted[3:5]), made,
                                                (*[torch.bfloat16] * 2, *ctx.gradient_dtypes))
        return dx, None, dprobs, db1, db2, None, None, None, None, None, None
