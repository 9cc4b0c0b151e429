# SPDX-License-Identifier: Apache-2.0
"""Experts of transformers' models: an implementation for `model.set_experts_implementation()`."""
from __future__ import annotations

import functools
import json
from typing import Any

import torch

from moejit.torch.call import call_experts
from moejit.torch.checks import check_dtypes, check_options, raise_better, user_name
from moejit.torch.experts import Experts
from moejit.torch.gathered import is_sharded
from moejit.torch.hf_fp8 import has_codes, weights_of
from moejit.torch.hf_joined import SHARED, SharedExpert
from moejit.torch.hf_layers import first_weights, foreign_of, make_call, top_k_of
from moejit.torch.hf_mxfp4 import load_mxfp4
from moejit.torch.hf_models import check_when_set, quantization_of, quantized_error, takes_implementations
from moejit.torch.layers import FEWEST_MAX_TOKENS, max_tokens_of
from moejit.torch.state import ExpertsCall, State


def register_hf(name: str = "moejit", recipe: str = "fp8_flow", max_tokens: int | None = None, *,
                recompute: str = "none", cache_weights: bool | None = None,
                splits_alignment: int | None = None, packed: bool = False) -> None:
    """Registers an implementation of experts with transformers.

    A model gets it by `model.set_experts_implementation(name)`. The model does not change, neither its parameters nor
    its state dict. Experts of FP8 checkpoints stay FP8: their codes and scales are read where they are. That function
    raises an error if the model has no experts that can run; nothing else runs instead. For this, the first registration
    wraps `PreTrainedModel.set_experts_implementation` of transformers.

    gpt-oss with MXFP4 weights becomes FP8 of the same values by `from_pretrained(..., experts_implementation=name)`.

    Args:
        name: The name for models; a second registration of a name replaces the first.
        recipe: "fp8_flow", "bf16", ...
        max_tokens: The largest T of a call. None: for each call the smallest power of two, from 16 on, that T does not
            exceed; each such size is a layer of its own.
        recompute: "none" or "moe_expert".
        cache_weights: As for moejit.torch.Experts.
        splits_alignment: As for moejit.torch.Experts.
        packed: Whether gpt-oss' MXFP4 weights stay packed, in 4.25 bits each and without a backward pass, instead of
            becoming FP8. It has a say while a model is loaded, and none for other models.

    Raises:
        ImportError: transformers is missing or lacks its interface for experts.
        RuntimeError: No model can run with these arguments, or the name is one of transformers' own.

    Example:
        >>> moejit.torch.register_hf(recipe="bf16")
        >>> model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen3-30B-A3B", dtype=torch.bfloat16)
        >>> model.set_experts_implementation("moejit")
    """
    try:
        from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS
    except ImportError as error:
        raise ImportError("moejit.torch.register_hf() needs transformers 5 or newer, whose modules of experts take "
                          f"other implementations: {error}") from error
    fields = fields_of(recipe, recompute, splits_alignment)
    check_options("register_hf()", fields, max_tokens, cache_weights)
    if not isinstance(name, str) or not name or name == "eager" or name in ALL_EXPERTS_FUNCTIONS and not is_ours(name):
        raise RuntimeError(f"moejit: invalid_value: register_hf(): name: got {name!r}, wanted a name that transformers "
                           'does not use for experts of its own\nhint: leave it at "moejit"')
    register(name, json.dumps(fields), max_tokens, cache_weights)
    (_packing.add if packed else _packing.discard)(name)
    check_when_set(options_of, is_ours)
    load_mxfp4()


# Names of implementations for which MXFP4 weights stay packed as a model is loaded.
_packing: set[str] = set()


def packs(name: str) -> bool:
    """Returns whether MXFP4 weights of a model stay packed that is loaded for an implementation of this name."""
    return name in _packing


def fields_of(recipe: str, recompute: str, splits_alignment: int | None) -> dict[str, Any]:
    """Returns the fields of descriptions that options give."""
    fields = {"recipe": recipe, "recompute": recompute}
    return fields if splits_alignment is None else {**fields, "splits_alignment": splits_alignment}


def register(name: str, fields: str, max_tokens: int | None, cache_weights: bool | None) -> None:
    """Registers an implementation under a name, for experts with bf16 weights and for transformers' FP8Experts.

    `fields` are a description's fields, as JSON.
    """
    from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS
    ALL_EXPERTS_FUNCTIONS.register(name, functools.partial(run_experts, fields, max_tokens, cache_weights))
    try:
        from transformers.integrations.finegrained_fp8 import ALL_FP8_EXPERTS_FUNCTIONS
    except ImportError:
        return
    ALL_FP8_EXPERTS_FUNCTIONS.register(name, functools.partial(_fp8_experts, fields, max_tokens, cache_weights))


def is_ours(name: str | None) -> bool:
    """Returns whether an implementation of this name is moejit's."""
    from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS
    found = ALL_EXPERTS_FUNCTIONS.get(name)
    return isinstance(found, functools.partial) and found.func is run_experts


def options_of(module: torch.nn.Module) -> tuple[str, int | None, bool | None] | None:
    """Returns a module's options: fields, max_tokens, cache_weights. None: it runs other experts."""
    name = getattr(getattr(module, "config", None), "_experts_implementation", None)
    if name is None or not takes_implementations(module) or not is_ours(name):
        return None
    from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS
    return ALL_EXPERTS_FUNCTIONS.get(name).args


def experts_of(model: torch.nn.Module) -> dict[str, torch.nn.Module]:
    """Returns the modules of a model whose experts run on moejit, by name; raises an error if there are none."""
    found = {name: module for name, module in model.named_modules()
             if isinstance(module, Experts) or options_of(module) is not None}
    if not found:
        raise RuntimeError(f"moejit: unsupported: {type(model).__name__} has no experts that run on moejit\nhint: call "
                           "moejit.torch.convert() or model.set_experts_implementation() first")
    return found


def options_of_calls(module: torch.nn.Module) -> tuple[str, int | None, bool | None]:
    """Returns options_of() a module as its calls have them, with the shared expert that runs with it."""
    shared = module.__dict__.get(SHARED)
    return options_of(module) if shared is None or not shared.is_joined else shared.options


def weight_names(module: torch.nn.Module) -> tuple[str, str]:
    """Returns the names of a module's two weights."""
    return "gate_up_proj" if getattr(module, "has_gate", True) else "up_proj", "down_proj"


def keep_weights(module: torch.nn.Module) -> None:
    """Quantizes the weights of a module that options_of() knows, and keeps them in its state."""
    fields, max_tokens, cache_weights = options_of_calls(module)
    if has_codes(module):
        return
    refuse_quantized(module)
    if cache_weights is False:
        return
    w1 = first_weights(module)
    state = module.__dict__.setdefault("_moejit_state", State(w1.device))
    # Quantized weights do not depend on the tokens or top_k of calls. This layer is one that calls use, so its kernels
    # are needed anyway.
    call = make_call(module, fields, max_tokens or FEWEST_MAX_TOKENS, top_k_of(module) or 1, w1, cache_weights, state)
    shared = module.__dict__.get(SHARED)
    with torch.no_grad():
        weights = (w1, module.down_proj) if shared is None or not shared.is_joined else shared.weights(module)
    state.keep_weights(call, *weights)


def refuse_quantized(module: torch.nn.Module) -> None:
    """Raises an error if a module's weights are quantized in a form that moejit does not take."""
    if not has_codes(module) and quantization_of(module) is not None:
        raise quantized_error(user_name(module), module, module.config)


def run_experts(fields: str, max_tokens: int | None, cache_weights: bool | None, module: torch.nn.Module,
                hidden_states: torch.Tensor, top_k_index: torch.Tensor, top_k_weights: torch.Tensor,
                shared: SharedExpert | None = None, shared_probs: torch.Tensor | None = None) -> torch.Tensor:
    """Runs in place of a module's forward; with `shared`, of the shared expert's too, whose factors are `shared_probs`."""
    if torch.compiler.is_compiling():
        check_dtypes(user_name(module), hidden_states, _parameters(module))
        return _run(fields, max_tokens, cache_weights, module, hidden_states, top_k_index, top_k_weights, shared,
                    shared_probs)
    try:
        return _run(fields, max_tokens, cache_weights, module, hidden_states, top_k_index, top_k_weights, shared,
                    shared_probs)
    except RuntimeError as error:
        refuse_quantized(module)
        raise_better(error, user_name(module), hidden_states, _parameters(module))


def _run(fields: str, max_tokens: int | None, cache_weights: bool | None, module: torch.nn.Module,
         hidden_states: torch.Tensor, top_k_index: torch.Tensor, top_k_weights: torch.Tensor,
         shared: SharedExpert | None = None, shared_probs: torch.Tensor | None = None) -> torch.Tensor:
    has_fp8 = has_codes(module)
    first = weights_of(module) if has_fp8 else first_weights(module)
    second, w1 = (None, first.w1_q) if has_fp8 else (module.down_proj, first)
    b1 = b2 = None
    if shared is not None:
        first, second = shared.weights(module)
    if module.has_bias:
        b1 = module.gate_up_proj_bias if getattr(module, "has_gate", True) else module.up_proj_bias
        b2 = module.down_proj_bias
    bound = max_tokens_of(hidden_states.numel() // hidden_states.shape[-1], max_tokens)
    call = _call_of(module, fields, bound, top_k_index.shape[-1], w1, cache_weights)
    return call_experts(call, hidden_states, top_k_index, top_k_weights, first, second, b1, b2,
                        is_sharded=not has_fp8 and is_sharded(module), shared_probs=shared_probs)


def _fp8_experts(fields: str, max_tokens: int | None, cache_weights: bool | None, module: torch.nn.Module,
                 hidden_states: torch.Tensor, top_k_index: torch.Tensor, top_k_weights: torch.Tensor) -> torch.Tensor:
    """Runs in place of the forward of transformers' FP8Experts. Nothing is kept, whatever `cache_weights` is."""
    refuse_quantized(module)
    check_dtypes(user_name(module), hidden_states, {})
    return _run(fields, max_tokens, cache_weights, module, hidden_states, top_k_index, top_k_weights)


def _parameters(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Returns weights and biases by their names, for errors about dtypes; codes have their own."""
    names = ("gate_up_proj_bias", "up_proj_bias", "down_proj_bias")
    if not has_codes(module):
        names = ("gate_up_proj", "up_proj", "down_proj", *names)
    return {name: module._parameters[name] for name in names if name in module._parameters}


def _call_of(module: torch.nn.Module, fields: str, max_tokens: int, top_k: int, w1: torch.Tensor,
             cache_weights: bool | None) -> ExpertsCall:
    """Returns the common part of the module's calls, which is kept with the module."""
    if torch.compiler.is_compiling():
        return make_call(module, fields, max_tokens, top_k, w1, cache_weights, module.__dict__.get("_moejit_state"))
    if "_moejit_state" not in module.__dict__:
        module.__dict__["_moejit_state"] = State(w1.device)
    state = module.__dict__["_moejit_state"]
    key = (fields, max_tokens, top_k, cache_weights, foreign_of(module))
    call = state.calls.get(key)
    if call is None:
        call = state.calls[key] = make_call(module, fields, max_tokens, top_k, w1, cache_weights, state)
    return call
