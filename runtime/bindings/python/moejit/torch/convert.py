# SPDX-License-Identifier: Apache-2.0
"""Converts models: the experts of transformers' models then run on moejit, module by module."""
from __future__ import annotations

import copy
import json
from typing import Callable

import torch

from moejit.layer import Layer
from moejit.torch import hf
from moejit.torch.devices import target_of
from moejit.torch.experts import Experts, splits_alignment_of
from moejit.torch.layers import call_text

_FLAGS = ("has_gate", "has_bias", "is_transposed", "is_concatenated")
_ROUTING_KEYS = ("num_experts_per_tok", "num_experts_per_token", "moe_topk", "moe_top_k", "moe_k", "top_k_experts",
                 "num_selected_experts", "experts_per_token")
_PREFIX = "moejit:"
_TOKENS_OF_PLANS = 4096


def convert(model: torch.nn.Module, recipe: str | None = "fp8_flow", *,
            filter_fn: Callable[[torch.nn.Module, str], bool] | None = None, max_tokens: int | None = None,
            recompute: str = "none", cache_weights: bool | None = None,
            splits_alignment: int | None = None) -> torch.nn.Module:
    """Makes experts of a transformers model run on moejit; each module may get another recipe.

    Neither parameters nor the state dict change. Only a module's reference to its configuration is replaced, by a copy
    that names moejit as the implementation. A second conversion replaces the first. Modules that are not converted run
    as before; `model.set_experts_implementation()` affects only them.

    Args:
        model: A model of transformers 5, or any module that contains such models. Its parameters may be on the device
            "meta".
        recipe: "fp8_flow", "bf16", ...; None: gives the modules back their earlier implementation.
        filter_fn: Gets each module of experts and its name in `model`; returns whether to convert it. None: all.
        max_tokens, recompute, cache_weights, splits_alignment: As for moejit.torch.register_hf().

    Returns:
        `model` itself. moejit.torch.explain(model) says what was done.

    Raises:
        RuntimeError: There are no experts to convert, or those of a module cannot run; the sentence has the module's
            name and the reason. No module is changed then.

    Example:
        >>> model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen3-30B-A3B", dtype=torch.bfloat16)
        >>> moejit.torch.convert(model, "fp8_flow", filter_fn=lambda module, name: "layers.0." not in name)
    """
    chosen = {name: module for name, module in model.named_modules()
              if _is_convertible(module) and (filter_fn is None or filter_fn(module, name))}
    if recipe is None:
        for module in chosen.values():
            _revert(module)
        return model
    if not chosen:
        raise RuntimeError(f"moejit: unsupported: {type(model).__name__} has no experts to convert{_but(model)}\nhint: "
                           "modules are converted whose class has transformers' @use_experts_implementation, and which "
                           "filter_fn chooses")
    fields = {"recipe": recipe, "recompute": recompute,
              "splits_alignment": splits_alignment or splits_alignment_of(recipe)}
    implementation = _name(json.dumps(fields), max_tokens, cache_weights)
    for name, module in chosen.items():
        _check(name, module, json.dumps(fields), max_tokens)
    _register(implementation)
    for module in chosen.values():
        _revert(module)
        module.__dict__["_moejit_original_config"] = _Original(module.config, implementation)
        module.config = copy.copy(module.config)
        module.config._experts_implementation_internal = implementation
    return model


def explain(model: torch.nn.Module, plans: bool = False) -> str:
    """Returns text that says which modules of a model run on moejit, and how.

    Args:
        model: A model with converted modules or with moejit.torch.Experts.
        plans: Whether to add the plan of each different layer, with the reasons for its choices.
    """
    lines, layers = [], {}
    for name, module in model.named_modules():
        found = description_of(module)
        if found is None:
            if _is_convertible(module):
                lines.append(f"{name or '(model)'}: {type(module).__name__}, not converted, runs as "
                             f"{module.config._experts_implementation or 'eager'}")
            continue
        fields = json.loads(found[0])
        experts = fields.get("local_experts", fields["experts"])
        lines.append(f"{name or '(model)'}: {type(module).__name__}, {experts} experts, hidden {fields['hidden']}, "
                     f"intermediate {fields['intermediate']}, recipe {fields['recipe']}")
        layers.setdefault((found[0], target_of(module.down_proj.device)), module)
    if plans:
        lines += [module.explain() if isinstance(module, Experts) else Layer(description, target).explain()
                  for (description, target), module in layers.items()]
    return "\n".join(lines) + "\n" if lines else "no module runs on moejit\n"


def description_of(module: torch.nn.Module) -> tuple[str, bool] | None:
    """Returns the layer description of a module's experts, as JSON, and whether its weights are transposed.

    If `max_tokens` and `top_k` are unknown before calls, the description has stand-ins, which weights do not depend on.
    None: the module does not run on moejit.
    """
    if isinstance(module, Experts):
        return module.description, False
    original = module.__dict__.get("_moejit_original_config")
    if original is None:
        return None
    fields, max_tokens, _ = json.loads(original.implementation[len(_PREFIX):])
    return _description(module, fields, max_tokens), bool(module.is_transposed)


class _Original:
    """The configuration that a converted module had, and its new implementation.

    A copy of it, even one that is unpickled in another process, registers the implementation there.
    """

    def __init__(self, config, implementation: str) -> None:
        self.config = config
        self.implementation = implementation

    def __reduce__(self) -> tuple:
        return _restore, (self.config, self.implementation)


def _restore(config, implementation: str) -> _Original:
    _register(implementation)
    return _Original(config, implementation)


def _is_convertible(module: torch.nn.Module) -> bool:
    return all(hasattr(module, flag) for flag in _FLAGS) and hasattr(module, "config") and hasattr(module, "down_proj")


def _but(model: torch.nn.Module) -> str:
    """Returns text for the error that names modules which look like experts but cannot be converted."""
    like = [name for name, module in model.named_modules()
            if not _is_convertible(module) and {"gate_up_proj", "down_proj"} <= set(module._parameters)]
    return f"; {', '.join(like)} has such parameters, but a class that takes no implementation" if like else ""


def _name(fields: str, max_tokens: int | None, cache_weights: bool | None) -> str:
    """Returns the name of an implementation, which contains all of its options."""
    return _PREFIX + json.dumps([fields, max_tokens, cache_weights])


def _register(name: str) -> None:
    from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS
    ALL_EXPERTS_FUNCTIONS.register(name, hf.implementation(*json.loads(name[len(_PREFIX):])))


def _description(module: torch.nn.Module, fields: str, max_tokens: int | None) -> str:
    w1 = module.gate_up_proj if module.has_gate else module.up_proj
    given = (getattr(module.config, key, None) for key in _ROUTING_KEYS)
    top_k = next((value for value in given if isinstance(value, int)), 1)
    return hf.make_call(module, fields, max_tokens or _TOKENS_OF_PLANS, top_k, w1, None, None).description


def _check(name: str, module: torch.nn.Module, fields: str, max_tokens: int | None) -> None:
    """Raises an error if the layer of a module cannot be planned for the module's device."""
    parameter = module.down_proj
    if parameter.dtype not in (torch.bfloat16, torch.float32):
        raise RuntimeError(f"moejit: unsupported: {name}: its parameters are {parameter.dtype}, wanted bfloat16, or "
                           "float32 under autocast\nhint: call model.bfloat16() first")
    try:
        description = _description(module, fields, max_tokens)
        for gradients in ((), ("dx", "dprobs", "dw1", "dw2")):
            call_text(description, target_of(parameter.device), gradients, "bf16")
    except RuntimeError as error:
        raise RuntimeError(f"moejit: module {name}: {str(error).removeprefix('moejit: ')}") from error


def _revert(module: torch.nn.Module) -> None:
    original = module.__dict__.pop("_moejit_original_config", None)
    if original is not None:
        module.config = original.config
        module.__dict__.pop("_moejit_state", None)
