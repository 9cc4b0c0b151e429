# SPDX-License-Identifier: Apache-2.0
"""Converts models: the experts of transformers' models then run on moejit, module by module."""
from __future__ import annotations

import copy
import functools
import json
from typing import Callable

import torch

from moejit import texts
from moejit.layer import Layer
from moejit.torch import hf, hf_gates, hf_shared
from moejit.torch.checks import check_options
from moejit.torch.devices import target_of
from moejit.torch.experts import Experts
from moejit.torch.hf_fp8 import has_codes, is_packed
from moejit.torch.hf_layers import describe_before_calls
from moejit.torch.hf_models import (check_module, forget_name, looks_like_experts, quantization_of,
                                    takes_implementations, without_experts)

_PREFIX = "moejit:"
_TOKENS_OF_PLANS = 4096


def convert(model: torch.nn.Module, recipe: str | None = "fp8_flow", *,
            filter_fn: Callable[[torch.nn.Module, str], bool] | None = None, max_tokens: int | None = None,
            recompute: str = "none", cache_weights: bool | None = None,
            splits_alignment: int | None = None, gates: bool = False,
            shared: bool = False) -> torch.nn.Module:
    """Makes experts of a transformers model run on moejit; each module may get another recipe. Its routers may, too.

    Neither parameters nor the state dict change. In modules of experts only the reference to the configuration is
    replaced, by a copy that names moejit as the implementation. A router gets a class that is derived from its own, so
    what transformers records of it stays the same. Results stay the same but for roundings; the lower expert wins if
    scores are equal. A second conversion replaces the first. Modules that are not converted run as before;
    `model.set_experts_implementation()` affects only them.

    Args:
        model: A model of transformers 5, or any module that contains such models. Its parameters may be on the device
            "meta".
        recipe: "fp8_flow", "bf16", ...; None: gives the modules back their earlier implementation.
        filter_fn: Gets each module of experts, router or shared expert, and its name in `model`; returns whether to
            convert it. None: all.
        max_tokens, recompute, cache_weights, splits_alignment: As for moejit.torch.register_hf().
        gates: Whether to convert the routers too: scores, choice and probabilities become one kernel (docs/router.md).
        shared: Whether shared experts run in one plan with the others, where they can: docs/moe-block.md. Their weights
            then move behind the experts' weights, into one memory.

    Returns:
        `model` itself. moejit.torch.explain(model) says what was done.

    Raises:
        RuntimeError: There are no experts to convert, or a module cannot run, such as a router of an unknown class; the
            sentence has the module's name and the reason. No module is changed then.

    Example:
        >>> model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen3-30B-A3B", dtype=torch.bfloat16)
        >>> moejit.torch.convert(model, "fp8_flow", filter_fn=lambda module, name: "layers.0." not in name)
    """
    chosen = {name: module for name, module in model.named_modules()
              if takes_implementations(module) and (filter_fn is None or filter_fn(module, name))}
    routers = {name: module for name, module in model.named_modules()
               if hf_gates.is_gate(module) and (filter_fn is None or filter_fn(module, name))}
    if recipe is None:
        for module in routers.values():
            hf_gates.revert_gate(module)
        for name, module in chosen.items():
            hf_shared.revert_shared(model, name, module)
            _revert(module)
            forget_name(module)
        return model
    if not chosen:
        raise RuntimeError(f"moejit: unsupported: {type(model).__name__} has no experts to convert"
                           f"{without_experts(model)}\nhint: modules are converted whose class has transformers' "
                           "@use_experts_implementation, and which filter_fn chooses")
    fields = hf.fields_of(recipe, recompute, splits_alignment)
    check_options("convert()", fields, max_tokens, cache_weights)
    implementation = _name(json.dumps(fields), max_tokens, cache_weights)
    for name, module in chosen.items():
        check_module(name, module, json.dumps(fields), max_tokens, getattr(model, "config", module.config))
    changes = hf_gates.changes_of(model, routers, chosen, filter_fn) if gates else []
    if shared:
        changes += hf_shared.changes_of(model, chosen, (json.dumps(fields), max_tokens, cache_weights), filter_fn)
    _register(implementation)
    for name, module in chosen.items():
        hf_shared.revert_shared(model, name, module)
        _revert(module)
    for change in changes:
        change()
    for module in chosen.values():
        module.__dict__["_moejit_original_config"] = _Original(module.config, implementation)
        module.config = copy.copy(module.config)
        module.config._experts_implementation_internal = implementation
    return model


def explain(model: torch.nn.Module, plans: bool = False) -> str:
    """Returns text that says which modules of a model run on moejit, and how.

    Args:
        model: A model with moejit.torch.Experts, with converted modules, or with an implementation of register_hf() set.
        plans: Whether to add the plan of each different layer that calls have had so far, with the reasons for its
            choices. moejit.torch.Experts have one from the start.
    """
    lines, layers, has_experts = [], {}, False
    for name, module in model.named_modules():
        options = None if isinstance(module, Experts) else hf.options_of(module)
        is_known = takes_implementations(module) or looks_like_experts(module)
        quantized = quantization_of(module) if is_known and not has_codes(module) else None
        if isinstance(module, Experts):
            layers.setdefault((module.description, target_of(module.down_proj.device)), module.explain)
            lines.append(_line(name, module, module.description))
        elif quantized is not None:
            lines.append(f"{name or '(model)'}: {type(module).__name__}, not on moejit: its {quantized}")
        elif options is not None:
            options = hf.options_of_calls(module)
            description = describe_before_calls(module, options[0], options[1] or _TOKENS_OF_PLANS)
            kind = "packed" if is_packed(module) else "FP8"
            lines.append(_line(name, module, description) + (f", on its {kind} weights" if has_codes(module) else ""))
            lines += hf_shared.explain_shared(module)
            layers.update(_plans_of_calls(module))
        elif isinstance(module, hf_gates.MoejitGate):
            lines.append(f"{name or '(model)'}: {type(module).__name__}, runs on moejit, {hf_gates.explain_gate(module)}")
        elif takes_implementations(module):
            implementation = module.config._experts_implementation or "eager"
            lines.append(f"{name or '(model)'}: {type(module).__name__}, not on moejit: runs as {implementation}")
        else:
            continue
        has_experts = True
    if not has_experts:
        return "no module runs on moejit\n"
    if plans:
        lines += [explain_plan() for explain_plan in layers.values()]
        if not layers:
            lines.append("no plans yet: the first call of each size and kind plans its layer")
    return "\n".join(lines) + "\n"


def _line(name: str, module: torch.nn.Module, description: str) -> str:
    fields = json.loads(description)
    experts = fields.get("local_experts", fields["experts"])
    return (f"{name or '(model)'}: {type(module).__name__}, {experts} experts, hidden {fields['hidden']}, intermediate "
            f"{fields['intermediate']}, runs on moejit, recipe {fields['recipe']}")


def _plans_of_calls(module: torch.nn.Module) -> dict[str, Callable[[], str]]:
    """Returns a function for each layer that calls of a module have run, by the layer's text; it explains the layer."""
    state = module.__dict__.get("_moejit_state")
    return {} if state is None else {text: functools.partial(_explain_text, text)
                                     for call in state.calls.values() for text in call.layers.values()}


def _explain_text(text: str) -> str:
    layer = texts.read(text)
    with Layer(layer.json, layer.target) as planned:
        return planned.explain()


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
    return describe_before_calls(module, fields, max_tokens or _TOKENS_OF_PLANS), bool(module.is_transposed)


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


def _name(fields: str, max_tokens: int | None, cache_weights: bool | None) -> str:
    """Returns the name of an implementation, which contains all of its options."""
    return _PREFIX + json.dumps([fields, max_tokens, cache_weights])


def _register(name: str) -> None:
    hf.register(name, *json.loads(name[len(_PREFIX):]))


def _revert(module: torch.nn.Module) -> None:
    original = module.__dict__.pop("_moejit_original_config", None)
    if original is not None:
        module.config = original.config
        module.__dict__.pop("_moejit_state", None)
