# SPDX-License-Identifier: Apache-2.0
"""The layer descriptions of experts of Megatron-Core's configurations, and what of these is refused."""
from __future__ import annotations

from typing import Any, NoReturn

import torch
from torch.nn import functional as F

from megatron.core import activations
from megatron.core.fusions import fused_bias_geglu

# Functions of activation_func by their names in formulas. quick_gelu exists twice.
_FUNCTIONS = {F.silu: "silu", F.gelu: "gelu", F.relu: "relu", torch.sigmoid: "sigmoid",
              activations.quick_gelu: "quick_gelu", fused_bias_geglu.quick_gelu: "quick_gelu",
              activations.fast_gelu: "gelu_tanh", activations.squared_relu: "squared_relu"}
_PRESETS = {"silu": "swiglu", "gelu": "geglu", "quick_gelu": "quick_geglu"}
_ALPHAS = {"silu": 1.0, "quick_gelu": 1.702}  # of clamped_swiglu

# Fields of configurations that would change what is computed or where; (field, value that is fine, what to do).
_REFUSED = (
    ("moe_apply_probs_on_input", False, "leave it out: the experts' results are multiplied by the probabilities"),
    ("moe_mlp_glu_interleave_size", None, "leave it out: weights are in the checkpoints' order, gate and then up"),
    ("use_transformer_engine_op_fuser", False, "leave it out: moejit fuses the activation itself"),
    ("moe_paged_stash", False, "leave it out: it is for experts of Transformer Engine"),
    ("moe_ncclep_zero_copy", False, "leave it out: experts write results to memory of their own"),
    ("moe_dispatch_fwd_dtype", "bf16", "dispatch in bf16: the recipe quantizes rows behind the dispatcher"),
    ("moe_combine_bwd_dtype", "bf16", "take gradients in bf16: the recipe quantizes them behind the dispatcher"),
    ("fp8_param", False, "keep parameters in bf16: the recipe quantizes them in each step"),
    ("fp4_param", False, "keep parameters in bf16: the recipe quantizes them in each step"),
    ("expert_gtp_weight_remat_size", 1, "set it to 1: each rank keeps whole experts"))
_OFFLOADED = ("expert_fc1", "moe_act", "fused_group_mlp")


def refuse(what: str, got: object, wanted: object, hint: str) -> NoReturn:
    """Raises the error for a configuration that experts cannot run with."""
    raise RuntimeError(f"moejit: unsupported: experts of Megatron: {what}: got {got}, wanted {wanted}\nhint: {hint}")


def check_config(config: Any, tensor_parallel_size: int) -> None:
    """Raises an error if a configuration asks for what experts of moejit cannot do.

    Args:
        config: A TransformerConfig. Releases of Megatron-Core have different fields.
        tensor_parallel_size: The number of ranks that share each expert.
    """
    if tensor_parallel_size != 1:
        refuse("expert_tensor_parallel_size", tensor_parallel_size, 1,
               "set expert_tensor_parallel_size=1, which is not the default with tensor_model_parallel_size > 1; "
               "expert_model_parallel_size spreads the experts")
    if config.params_dtype != torch.bfloat16:
        refuse("params_dtype", str(config.params_dtype).removeprefix("torch."), "bfloat16",
               "set params_dtype=torch.bfloat16 and bf16=True (--bf16)")
    for field, fine, hint in _REFUSED:
        got = getattr(config, field, fine)
        if got != fine and not (got is None and not fine):
            refuse(field, got, fine, hint)
    if getattr(config, "transformer_impl", None) == "inference_optimized":
        refuse("transformer_impl", "inference_optimized", "transformer_engine or local",
               "convert the specs of training; docs/pytorch.md has the doors of serving libraries")
    if "moe_expert" in (getattr(config, "recompute_modules", None) or ()):
        refuse("recompute_modules", "moe_expert", "modules that Megatron knows",
               'give the recomputation as an option: convert_spec(spec, recompute="moe_expert")')
    offloaded = [module for module in getattr(config, "offload_modules", None) or () if module in _OFFLOADED]
    if getattr(config, "fine_grained_activation_offloading", False) and offloaded:
        refuse("offload_modules", offloaded, "modules outside of the experts",
               'leave them out; convert_spec(spec, recompute="moe_expert") takes less memory, too')


def activation_of(config: Any) -> str | dict[str, Any]:
    """Returns the activation of a configuration as descriptions have it; raises an error if there is none."""
    name = _FUNCTIONS.get(config.activation_func)
    if name is None:
        refuse("activation_func", getattr(config.activation_func, "__name__", config.activation_func),
               f"one of {', '.join(sorted(set(_FUNCTIONS.values())))}",
               "take one of these, or leave the experts to Megatron")
    if not config.gated_linear_unit:
        return "relu_squared" if name == "squared_relu" else {"expression": f"{name}(up)"}
    limit = getattr(config, "activation_func_clamp_value", None)
    offset = getattr(config, "glu_linear_offset", 0.0) or 0.0
    if limit is None and not offset and name in _PRESETS:
        return _PRESETS[name]
    if limit is not None and name in _ALPHAS:
        return {"preset": "clamped_swiglu", "limit": float(limit), "alpha": _ALPHAS[name], "offset": float(offset)}
    gate, up = ("gate", "up") if limit is None else (f"min(gate, {limit})", f"clamp(up, -{limit}, {limit})")
    value = f"relu({gate}) * relu({gate})" if name == "squared_relu" else f"{name}({gate})"
    return {"expression": f"{value} * ({up} + {offset})"}


def hidden_of(config: Any) -> int:
    """Returns the length of the rows that experts get."""
    return getattr(config, "moe_latent_size", None) or config.hidden_size


def fields_of(config: Any, num_local_experts: int, recipe: str, recompute: str, top_k: int,
              dispatch: str) -> dict[str, Any]:
    """Returns the fields of the description of a configuration's layer.

    Args:
        config: A TransformerConfig.
        num_local_experts: The number of this rank's experts.
        recipe, recompute, dispatch: As for convert_spec().
        top_k: The number of choices of a token; 0: rows come in the order of experts.
    """
    of_input = {"top_k": top_k, "foreign_experts": "ignore"} if top_k else {"input": "grouped"}
    of_dispatch = {"dispatch": "fp8", "dispatch_calls": True} if dispatch == "fp8" else {}
    return {"experts": num_local_experts, "hidden": hidden_of(config), "intermediate": config.moe_ffn_hidden_size,
            "recipe": recipe, "activation": activation_of(config), "biases": bool(config.add_bias_linear),
            "recompute": recompute, "passes": ["forward", "backward"], **of_input, **of_dispatch}
