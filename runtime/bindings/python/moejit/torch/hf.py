# SPDX-License-Identifier: Apache-2.0
"""Experts of transformers' models: an implementation for `model.set_experts_implementation()`."""
from __future__ import annotations

import functools
import json
from typing import Any

import torch

from moejit.describe import describe
from moejit.torch.call import ExpertsCall, State, call_experts
from moejit.torch.experts import splits_alignment_of
from moejit.torch.gathered import is_sharded

# Keys of configurations that change the formula of experts in some family.
_FORMULA_KEYS = ("hidden_act", "hidden_activation", "activation_function", "mlp_hidden_act", "dense_act_fn",
                 "ffn_act_fn", "swiglu_limit", "swiglu_limits", "swiglu_alpha", "mlp_gate_softcap", "mlp_up_softcap")
# Attributes of modules, and the keys that they stand for. A module computes with its own number, so that one wins.
_MODULE_NUMBERS = (("alpha", "swiglu_alpha"), ("limit", "swiglu_limit"))
_WIDTH_KEYS = ("moe_intermediate_size", "intermediate_size", "expert_ffn_hidden_size", "ffn_hidden_size", "d_ff",
               "encoder_ffn_dim")
_FEWEST_MAX_TOKENS = 256


def register_hf(name: str = "moejit", recipe: str = "fp8_flow", max_tokens: int | None = None, *,
                recompute: str = "none", cache_weights: bool | None = None,
                splits_alignment: int | None = None) -> None:
    """Registers an implementation of experts with transformers.

    A model gets it by `model.set_experts_implementation(name)`. The model does not change, neither its parameters nor
    its state dict. If the layer cannot run a model, the call raises an error; nothing else runs instead.

    Args:
        name: The name for models; a second registration of a name replaces the first.
        recipe: "fp8_flow", "bf16", ...
        max_tokens: The largest T of a call. None: for each call the smallest power of two, from 256 on, that T does not
            exceed; each such size is a layer of its own.
        recompute: "none" or "moe_expert".
        cache_weights: As for moejit.torch.Experts.
        splits_alignment: Number of rows; by default the smallest that the recipe accepts.

    Raises:
        ImportError: transformers is missing or lacks its interface for experts.

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
    fields = {"recipe": recipe, "recompute": recompute,
              "splits_alignment": splits_alignment or splits_alignment_of(recipe)}
    ALL_EXPERTS_FUNCTIONS.register(name, implementation(json.dumps(fields), max_tokens, cache_weights))


def implementation(fields: str, max_tokens: int | None, cache_weights: bool | None) -> functools.partial:
    """Returns a function to call instead of a module's forward. `fields` are those of a description, as JSON."""
    return functools.partial(_experts, fields, max_tokens, cache_weights)


def options_of(module: torch.nn.Module) -> tuple[str, int | None, bool | None] | None:
    """Returns the arguments of implementation() for a module that runs it; None for other modules."""
    name = getattr(getattr(module, "config", None), "_experts_implementation", None)
    if name is None or not hasattr(module, "is_transposed"):
        return None
    from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS
    found = ALL_EXPERTS_FUNCTIONS.get(name)
    return found.args if isinstance(found, functools.partial) and found.func is _experts else None


def keep_weights(module: torch.nn.Module) -> None:
    """Quantizes the weights of a module that options_of() knows, and keeps them in its state."""
    fields, max_tokens, cache_weights = options_of(module)
    if cache_weights is False:
        return
    w1 = _first_weights(module)
    state = module.__dict__.setdefault("_moejit_state", State(w1.device))
    # The weights do not depend on the tokens or top_k of calls.
    call = make_call(module, fields, max_tokens or _FEWEST_MAX_TOKENS, 1, w1, cache_weights, state)
    state.keep_weights(call, w1, module.down_proj)


def _first_weights(module: torch.nn.Module) -> torch.Tensor:
    return module.gate_up_proj if getattr(module, "has_gate", True) else module.up_proj


def _experts(fields: str, max_tokens: int | None, cache_weights: bool | None, module: torch.nn.Module,
             hidden_states: torch.Tensor, top_k_index: torch.Tensor, top_k_weights: torch.Tensor) -> torch.Tensor:
    """Runs in place of a module's forward."""
    w1 = _first_weights(module)
    b1 = b2 = None
    if module.has_bias:
        b1 = module.gate_up_proj_bias if getattr(module, "has_gate", True) else module.up_proj_bias
        b2 = module.down_proj_bias
    call = _call_of(module, fields, _bound(hidden_states, max_tokens), top_k_index.shape[-1], w1, cache_weights)
    return call_experts(call, hidden_states, top_k_index, top_k_weights, w1, module.down_proj, b1, b2,
                        is_sharded=is_sharded(module))


def _bound(hidden_states: torch.Tensor, max_tokens: int | None) -> int:
    """Returns max_tokens for a call's layer. Under torch.compile the comparisons become guards."""
    if max_tokens is not None:
        return max_tokens
    tokens = hidden_states.numel() // hidden_states.shape[-1]
    bound = _FEWEST_MAX_TOKENS
    while bound < tokens:
        bound *= 2
    return bound


def _call_of(module: torch.nn.Module, fields: str, max_tokens: int, top_k: int, w1: torch.Tensor,
             cache_weights: bool | None) -> ExpertsCall:
    """Returns the common part of the module's calls, which is kept with the module."""
    if torch.compiler.is_compiling():
        return make_call(module, fields, max_tokens, top_k, w1, cache_weights, module.__dict__.get("_moejit_state"))
    if "_moejit_state" not in module.__dict__:
        module.__dict__["_moejit_state"] = State(w1.device)
    state = module.__dict__["_moejit_state"]
    key = (fields, max_tokens, top_k, cache_weights, _foreign(module))
    call = state.calls.get(key)
    if call is None:
        call = state.calls[key] = make_call(module, fields, max_tokens, top_k, w1, cache_weights, state)
    return call


def _foreign(module: torch.nn.Module) -> str:
    """Returns how the layer treats ids beyond those of this rank's experts: as experts of other ranks, or as errors.

    Before transformers 5.18 a module does not say whether there are such ids.
    """
    return "ignore" if getattr(module, "_is_expert_parallel", True) else "report"


def make_call(module: torch.nn.Module, fields: str, max_tokens: int, top_k: int, w1: torch.Tensor,
              cache_weights: bool | None, state: State | None) -> ExpertsCall:
    """Returns the common part of a module's calls; raises an error if no layer description expresses the module."""
    if getattr(module, "has_post_expert_norm", False):
        raise RuntimeError(f"moejit: unsupported: {type(module).__name__} has a norm behind each expert, which no layer "
                           "description expresses\nhint: leave this model at another experts implementation")
    config = module.config
    keys = (*((key, getattr(config, key)) for key in _FORMULA_KEYS if getattr(config, key, None) is not None),
            *((key, getattr(module, name)) for name, key in _MODULE_NUMBERS
              if isinstance(getattr(module, name, None), (int, float))))
    rows, hidden = (w1.shape[2], w1.shape[1]) if module.is_transposed else (w1.shape[1], w1.shape[2])
    has_gate = getattr(module, "has_gate", True)
    layout = "concat" if module.is_concatenated or not has_gate else "interleaved"
    description = _describe(fields, config.model_type, keys, w1.shape[0], top_k, hidden,
                            rows // 2 if has_gate else rows, bool(module.has_bias), layout, _foreign(module), max_tokens)
    return ExpertsCall(description=description, state=state, cache_weights=cache_weights,
                       is_transposed=bool(module.is_transposed))


@torch.compiler.assume_constant_result
def _describe(fields: str, model_type: str, keys: tuple, experts: int, top_k: int, hidden: int, intermediate: int,
              has_bias: bool, layout: str, foreign: str, max_tokens: int) -> str:
    """Returns the description of a module's layer, as JSON."""
    return _cached_description(fields, model_type, json.dumps(dict(keys)), experts, top_k, hidden, intermediate,
                               has_bias, layout, foreign, max_tokens)


@functools.lru_cache(maxsize=None)
def _cached_description(fields: str, model_type: str, keys: str, experts: int, top_k: int, hidden: int,
                        intermediate: int, has_bias: bool, layout: str, foreign: str, max_tokens: int) -> str:
    figures = {"num_experts": max(experts, top_k), "num_experts_per_tok": top_k, "hidden_size": hidden}
    return json.dumps({
        **json.loads(fields), "activation": _activation(model_type, json.loads(keys), figures, intermediate),
        "experts": max(experts, top_k), "local_experts": experts, "top_k": top_k, "hidden": hidden,
        "intermediate": intermediate, "biases": has_bias, "gate_up_layout": layout, "foreign_experts": foreign,
        "dispatch": "none", "max_tokens": max_tokens, "passes": ["forward", "backward"]})


def _activation(model_type: str, keys: dict[str, Any], figures: dict[str, int],
                intermediate: int) -> str | dict[str, Any]:
    """Returns the activation as the library reads it from a configuration with these keys."""
    limits = keys.get("swiglu_limits")
    if isinstance(limits, list) and len(set(limits)) > 1:
        raise RuntimeError(f"moejit: unsupported: experts of {model_type} have other limits in each decoder layer "
                           f"({limits})\nhint: leave this model at another experts implementation")
    configuration = {"model_type": model_type, **figures, **dict.fromkeys(_WIDTH_KEYS, intermediate), **keys}
    return describe(configuration)["activation"]
