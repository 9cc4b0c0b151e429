# SPDX-License-Identifier: Apache-2.0
"""Texts of layers for the calls of modules, and facts of their plans that torch.compile takes as constants."""
from __future__ import annotations

import functools
import json
from typing import Any

import torch

from moejit.errors import Error
from moejit.torch.plan_facts import Plan
from moejit.torch.plans import layer_text, plan_of, row_of

WEIGHT_GRADIENTS = ("dw1", "dw2", "db1", "db2")
GRADIENTS = ("dx", "dprobs", *WEIGHT_GRADIENTS)
BLOCKS = ("quantized", "quantized_colwise")  # of quantized weights
# What calls of a layer take, in the order of the functions' arguments: of tokens, and of rows in the order of experts.
_OF_TOKENS = ("x", "topk_ids", "topk_probs", "w1", "w2", "b1", "b2", *BLOCKS)
_OF_GROUPED = ("x", "tokens_per_expert", "probs", *_OF_TOKENS[3:])
# The state of layers whose scales follow from the steps before: tensors of forward and update_weights, then tensors of
# backward.
FORWARD_STATE = ("fc1_amax_history", "fc2_amax_history", "fc1_scale", "fc2_scale")
GRADIENT_STATE = ("fc1_grad_amax_history", "fc2_grad_amax_history", "fc1_grad_scale", "fc2_grad_scale")

FEWEST_MAX_TOKENS = 16  # of layers for calls whose user gives no bound


def max_tokens_of(tokens: int, max_tokens: int | None = None) -> int:
    """Returns max_tokens of the layer for a call. Under torch.compile the comparisons become guards.

    Layers for few tokens have other kernels, which stream the weights.

    Args:
        tokens: T of the call.
        max_tokens: The bound that the user has given; None: the next power of two, from 16 on.
    """
    if max_tokens is not None:
        return max_tokens
    bound = FEWEST_MAX_TOKENS
    while bound < tokens:
        bound *= 2
    return bound


@torch.compiler.assume_constant_result
def as_json(description: dict[str, Any] | str) -> str:
    """Returns a description, or a value in one, as JSON. torch.compile does not trace this."""
    return json.dumps(description)


@torch.compiler.assume_constant_result
def json_with(description: dict[str, Any] | str, **fields: Any) -> str:
    """Returns a layer description as JSON, with these fields."""
    return json.dumps({**_read(description if isinstance(description, str) else json.dumps(description)), **fields})


@torch.compiler.assume_constant_result
def experts_of(description: str) -> int:
    """Returns how many experts a layer has on all ranks."""
    return _experts_of(description)


@functools.lru_cache(maxsize=None)
def _experts_of(description: str) -> int:
    return _read(description)["experts"]


# What makes packed weights of a format.
_PACKERS = {"mxfp4": "mxfp4_weights(..., packed=True)", "nvfp4": "nvfp4_weights()", "int4": "int4_weights()"}


@torch.compiler.assume_constant_result
def has_shared_gate(description: str) -> bool:
    """Returns whether calls of a layer bring probabilities of its shared experts."""
    return _has_shared_gate(description)


@functools.lru_cache(maxsize=None)
def _has_shared_gate(description: str) -> bool:
    shared = _read(description).get("shared")
    return isinstance(shared, dict) and shared.get("gate") is True


@torch.compiler.assume_constant_result
def with_format_of(description: str, weight_format: str | None) -> str:
    """Returns a layer description, JSON, for weights in a packed format, or not; refuses others for packed ones."""
    return _with_format_of(description, weight_format)


@functools.lru_cache(maxsize=None)
def _with_format_of(description: str, weight_format: str | None) -> str:
    wanted = _PACKERS.get(_read(description).get("weight_format"))
    if weight_format is None and wanted is not None:
        raise RuntimeError(f'moejit: unsupported: weight_format "{_read(description)["weight_format"]}": got weights that are '
                           f"not packed, wanted {wanted}\nhint: leave weight_format out for bf16 and FP8 weights")
    return description if weight_format is None else json.dumps({**_read(description), "weight_format": weight_format})


def _read(description: str) -> dict[str, Any]:
    """Returns a layer description, given as JSON, as a dict."""
    try:
        fields = json.loads(description)
    except ValueError as error:
        raise RuntimeError(f"moejit: invalid_json: argument layer: {error}, wanted a layer description\n"
                           "hint: give it as a dict, or as JSON") from None
    if not isinstance(fields, dict):
        raise RuntimeError(f"moejit: wrong_type: argument layer: it is {description[:60]}, wanted a layer description\n"
                           "hint: give it as a dict, or as JSON")
    return fields


def refuse_separate(fields: dict[str, Any]) -> None:
    """Refuses a layer whose gate and up are two weights."""
    if fields.get("gate_up_layout") == "separate":
        raise RuntimeError('moejit: unsupported: gate_up_layout "separate", wanted "concat" or "interleaved": functions '
                           "and modules of moejit.torch take gate and up as one weight\nhint: give them "
                           "torch.cat((gate, up), dim=1), or run the layer with moejit.Layer")


@torch.compiler.assume_constant_result
def refuse_router(description: str) -> None:
    """Refuses a layer that chooses experts itself, where the caller brings ids and probabilities."""
    if _read(description).get("router") is not None:
        raise RuntimeError('moejit: unsupported: a layer with "router", wanted one without: its calls take logits in the '
                           "place of ids and probabilities\nhint: routed_experts() takes logits; or leave \"router\" out "
                           "and run router() before")


def call_fields(description: str, gradients: tuple[str, ...], wgrad_dtype: str, topk_ids_dtype: str,
                topk_probs_dtype: str, has_halves: bool = False, has_checks: bool = False) -> dict[str, Any]:
    """Returns a layer description for one call, as a dict. The arguments are as for call_text()."""
    fields = _read(description)
    refuse_separate(fields)
    if fields.get("input") == "grouped":
        fields.update(tokens_per_expert_dtype=topk_ids_dtype)
    else:
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


def _refuse_state(planned: Plan) -> None:
    """Refuses layers whose scales follow from the steps before if nobody keeps a state for them."""
    if planned.has_state:
        raise Error("unsupported", "plan",
                    f'recipe "{planned.description["recipe"]}" has a state from step to step, which only modules of '
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
        topk_ids_dtype: "i32" or "i64"; of grouped input the dtype of tokens_per_expert.
        topk_probs_dtype: "f32" or "bf16"; of grouped input "f32".
        has_halves: Whether backward is called in two halves; then there are gradients.
        keeps_state: Whether the caller keeps the state of recipes that have one.
        has_checks: Whether quantized weights are kept, and compared with the weights.

    Raises:
        moejit.Error: As layer_text(); "unsupported": the recipe has a state and the caller keeps none.
    """
    return _call_text(description, target, gradients, wgrad_dtype, topk_ids_dtype, topk_probs_dtype, has_halves,
                      keeps_state, has_checks)


@torch.compiler.assume_constant_result
def reads_of(layer: str, call: str) -> tuple[str, ...]:
    """Returns the names of what a call reads, tensors of the plan and blocks, in the operators' order."""
    return _reads_of(layer, call)


@functools.lru_cache(maxsize=None)
def _reads_of(layer: str, call: str) -> tuple[str, ...]:
    return tuple(argument.name for argument in row_of(layer, call).reads)


@torch.compiler.assume_constant_result
def inputs_of(layer: str) -> tuple[str, ...]:
    """Returns the names of what calls take, in the order of the functions' arguments."""
    tensors = plan_of(layer).tensors
    names = _OF_GROUPED if "tokens_per_expert" in tensors else _OF_TOKENS
    return (*names[:3], "w1_gate", "w1_up", *names[4:]) if "w1_gate" in tensors else names


@functools.lru_cache(maxsize=None)
def _block_keys(layer: str) -> tuple[str, str]:
    planned = plan_of(layer)
    return planned.quantized.key, planned.quantized_colwise.key


@torch.compiler.assume_constant_result
def block_keys(layer: str) -> tuple[str, str]:
    """Returns values that decide the bytes of the two blocks of quantized weights, row-wise and column-wise."""
    return _block_keys(layer)


@torch.compiler.assume_constant_result
def has_biases(layer: str) -> bool:
    """Returns whether the layer has biases."""
    return "b1" in plan_of(layer).tensors


@torch.compiler.assume_constant_result
def place_of_digest(layer: str) -> tuple[int, int] | None:
    """Returns first byte and bytes of the digest in the row-wise block, by which update_weights sees changes."""
    written = (argument.digest for argument in row_of(layer, "update_weights").writes)
    return next((place for place in written if place is not None), None)
