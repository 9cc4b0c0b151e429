# SPDX-License-Identifier: Apache-2.0
"""Experts of Megatron-Core's models on moejit. Importing this module imports megatron.core."""
from __future__ import annotations

import dataclasses
import functools
from typing import Any

try:
    from megatron.core.transformer.spec_utils import ModuleSpec
except ImportError as error:
    raise ImportError(f"moejit.torch.megatron needs megatron-core 0.16 or newer: {error}") from error

from moejit.torch.checks import check_options
from moejit.torch.megatron_experts import GroupedMLP

__all__ = ["GroupedMLP", "convert_spec"]


def convert_spec(spec: Any, recipe: str = "fp8_flow", *, recompute: str = "none", max_tokens: int | None = None,
                 cache_weights: bool | None = None, input: str = "grouped", dispatch: str = "bf16") -> Any:
    """Returns a spec whose experts run on moejit. The given one, its routers, dispatchers and shared experts stay.

    Args:
        spec: The spec of a transformer layer or block of Megatron-Core, or anything that holds such specs: lists,
            dicts, dataclasses, and partial functions.
        recipe: "fp8_flow", "bf16", ...
        recompute: "none" or "moe_expert".
        max_tokens: The largest number of rows of a call. None: for each call the smallest power of two, from 256 on,
            that it does not exceed; each such size is a layer of its own.
        cache_weights: As for moejit.torch.Experts.
        input: What experts get: "grouped", rows in the order of experts, or "tokens" with the ids of their experts, as
            DeepEP and all-gather bring them. Then nothing else permutes, pads or makes maps.
        dispatch: What travels to the experts over all-to-all or DeepEP, tokens and gradients of results: "bf16", or
            "fp8" codes and scales, for recipe "fp8_flow" with cache_weights None. With "fp8" leave `input` out.

    Raises:
        RuntimeError: There is no Mixture-of-Experts layer in the spec, or no experts can run with these arguments. What
            a model's configuration asks for in vain is told when the model is built.

    Example:
        >>> spec = get_gpt_layer_local_spec(num_experts=64)
        >>> model = GPTModel(config, moejit.torch.megatron.convert_spec(spec, recipe="fp8_flow"), ...)
    """
    check_options("convert_spec()", {"recipe": recipe, "recompute": recompute}, max_tokens, cache_weights,
                  keeps_state=True)
    for name, got, wanted in (("input", input, ("grouped", "tokens")), ("dispatch", dispatch, ("bf16", "fp8"))):
        if got not in wanted:
            raise RuntimeError(f"moejit: invalid_value: convert_spec(): {name}: got {got!r}, wanted one of {wanted}")
    if dispatch == "fp8" and (recipe, input, cache_weights) != ("fp8_flow", "grouped", None):
        raise RuntimeError('moejit: unsupported: convert_spec(): dispatch="fp8" goes with recipe="fp8_flow" alone, '
                           "without input and cache_weights\nhint: other recipes quantize rows otherwise, behind the "
                           "dispatcher, and what the experts get follows from the dispatcher")
    options = {"recipe": recipe, "recompute": recompute, "max_tokens": max_tokens, "cache_weights": cache_weights,
               "input": input, "dispatch": dispatch}
    converted = _with_experts(spec, ModuleSpec(module=GroupedMLP, params=options))
    if converted is spec:
        raise RuntimeError("moejit: unsupported: convert_spec(): no Mixture-of-Experts layer in the spec\nhint: make "
                           "it with num_experts, as get_gpt_layer_local_spec(num_experts=64) does")
    return converted


def _with_experts(spec: Any, experts: ModuleSpec) -> Any:
    """Returns a spec with these experts in each Mixture-of-Experts layer; the same object if there is none."""
    if dataclasses.is_dataclass(spec) and not isinstance(spec, type):
        parts = {field.name: getattr(spec, field.name) for field in dataclasses.fields(spec) if field.init}
        if {"experts", "router", "shared_experts"} <= parts.keys():  # MoESubmodules
            return dataclasses.replace(spec, experts=experts)
        changed = _changed(parts, experts)
        return dataclasses.replace(spec, **changed) if changed else spec
    if isinstance(spec, functools.partial):
        changed = _changed(spec.keywords, experts)
        return functools.partial(spec.func, *spec.args, **{**spec.keywords, **changed}) if changed else spec
    if isinstance(spec, dict):
        changed = _changed(spec, experts)
        return {**spec, **changed} if changed else spec
    if type(spec) in (list, tuple):
        changed = _changed(dict(enumerate(spec)), experts)
        return type(spec)(changed.get(index, each) for index, each in enumerate(spec)) if changed else spec
    return spec


def _changed(parts: dict, experts: ModuleSpec) -> dict:
    """Returns the parts that _with_experts() changes."""
    converted = {name: _with_experts(part, experts) for name, part in parts.items()}
    return {name: part for name, part in converted.items() if part is not parts[name]}
