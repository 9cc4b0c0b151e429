# SPDX-License-Identifier: Apache-2.0
"""Texts of layers, the last argument of operators."""
from __future__ import annotations

import functools
import json
from typing import Any

import torch

from moejit.errors import Error
from moejit.torch import _plan, texts

WEIGHT_GRADIENTS = ("dw1", "dw2", "db1", "db2")
GRADIENTS = ("dx", "dprobs", *WEIGHT_GRADIENTS)
# The state of layers whose scales follow from the steps before, in the order of operators: tensors of forward and
# quantize, then tensors of backward.
FORWARD_STATE = ("fc1_amax_history", "fc2_amax_history", "fc1_scale", "fc2_scale")
GRADIENT_STATE = ("fc1_grad_amax_history", "fc2_grad_amax_history", "fc1_grad_scale", "fc2_grad_scale")


@torch.compiler.assume_constant_result
def as_json(description: dict[str, Any] | str) -> str:
    """Returns a description, or a value in one, as JSON. torch.compile does not trace this."""
    return json.dumps(description)


@functools.lru_cache(maxsize=None)
def _layer_text(description: str, target: str) -> str:
    planned = _plan.plan(description, target)
    return texts.make(planned.target, planned.digest, planned.json)


def layer_text(description: dict[str, Any] | str, target: str = "sim") -> str:
    """Returns the text that operators take as their last argument.

    It holds the description with every field, the library's version and the plan's digest. With these a library that
    has other sizes or kernels refuses a compiled graph from disk.

    Args:
        description: A layer description as a dict or as JSON.
        target: "sim" for CPU tensors, "cuda:sm_90a" for CUDA tensors.

    Raises:
        RuntimeError: The description is wrong, or the target cannot run it.
    """
    return _layer_text(description if isinstance(description, str) else json.dumps(description), target)


# The plans of layers of groups that this process has opened, by text.
_group_plans: dict[str, _plan.Plan] = {}


def add_group_plan(layer: str, planned: _plan.Plan) -> None:
    """Makes plan_of() find the plan of a group's layer."""
    _group_plans[layer] = planned


@functools.lru_cache(maxsize=None)
def plan_of(layer: str) -> _plan.Plan:
    """Returns the plan of a layer's text.

    Raises:
        RuntimeError: The text is malformed, belongs to another version of the library, or to a group that this process
            has not opened.
    """
    text = texts.read(layer, "layer")
    if text.group:
        planned = _group_plans.get(layer)
        if planned is None:
            raise RuntimeError(f"moejit: invalid_state: argument layer: it is of the group {text.group}, which this "
                               "process has not opened\nhint: graphs of groups belong to the process that made them: "
                               "compile the model again")
        return planned
    planned = _plan.plan(text.json, text.target)
    texts.check_is_current(text, planned.digest)
    return planned


def call_fields(description: str, gradients: tuple[str, ...], wgrad_dtype: str, topk_ids_dtype: str,
                topk_probs_dtype: str, has_halves: bool = False, has_checks: bool = False) -> dict[str, Any]:
    """Returns a layer description for one call, as a dict. The arguments are as for call_text()."""
    try:
        fields = json.loads(description)
    except ValueError as error:
        raise RuntimeError(f"moejit: invalid_json: argument layer: {error}, wanted a layer description\n"
                           "hint: give it as a dict, or as JSON") from None
    if not isinstance(fields, dict):
        raise RuntimeError(f"moejit: wrong_type: argument layer: it is {description[:60]}, wanted a layer description\n"
                           "hint: give it as a dict, or as JSON")
    fields.update(topk_ids_dtype=topk_ids_dtype, topk_probs_dtype=topk_probs_dtype)
    fields.update(passes=["forward", "backward"] if gradients else ["forward"], backward_halves=has_halves)
    if has_checks:
        fields.update(weight_checks=True)
    if gradients:
        fields.update(wgrad_dtype=wgrad_dtype, gradients=gradients)
    return fields


@functools.lru_cache(maxsize=None)
def _call_text(description: str, target: str, gradients: tuple[str, ...], wgrad_dtype: str, topk_ids_dtype: str,
               topk_probs_dtype: str, has_halves: bool, keeps_state: bool, has_checks: bool) -> str:
    text = layer_text(call_fields(description, gradients, wgrad_dtype, topk_ids_dtype, topk_probs_dtype, has_halves,
                                  has_checks), target)
    if not keeps_state:
        _refuse_state(plan_of(text))
    return text


def _refuse_state(planned: _plan.Plan) -> None:
    """Refuses layers whose scales follow from the steps before if nobody keeps a state for them."""
    if planned.has_state:
        raise Error("unsupported", "plan",
                    f'recipe "{json.loads(planned.json)["recipe"]}" has a state from step to step, which only modules of '
                    "moejit.torch.Experts keep", 'use "fp8_current", whose scales are those of the step, or Experts')


@torch.compiler.assume_constant_result
def call_text(description: str, target: str, gradients: tuple[str, ...], wgrad_dtype: str,
              topk_ids_dtype: str = "i64", topk_probs_dtype: str = "f32", has_halves: bool = False,
              keeps_state: bool = False, has_checks: bool = False) -> str:
    """Returns the text of a layer for one call.

    Args:
        description: A layer description, as JSON.
        target: "sim" or "cuda:sm_90a".
        gradients: Names from GRADIENTS of the wanted gradients; none: there will be no backward call.
        wgrad_dtype: "f32" or "bf16".
        topk_ids_dtype: "i32" or "i64".
        topk_probs_dtype: "f32" or "bf16".
        has_halves: Whether backward is called in two halves; then there are gradients.
        keeps_state: Whether the caller keeps the state of recipes that have one.
        has_checks: Whether quantized weights are kept, and compared with the weights.

    Raises:
        moejit.Error: As layer_text(); "unsupported": the recipe has a state and the caller keeps none.
    """
    return _call_text(description, target, gradients, wgrad_dtype, topk_ids_dtype, topk_probs_dtype, has_halves,
                      keeps_state, has_checks)


@torch.compiler.assume_constant_result
def backward_reads_quantized(layer: str) -> bool:
    """Returns whether backward reads the row-wise weights too; it reads them if it recomputes activations."""
    return plan_of(layer).backward_reads_quantized


@torch.compiler.assume_constant_result
def backward_reads_x(layer: str) -> bool:
    """Returns whether backward reads x again."""
    return plan_of(layer).backward_reads_x


@functools.lru_cache(maxsize=None)
def _read_by_backward(layer: str) -> tuple[bool, bool, bool, bool]:
    planned = plan_of(layer)
    return ("b1" in planned.tensors, planned.backward_reads_quantized, planned.quantized_colwise.bytes > 0,
            planned.backward_reads_x)


@torch.compiler.assume_constant_result
def read_by_backward(layer: str) -> tuple[bool, bool, bool, bool]:
    """Returns whether backward reads the biases, the row-wise quantized weights, the column-wise ones, and x."""
    return _read_by_backward(layer)


@functools.lru_cache(maxsize=None)
def _block_keys(layer: str) -> tuple[str, str]:
    planned = plan_of(layer)
    return planned.quantized.key, planned.quantized_colwise.key


@torch.compiler.assume_constant_result
def block_keys(layer: str) -> tuple[str, str]:
    """Returns values that decide the bytes of the two blocks of quantized weights, row-wise and column-wise."""
    return _block_keys(layer)
