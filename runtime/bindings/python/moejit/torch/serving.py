# SPDX-License-Identifier: Apache-2.0
"""The common part of functions with signatures of serving libraries: forward calls with weights of another owner."""
from __future__ import annotations

import functools
import json
from typing import Any, NoReturn

import torch
from torch.utils.weak import WeakTensorKeyDictionary

from moejit.torch.call import call_experts
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


@functools.lru_cache(maxsize=None)
def _description(activation: str, layout: str, recipe: str, experts: int, top_k: int, hidden: int, intermediate: int,
                 has_biases: bool, max_tokens: int) -> str:
    return json.dumps({
        "experts": max(experts, top_k), "local_experts": experts, "top_k": top_k, "hidden": hidden,
        "intermediate": intermediate, "activation": json.loads(activation), "gate_up_layout": layout,
        "biases": has_biases, "recipe": recipe, "dispatch": "none", "max_tokens": max_tokens, "passes": ["forward"]})


def run(x: torch.Tensor, ids: torch.Tensor, probs: torch.Tensor, w1: torch.Tensor, w2: torch.Tensor,
        b1: torch.Tensor | None, b2: torch.Tensor | None, *, activation: Activation, layout: str = "concat",
        recipe: str = "fp8_flow") -> torch.Tensor:
    """Computes experts without gradients. Weights are quantized once and kept until they change or are freed.

    Args:
        x: [T, H] bf16.
        ids: [T, K] int32 or int64: experts of w1; -1: none.
        probs: [T, K] float32 or bf16.
        w1: [E, 2I, H] bf16, or [E, I, H] if the activation has no gate. Calls with the same tensor object share its
            quantized weights.
        w2: [E, H, I] bf16.
        b1: [E, 2I] or [E, I] bf16, or None.
        b2: [E, H] bf16, or None if b1 is None.
        activation: As in a layer description.
        layout: "concat" or "interleaved", as in a layer description.
        recipe: As in a layer description.

    Returns:
        [T, H] bf16.
    """
    if (b1 is None) != (b2 is None):
        raise RuntimeError("moejit: missing_tensor: one bias is given and the other is not\n"
                           "hint: give zeros for the one that is missing")
    description = _description(json.dumps(activation), layout, recipe, w1.shape[0], ids.shape[-1], x.shape[-1],
                               w2.shape[-1], b1 is not None, max_tokens_of(x.shape[0]))
    state = _state_of(w1)
    call = state.calls.get(description)
    if call is None:
        call = state.calls[description] = ExpertsCall(description=description, state=state, cache_weights=True)
    with torch.no_grad():
        return call_experts(call, x, ids, probs, w1, w2, b1, b2)


def local_ids(ids: torch.Tensor, first: int, experts: int) -> torch.Tensor:
    """Returns ids counted from `first`; -1 for ids that are not among the next `experts` ones."""
    shifted = ids - first
    return torch.where((shifted >= 0) & (shifted < experts), shifted, -1)
