# SPDX-License-Identifier: Apache-2.0
"""Experts with the signature of FlashInfer's `cutlass_fused_moe`, for programs that call it with bf16 or FP8 weights."""
from __future__ import annotations

import enum

import torch
from torch.utils.weak import WeakTensorKeyDictionary

from moejit.torch import serving
from moejit.torch.fp8_weights import FP8Weights

_NAME = "cutlass_fused_moe"
# FlashInfer's weights have the rows of up before the rows of gate, so a description calls its up "gate".
_GATED = {"Swiglu": "silu(up) * gate", "SwigluBias": "silu(up) * gate", "Geglu": "gelu(up) * gate"}
_PLAIN = {"Gelu": "gelu(up)", "Relu": "relu(up)", "Silu": "silu(up)", "Relu2": "relu(up) * relu(up)"}
# Names by the numbers of FlashInfer's ActivationType; versions differ in larger numbers.
_NAMES = ("Gelu", "Relu", "Silu", "Swiglu", "Geglu", "SwigluBias", "Relu2")

_numbers = WeakTensorKeyDictionary()


def cutlass_fused_moe(
        input: torch.Tensor, token_selected_experts: torch.Tensor, token_final_scales: torch.Tensor,
        fc1_expert_weights: torch.Tensor, fc2_expert_weights: torch.Tensor, output_dtype: torch.dtype,
        quant_scales: list[torch.Tensor] | None, fc1_expert_biases: torch.Tensor | None = None,
        fc2_expert_biases: torch.Tensor | None = None, input_sf: torch.Tensor | None = None,
        swiglu_alpha: torch.Tensor | None = None, swiglu_beta: torch.Tensor | None = None,
        swiglu_limit: torch.Tensor | None = None, tp_size: int = 1, tp_rank: int = 0, ep_size: int = 1,
        ep_rank: int = 0, cluster_size: int = 1, cluster_rank: int = 0, output: torch.Tensor | None = None,
        enable_alltoall: bool = False, use_deepseek_fp8_block_scale: bool = False, use_w4_group_scaling: bool = False,
        use_mxfp8_act_scaling: bool = False, min_latency_mode: bool = False, use_packed_weights: bool = False,
        use_wfp4afp8_humming: bool = False, tune_max_num_tokens: int = 8192, enable_pdl: bool | None = None,
        activation_type: enum.IntEnum | int = 3, swizzled_input_sf: bool = True, use_fused_finalize: bool = True,
        profile_ids: list[int] | None = None, workspace_buffer: torch.Tensor | None = None, *,
        recipe: str | None = None) -> list[torch.Tensor]:
    """Computes the experts of a layer, forward only. The recipe quantizes tokens, and weights unless they are FP8.

    Some arguments choose among FlashInfer's kernels and change no result; they have no effect: `tune_max_num_tokens`,
    `enable_pdl`, `swizzled_input_sf` and `use_fused_finalize`.

    Args:
        input: [T, H] bf16.
        token_selected_experts: [T, K] int32 or int64: experts of all ranks; those of other ranks add nothing.
        token_final_scales: [T, K] float32.
        fc1_expert_weights: [E, 2I, H] bf16: up, then gate; [E, I, H] if `activation_type` has no gate. Or float8_e4m3fn
            with `use_deepseek_fp8_block_scale`, read where it is. Or the mxfp4_weights() of both, of which up comes first.
        fc2_expert_weights: [E, H, I], as fc1_expert_weights; None with mxfp4_weights().
        output_dtype: torch.bfloat16.
        quant_scales: None or empty. With `use_deepseek_fp8_block_scale` the scales of both weights, as of
            moejit.torch.fp8_weights(): [E, 2 ceil(I/128), ceil(H/128)] and [E, ceil(H/128), ceil(I/128)] float32.
        fc1_expert_biases: [E, 2I] or [E, I] bf16.
        fc2_expert_biases: [E, H] bf16.
        swiglu_alpha, swiglu_beta, swiglu_limit: [E] float32 with the same number for each expert. The first call with
            such tensors reads them, which waits for the device.
        tp_size, tp_rank: The weights and the result are this rank's parts; with biases tp_size must be 1.
        ep_size, ep_rank: The weights belong to the experts from E * ep_rank on.
        output: [T, H] bf16; gets a copy of the result.
        activation_type: FlashInfer's ActivationType, or its number.
        recipe: Recipe of the layer: "fp8_flow", "bf16", ...; None: as of serving.run().

    Returns:
        A list whose first element is the result: [T, H] bf16.

    Raises:
        RuntimeError: The library cannot do what an argument asks for; the sentence says which argument.
    """
    serving.refuse_unless(_NAME, {
        "output_dtype": (output_dtype, torch.bfloat16), "input_sf": (input_sf, None),
        "cluster_size": (cluster_size, 1), "cluster_rank": (cluster_rank, 0),
        "enable_alltoall": (enable_alltoall, False), "min_latency_mode": (min_latency_mode, False),
        "profile_ids": (profile_ids, None)})
    scales = list(quant_scales or [])
    if use_deepseek_fp8_block_scale and len(scales) != 2:
        serving.refuse(_NAME, "quant_scales", scales, "a list of 2, the scales of both weights")
    serving.refuse_unless(_NAME, {
        "quant_scales": (scales if not use_deepseek_fp8_block_scale else [], []),
        "use_w4_group_scaling": (use_w4_group_scaling, False),
        "use_mxfp8_act_scaling": (use_mxfp8_act_scaling, False), "use_packed_weights": (use_packed_weights, False),
        "use_wfp4afp8_humming": (use_wfp4afp8_humming, False)},
        "give bf16 weights, or FP8 weights with use_deepseek_fp8_block_scale")
    serving.refuse_unless(_NAME, {"workspace_buffer": (workspace_buffer, None)},
                          "the workspace comes from PyTorch's allocator")
    if not 0 <= tp_rank < tp_size or not 0 <= ep_rank < ep_size:
        serving.refuse(_NAME, "tp_rank or ep_rank", f"{tp_rank} of {tp_size}, {ep_rank} of {ep_size}",
                       "ranks below their sizes")
    if tp_size > 1 and fc2_expert_biases is not None:
        serving.refuse(_NAME, "tp_size", f"{tp_size} with biases", "1",
                       "each rank would add fc2_expert_biases to its part of the sum")
    name = activation_type.name if isinstance(activation_type, enum.Enum) else _name_of(activation_type)
    activation = _activation(name, swiglu_alpha, swiglu_beta, swiglu_limit)
    experts = fc1_expert_weights.experts if isinstance(fc1_expert_weights, FP8Weights) else fc1_expert_weights.shape[0]
    ids = token_selected_experts
    if ep_size > 1:
        ids = serving.local_ids(ids, experts * ep_rank, experts)
    w1, w2 = fc1_expert_weights, fc2_expert_weights
    if use_deepseek_fp8_block_scale:
        w1, w2 = serving.codes(_NAME, w1, w2, *scales, [128, 128]), None
    y = serving.run(input, ids, token_final_scales, w1, w2, fc1_expert_biases, fc2_expert_biases,
                    activation={"expression": activation}, recipe=recipe)
    return [y if output is None else _written(output, y)]


def _written(output: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    if output.shape != y.shape or output.dtype != y.dtype or output.device != y.device:
        serving.refuse(_NAME, "output", f"{list(output.shape)} {output.dtype} on {output.device}",
                       f"{list(y.shape)} {y.dtype} on {y.device}")
    return output.copy_(y)


def _name_of(number: int) -> str:
    return _NAMES[number] if 0 <= number < len(_NAMES) else str(number)


def _activation(name: str, alpha: torch.Tensor | None, beta: torch.Tensor | None, limit: torch.Tensor | None) -> str:
    """Returns the formula of an activation with the given numbers."""
    given = {"swiglu_alpha": alpha, "swiglu_beta": beta, "swiglu_limit": limit}
    if name not in _GATED and name not in _PLAIN:
        serving.refuse(_NAME, "activation_type", name, f"one of {', '.join((*_GATED, *_PLAIN))}")
    numbers = {argument: _number(argument, tensor) for argument, tensor in given.items() if tensor is not None}
    if not numbers:
        return _GATED.get(name) or _PLAIN[name]
    if name not in ("Swiglu", "SwigluBias"):
        serving.refuse(_NAME, next(iter(numbers)), "a tensor", f"None, since {name} has no such number")
    gate, up = "up", "gate"
    if "swiglu_limit" in numbers:
        bound = repr(numbers["swiglu_limit"])
        gate, up = f"min({gate}, {bound})", f"clamp({up}, -{bound}, {bound})"
    return (f"{gate} * sigmoid({numbers.get('swiglu_alpha', 1.0)!r} * {gate}) * "
            f"({up} + {numbers.get('swiglu_beta', 0.0)!r})")


def _number(argument: str, tensor: torch.Tensor) -> float:
    """Returns the number that all elements share."""
    version = 0 if tensor.is_inference() else tensor._version
    known, values = _numbers.get(tensor, (None, []))
    if known != version:
        values = sorted(set(tensor.float().flatten().tolist()))
        _numbers[tensor] = (version, values)
    if len(values) != 1:
        serving.refuse(_NAME, argument, f"{len(values)} different numbers", "the same number for each expert")
    return values[0]
