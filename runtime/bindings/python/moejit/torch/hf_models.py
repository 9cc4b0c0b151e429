# SPDX-License-Identifier: Apache-2.0
"""Checks of transformers' models before their first call: which modules can run on moejit, and why others cannot."""
from __future__ import annotations

import functools
import json
from collections.abc import Callable
from typing import Any

import torch

from moejit.torch.checks import MODULE_NAME, name_of
from moejit.torch.devices import target_of
from moejit.torch.hf_fp8 import has_codes, is_packed, packed_format, weights_of
from moejit.torch.hf_layers import describe_before_calls
from moejit.torch.layers import FEWEST_MAX_TOKENS, call_text, with_format_of

_FLAGS = ("has_gate", "has_bias", "is_transposed", "is_concatenated")
_WEIGHTS = ("gate_up_proj", "up_proj", "down_proj")


def takes_implementations(module: torch.nn.Module) -> bool:
    """Returns whether a module of experts has transformers' interface for implementations."""
    return all(hasattr(module, flag) for flag in _FLAGS) and hasattr(module, "config") and (
        # A class that has it computes it, such as a parametrization: hasattr() of the module would run that.
        hasattr(type(module), "down_proj") or hasattr(module, "down_proj"))


def looks_like_experts(module: torch.nn.Module) -> bool:
    """Returns whether a module has the parameters of experts, whatever its class takes."""
    return "down_proj" in module._parameters and not {"gate_up_proj", "up_proj"}.isdisjoint(module._parameters)


def quantization_of(module: torch.nn.Module) -> str | None:
    """Returns what is quantized in a module of experts, in words for errors; None: its weights are plain."""
    for name in _WEIGHTS:
        weight = module._parameters.get(name)
        if weight is None:
            continue
        package = type(weight).__module__.partition(".")[0]
        if package not in ("torch", "moejit") and not issubclass(type(weight), torch.nn.Parameter):
            return f"{name} is a {type(weight).__name__} of {package}"
        if not weight.dtype.is_floating_point or weight.dtype.itemsize < 2:
            return f"{name} is {name_of(weight.dtype)}"
        if isinstance(getattr(module, name + "_scale_inv", None), torch.Tensor):
            return f"{name} has scales, {name}_scale_inv"
    return None


def forget_name(module: torch.nn.Module) -> None:
    module.__dict__.pop(MODULE_NAME, None)


def quantized_error(name: str, module: torch.nn.Module, config: Any) -> RuntimeError:
    """Returns the error for experts whose weights are quantized. `config` is the model's configuration."""
    own = getattr(config, "quantization_config", None)
    hint = "load the model without quantization, with weights in bfloat16"
    if type(own).__name__ == "Mxfp4Config":
        hint = ('load it with from_pretrained(..., dtype=torch.bfloat16, experts_implementation="moejit") behind '
                "moejit.torch.register_hf(), which makes FP8 codes of its weights")
    elif hasattr(own, "dequantize"):
        hint = (f"load it with from_pretrained(..., dtype=torch.bfloat16, quantization_config=transformers."
                f"{type(own).__name__}(dequantize=True)), which multiplies the scales in; model.bfloat16() would drop them")
    kind = type(module).__name__
    what = name if name == kind else f"{name} ({kind})"
    return RuntimeError(f"moejit: unsupported: {what}: its {quantization_of(module)}; moejit takes bfloat16 weights and "
                        f"quantizes them itself\nhint: {hint}")


def check_module(name: str, module: torch.nn.Module, fields: str, max_tokens: int | None, config: Any) -> None:
    """Raises an error if a module of experts cannot run on its device; else remembers its name for later errors."""
    has_fp8 = has_codes(module)
    if not has_fp8 and quantization_of(module) is not None:
        raise quantized_error(name, module, config)
    parameter = module.down_proj
    if not has_fp8 and parameter.dtype not in (torch.bfloat16, torch.float32):
        raise RuntimeError(f"moejit: unsupported: {name}.down_proj is {name_of(parameter.dtype)}; moejit computes in "
                           "bfloat16\nhint: load the model with dtype=torch.bfloat16, or call model.to(torch.bfloat16) "
                           "first; float32 runs under autocast")
    module.__dict__[MODULE_NAME] = name
    weights = weights_of(module) if has_fp8 else None
    if parameter.dim() != 3 and not is_packed(module):
        return  # its elements are elsewhere until the call, as with DeepSpeed's ZeRO-3
    try:
        description = describe_before_calls(module, fields, max_tokens or FEWEST_MAX_TOKENS)
        if weights is not None:
            weights.check_recipe(json.loads(fields)["recipe"])
            if parameter.device.type != "meta":
                weights.check_values()
        description = with_format_of(description, packed_format(module))
        trained = ("dx", "dprobs") if has_fp8 else ("dx", "dprobs", "dw1", "dw2")
        for gradients in ((),) if is_packed(module) else ((), trained):
            call_text(description, target_of(parameter.device), gradients, "bf16")
    except RuntimeError as error:
        raise RuntimeError(f"moejit: module {name}: {str(error).removeprefix('moejit: ')}") from error


def without_experts(model: torch.nn.Module) -> str:
    """Returns text for the error that names modules which look like experts but take no implementation."""
    like = {name: module for name, module in model.named_modules()
            if looks_like_experts(module) and not takes_implementations(module)}
    if not like:
        return ""
    name, module = next(iter(like.items()))
    quantized = quantization_of(module)
    if quantized is not None:
        raise quantized_error(name, module, getattr(model, "config", None))
    return f"; {', '.join(like)} has such parameters, but a class that takes no implementation"


def check_model(model: torch.nn.Module, options_of: Callable[[torch.nn.Module], tuple | None]) -> None:
    """Raises an error unless all modules that were told to run on moejit can, and there is one.

    Args:
        model: The model, whose configurations name implementations.
        options_of: Returns the options of a module that was told to run on moejit: fields, max_tokens, ...
    """
    told = {name: (module, options_of(module)) for name, module in model.named_modules() if takes_implementations(module)}
    chosen = {name: both for name, both in told.items() if both[1] is not None}
    if not chosen:
        raise RuntimeError(f"moejit: unsupported: {type(model).__name__} has no experts that could run on moejit"
                           f"{without_experts(model)}\nhint: modules run on moejit whose class has transformers' "
                           "@use_experts_implementation; leave other models at their own experts")
    for name, (module, (fields, max_tokens, _)) in chosen.items():
        check_module(name, module, fields, max_tokens, getattr(model, "config", None))


def check_when_set(options_of: Callable[[torch.nn.Module], tuple | None], is_ours: Callable[[str], bool]) -> None:
    """Makes `set_experts_implementation()` of transformers' models call check_model() for implementations of moejit.

    transformers asks an implementation nothing before the first call, and runs other experts in silence where it can
    set none. If the check fails, the model keeps the implementation that it had.
    """
    from transformers import PreTrainedModel
    original = PreTrainedModel.set_experts_implementation
    if hasattr(original, "_moejit_original"):
        return

    @functools.wraps(original)
    def set_experts_implementation(self, experts_implementation):
        configs = {id(module.config): module.config for module in self.modules() if hasattr(module, "config")}
        before = [(config, getattr(config, "_experts_implementation_internal", None)) for config in configs.values()]
        result = original(self, experts_implementation)
        names = experts_implementation.values() if isinstance(experts_implementation, dict) else (experts_implementation,)
        if any(is_ours(name) for name in names):
            try:
                check_model(self, options_of)
            except Exception:
                for config, name in before:
                    if name is not None:
                        config._experts_implementation_internal = name
                raise
        return result

    set_experts_implementation._moejit_original = original
    PreTrainedModel.set_experts_implementation = set_experts_implementation
