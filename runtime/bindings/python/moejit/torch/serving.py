# SPDX-License-Identifier: Apache-2.0
"""The common part of functions with signatures of serving libraries: forward calls with weights of another owner."""
from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from typing import Any, NoReturn

import torch
from torch.utils.weak import WeakTensorKeyDictionary

from moejit.torch.call import call_experts
from moejit.torch.fp8_weights import FP8Weights, are_codes, fp8_weights
from moejit.torch.layers import max_tokens_of
from moejit.torch.state import ExpertsCall, State

Activation = str | dict[str, Any]

# States of weights, by the tensor of the first weights; a state is freed with that tensor.
_states = WeakTensorKeyDictionary()


def refuse(function: str, argument: str, got: object, wanted: str, hint: str = "") -> NoReturn:
    """Raises the error for an argument that moejit cannot honor."""
    if isinstance(got, torch.Tensor):
        got = "a tensor"
    elif isinstance(got, list):
        got = f"a list of {len(got)}"
    raise RuntimeError(f"moejit: unsupported: {function}: argument {argument}: got {got}, wanted {wanted}"
                       + (f"\nhint: {hint}" if hint else ""))


def refuse_unless(function: str, wanted: dict[str, tuple[object, object]], hint: str = "") -> None:
    """Calls refuse() for the first of {argument: (got, wanted)} whose two values differ."""
    for argument, (got, value) in wanted.items():
        if isinstance(got, torch.Tensor) or got != value:
            refuse(function, argument, got, str(value), hint)


def update_weights(w1: torch.Tensor) -> None:
    """Promises that weights change only before the next call of this function: calls then do not look whether they have
    changed.

    The next call of each kind quantizes; make it before you capture a graph. Without this function calls are right, too.

    Args:
        w1: The tensor that calls get as the first weights.
    """
    _state_of(w1).weights.promise()


def forget(w1: torch.Tensor) -> None:
    """Frees the quantized weights, unless a captured graph may use them. The next call makes new ones.

    Args:
        w1: The tensor that calls get as the first weights.
    """
    if w1 in _states:
        _states[w1].weights.forget()


def _state_of(w1: torch.Tensor) -> State:
    state = _states.get(w1)
    if state is None:
        state = _states[w1] = State()
    return state


@torch.compiler.assume_constant_result
def _description(activation: Activation, *rest: Any) -> str:
    return _cached_description(json.dumps(activation), *rest)


@functools.lru_cache(maxsize=None)
def _cached_description(activation: str, layout: str, recipe: str, experts: int, top_k: int, hidden: int, intermediate: int,
                 has_biases: bool, max_tokens: int) -> str:
    return json.dumps({
        "experts": max(experts, top_k), "local_experts": experts, "top_k": top_k, "hidden": hidden,
        "intermediate": intermediate, "activation": json.loads(activation), "gate_up_layout": layout,
        "biases": has_biases, "recipe": recipe, "dispatch": "none", "max_tokens": max_tokens, "passes": ["forward"]})


def run(x: torch.Tensor, ids: torch.Tensor, probs: torch.Tensor, w1: torch.Tensor | FP8Weights,
        w2: torch.Tensor | None = None, b1: torch.Tensor | None = None, b2: torch.Tensor | None = None, *,
        activation: Activation, layout: str = "concat", recipe: str | None = None) -> torch.Tensor:
    """Computes experts without gradients. bf16 weights are quantized once and kept until they change or are freed.

    Args:
        x: [T, H] bf16.
        ids: [T, K] int32 or int64: experts of w1; -1: none.
        probs: [T, K] float32 or bf16.
        w1: [E, 2I, H] bf16, or [E, I, H] if the activation has no gate. Calls with the same tensor object share its
            quantized weights. Or fp8_weights() and the like, which are read where they are.
        w2: [E, H, I] bf16; None with fp8_weights() and the like.
        b1: [E, 2I] or [E, I] bf16, or None.
        b2: [E, H] bf16, or None if b1 is None.
        activation: As in a layer description.
        layout: "concat" or "interleaved", as in a layer description.
        recipe: As in a layer description; None: "fp8_flow", or what weights of fp8_weights() and the like take first.

    Returns:
        [T, H] bf16.
    """
    if (b1 is None) != (b2 is None):
        raise RuntimeError("moejit: missing_tensor: one bias is given and the other is not\n"
                           "hint: give zeros for the one that is missing")
    has_codes = are_codes(w1, w2)
    first = w1.w1_q if has_codes else w1
    intermediate = w1.intermediate if has_codes else w2.shape[-1]
    if recipe is None:
        recipe = w1.recipe if has_codes else "fp8_flow"
    description = _description(activation, layout, recipe, first.shape[0], ids.shape[-1], x.shape[-1], intermediate,
                               b1 is not None, max_tokens_of(x.shape[0]))
    if has_codes and torch.compiler.is_compiling():  # nothing is kept for codes
        call = ExpertsCall(description=description)
    else:
        call = _call_of(_state_of(first), description)
    with torch.no_grad():
        return call_experts(call, x, ids, probs, w1, w2, b1, b2)


def _call_of(state: State, description: str) -> ExpertsCall:
    call = state.calls.get(description)
    if call is None:
        call = state.calls[description] = ExpertsCall(description=description, state=state, cache_weights=True)
    return call


def codes(function: str, w1: torch.Tensor, w2: torch.Tensor, w1_scale: torch.Tensor | None,
          w2_scale: torch.Tensor | None, block_shape: Sequence[int] | None,
          has_channels: bool | None = None) -> FP8Weights:
    """Returns FP8 weights of a serving library for run(); they share their memory.

    Args:
        function: The name of the library's function, for errors.
        w1, w2, w1_scale, w2_scale: As for fp8_weights(), whose errors tell what is wrong with them.
        block_shape: What the library says of the scales: [128, 128], or None without blocks.
        has_channels: Whether the library says that each channel has a scale; None: it does not say.
    """
    for name, scale in (("w1_scale", w1_scale), ("w2_scale", w2_scale)):
        if scale is None:
            refuse(function, name, None, "the scales of FP8 weights")
    if block_shape is not None and list(block_shape) != [128, 128]:
        refuse(function, "block_shape", str(list(block_shape)), "[128, 128]", "quantize the weights anew, or give bf16 weights")
    weights = fp8_weights(w1, w1_scale, w2, w2_scale)
    if (block_shape is not None) != (weights.kind == "block"):
        refuse(function, "block_shape", None if block_shape is None else "[128, 128]",
               "[128, 128], since each block has a scale" if weights.kind == "block" else "None, since no block has a scale")
    if has_channels and weights.kind != "channel":
        refuse(function, "per_channel_quant", True, "False, since each block has a scale")
    return weights


def local_ids(ids: torch.Tensor, first: int, experts: int) -> torch.Tensor:
    """Returns ids counted from `first`; -1 for ids that are not among the next `experts` ones."""
    shifted = ids - first
    return torch.where((shifted >= 0) & (shifted < experts), shifted, -1)
