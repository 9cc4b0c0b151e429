# SPDX-License-Identifier: Apache-2.0
"""Checks of options and dtypes, and errors of calls in the words of the model's user."""
from __future__ import annotations

import json
from typing import Any, NoReturn

import torch

from moejit.torch.gathered import GatheredWeight
from moejit.torch.layers import FEWEST_MAX_TOKENS, call_text

# The attribute of modules with their name in the model that was checked.
MODULE_NAME = "_moejit_name"
_AUTOCAST = "run under autocast (Trainer: bf16=True)"


def check_cache_weights(function: str, cache_weights: object) -> None:
    """Raises an error unless an option has one of its three values."""
    if cache_weights not in (None, True, False):
        raise RuntimeError(f"moejit: invalid_value: {function}: cache_weights: got {cache_weights!r}, wanted True, False "
                           "or None")


def check_options(function: str, fields: dict[str, Any], max_tokens: int | None, cache_weights: object,
                  keeps_state: bool = False) -> None:
    """Raises an error for options that no model can run with: plans a small layer with them.

    Args:
        function: The name for errors, such as "register_hf()".
        fields: Fields of a layer description that the options give.
        max_tokens, cache_weights: As for register_hf().
        keeps_state: Whether modules keep the state of recipes that have one.
    """
    check_cache_weights(function, cache_weights)
    layer = {"experts": 8, "top_k": 2, "hidden": 256, "intermediate": 256, **fields, "dispatch": "none",
             "max_tokens": FEWEST_MAX_TOKENS if max_tokens is None else max_tokens}
    try:
        for gradients in ((), ("dx", "dprobs", "dw1", "dw2")):
            call_text(json.dumps(layer, default=str), "sim", gradients, "bf16", keeps_state=keeps_state)
    except RuntimeError as error:
        raise RuntimeError(f"moejit: {function}: {str(error).removeprefix('moejit: ')}") from error


def user_name(module: torch.nn.Module) -> str:
    """Returns a module's name in the model that was checked; before that the name of its class."""
    return module.__dict__.get(MODULE_NAME) or type(module).__name__


def name_of(dtype: torch.dtype) -> str:
    """Returns the name of a dtype as people write it, such as "float32"."""
    return str(dtype).removeprefix("torch.")


def check_dtypes(owner: str, hidden_states: torch.Tensor, parameters: dict[str, torch.Tensor | None]) -> None:
    """Raises an error if a call has tokens or parameters that are not bfloat16. Autocast casts them.

    Args:
        owner: The module's name in the model, or its class; empty: the tensors are arguments of a function.
        hidden_states: The tokens.
        parameters: Weights and biases, by the names that the user knows.
    """
    device = hidden_states.device.type
    if device != "meta" and torch.is_autocast_enabled(device):
        return
    for name, tensor in parameters.items():
        if isinstance(tensor, torch.Tensor) and not isinstance(tensor, GatheredWeight):
            if tensor.dtype != torch.bfloat16:
                raise _dtype_error(f"{owner}.{name}" if owner else name, tensor.dtype,
                                   "load or make the model with dtype=torch.bfloat16, call model.to(torch.bfloat16), or "
                                   + _AUTOCAST if owner else "cast it with .to(torch.bfloat16), or " + _AUTOCAST)
    if hidden_states.dtype != torch.bfloat16:
        raise _dtype_error("hidden_states" + (f" of {owner}" if owner else ""), hidden_states.dtype,
                           f"call hidden_states.to(torch.bfloat16) before the experts, or {_AUTOCAST}")


def _dtype_error(what: str, dtype: torch.dtype, hint: str) -> RuntimeError:
    return RuntimeError(f"moejit: tensor_mismatch: {what} is {name_of(dtype)}; moejit computes in bfloat16\nhint: {hint}")


def raise_better(error: RuntimeError, owner: str, hidden_states: torch.Tensor,
                 parameters: dict[str, torch.Tensor | None]) -> NoReturn:
    """Raises the error of a call in the words of the model's user. Raises it as it is if there is no better sentence.

    The other arguments are as for check_dtypes().
    """
    better = _told_better(error, owner, hidden_states, parameters)
    if better is None:
        raise error
    raise better from error


def _told_better(error: RuntimeError, owner: str, hidden_states: torch.Tensor,
                 parameters: dict[str, torch.Tensor | None]) -> RuntimeError | None:
    try:
        check_dtypes(owner, hidden_states, parameters)
    except RuntimeError as better:
        return better
    begin = "moejit: cache_miss: "
    if owner and str(error).startswith(begin):
        return RuntimeError(f"{begin}{owner}: {str(error).removeprefix(begin)}")
    return None
