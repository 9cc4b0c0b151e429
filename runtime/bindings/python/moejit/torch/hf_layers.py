# SPDX-License-Identifier: Apache-2.0
"""The layer descriptions of experts of transformers' models.

moejit layer --for torch has the same rules for a model's configuration (cli/commands/torch_layers.cpp).
"""
from __future__ import annotations

import functools
import json
from typing import Any

import torch

from moejit.describe import describe
from moejit.torch.hf_fp8 import check_formula, has_codes, is_packed
from moejit.torch.state import ExpertsCall, State

# Keys of configurations that change the formula of experts in some family.
_FORMULA_KEYS = ("hidden_act", "hidden_activation", "activation_function", "mlp_hidden_act", "dense_act_fn",
                 "ffn_act_fn", "swiglu_limit", "swiglu_limits", "swiglu_alpha", "mlp_gate_softcap", "mlp_up_softcap")
# Attributes of modules, and the keys that they stand for. A module computes with its own number, so that one wins.
_MODULE_NUMBERS = (("alpha", "swiglu_alpha"), ("limit", "swiglu_limit"))
_WIDTH_KEYS = ("moe_intermediate_size", "intermediate_size", "expert_ffn_hidden_size", "ffn_hidden_size", "d_ff",
               "encoder_ffn_dim")
_ROUTING_KEYS = ("num_experts_per_tok", "num_experts_per_token", "moe_topk", "moe_top_k", "moe_k", "top_k_experts",
                 "num_selected_experts", "experts_per_token")


def top_k_of(module: torch.nn.Module) -> int | None:
    """Returns K by the configuration of a module; None if it does not say."""
    given = (getattr(module.config, key, None) for key in _ROUTING_KEYS)
    return next((value for value in given if isinstance(value, int)), None)


def first_weights(module: torch.nn.Module) -> torch.Tensor:
    """Returns the weights of gate and up, or of up alone."""
    return module.gate_up_proj if getattr(module, "has_gate", True) else module.up_proj


def foreign_of(module: torch.nn.Module) -> str:
    """Returns how the layer treats ids beyond this rank's experts: as experts of other ranks, or as errors.

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
    if is_packed(module):
        rows, hidden = 2 * module.intermediate_size, module.hidden_size
    layout = "concat" if module.is_concatenated or not has_gate else "interleaved"
    description = _describe(fields, config.model_type, keys, w1.shape[0], top_k, hidden,
                            rows // 2 if has_gate else rows, bool(module.has_bias), layout, foreign_of(module), max_tokens)
    if has_codes(module):
        check_formula(module, description)
    return ExpertsCall(description=description, state=state, cache_weights=cache_weights,
                       is_transposed=bool(module.is_transposed))


def describe_before_calls(module: torch.nn.Module, fields: str, max_tokens: int) -> str:
    """Returns the description of a module's layer as calls of so many tokens have it, if the configuration tells K."""
    return make_call(module, fields, max_tokens, top_k_of(module) or 1, first_weights(module), None, None).description


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
