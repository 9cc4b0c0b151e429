# SPDX-License-Identifier: Apache-2.0
"""Experts with the signature of SGLang's `fused_experts`, for layers with bf16 or FP8 weights."""
from __future__ import annotations

from typing import Any

import torch

from moejit.torch import serving

_NAME = "fused_experts"
_GATED = {"silu": "swiglu", "gelu": "geglu"}
_PLAIN = {"silu": {"expression": "silu(up)"}, "gelu": {"expression": "gelu(up)"}, "relu2": "relu_squared"}


def fused_experts(
        hidden_states: torch.Tensor, w1: torch.Tensor, w2: torch.Tensor, topk_output: tuple, moe_runner_config: Any,
        b1: torch.Tensor | None = None, b2: torch.Tensor | None = None, use_fp8_w8a8: bool = False,
        use_int8_w8a8: bool = False, use_int8_w8a16: bool = False, use_int4_w4a16: bool = False,
        per_channel_quant: bool = False, w1_scale: torch.Tensor | None = None, w2_scale: torch.Tensor | None = None,
        w1_zp: torch.Tensor | None = None, w2_zp: torch.Tensor | None = None, a1_scale: torch.Tensor | None = None,
        a2_scale: torch.Tensor | None = None, block_shape: list[int] | None = None, *,
        recipe: str | None = None) -> torch.Tensor:
    """Computes the experts of a layer, forward only. The recipe quantizes tokens, and weights unless they are FP8.

    Args:
        hidden_states: [T, H] bf16; gets a copy of the result if the config says `inplace`.
        w1: [E, 2I, H] bf16, or float8_e4m3fn with `use_fp8_w8a8`: gate, then up; the two alternate if the config has a `gemm1_alpha`. [E, I, H] without a
            gate. Or the mxfp4_weights() of both.
        w2: [E, H, I], as w1; None with mxfp4_weights().
        topk_output: (weights [T, K] float32, ids [T, K] int32 or int64, ...); an id of -1 adds nothing.
        moe_runner_config: An object with the fields of SGLang's MoeRunnerConfig.
        b1: [E, 2I] or [E, I] bf16.
        b2: [E, H] bf16.
        use_fp8_w8a8: Whether weights are FP8, and are read where they are.
        per_channel_quant: Whether FP8 weights have a scale for each channel: [E, 2I, 1] and [E, H, 1].
        w1_scale, w2_scale: Scales of FP8 weights, as of moejit.torch.fp8_weights().
        block_shape: [128, 128] if FP8 weights have a scale for each block; else None.
        recipe: Recipe of the layer: "fp8_flow", "bf16", ...; None: as of serving.run().

    Returns:
        [T, H] bf16; hidden_states itself with `inplace`.

    Raises:
        RuntimeError: The library cannot do what an argument or a field of the config asks for; the sentence says which.
    """
    serving.refuse_unless(_NAME, {
        "use_int8_w8a8": (use_int8_w8a8, False), "use_int8_w8a16": (use_int8_w8a16, False),
        "use_int4_w4a16": (use_int4_w4a16, False), "w1_zp": (w1_zp, None), "w2_zp": (w2_zp, None)},
        "give bf16 or FP8 weights")
    serving.refuse_unless(_NAME, {"a1_scale": (a1_scale, None), "a2_scale": (a2_scale, None)},
                          "the layer's recipe finds the scales of tokens itself")
    if use_fp8_w8a8:
        w1, w2 = serving.codes(_NAME, w1, w2, w1_scale, w2_scale, block_shape, per_channel_quant), None
    else:
        serving.refuse_unless(_NAME, {
            "per_channel_quant": (per_channel_quant, False), "block_shape": (block_shape, None),
            "w1_scale": (w1_scale, None), "w2_scale": (w2_scale, None)}, "FP8 weights come with use_fp8_w8a8")
    config = moe_runner_config
    serving.refuse_unless(_NAME, {
        f"moe_runner_config.{field}": (getattr(config, field, value), value)
        for field, value in (("apply_router_weight_on_input", False), ("no_combine", False), ("custom_act_fn", None),
                             ("swiglu_limit", None))})
    activation, layout = _activation(config)
    weights, ids = topk_output[0], topk_output[1]
    factor = getattr(config, "routed_scaling_factor", None)
    if factor is not None and factor != 1.0:
        weights = weights * factor
    y = serving.run(hidden_states, ids, weights, w1, w2, b1, b2, activation=activation, layout=layout, recipe=recipe)
    return hidden_states.copy_(y) if getattr(config, "inplace", False) else y


def _activation(config: Any) -> tuple[serving.Activation, str]:
    """Returns the activation and the layout of gate and up in w1."""
    name, is_gated = config.activation, getattr(config, "is_gated", True)
    alpha, limit = getattr(config, "gemm1_alpha", None), getattr(config, "gemm1_clamp_limit", None)
    known = _GATED if is_gated else _PLAIN
    if name not in known:
        serving.refuse(_NAME, "moe_runner_config.activation", f"{name} {'with' if is_gated else 'without'} a gate",
                       f"one of {', '.join(known)}")
    if alpha is None and limit is None:
        return known[name], "concat"
    if name != "silu" or not is_gated:
        serving.refuse(_NAME, "moe_runner_config.gemm1_alpha or gemm1_clamp_limit", "a number",
                       f"None with the activation {name}")
    if alpha is None:
        return {"expression": f"min(silu(gate), {limit!r}) * clamp(up, -{limit!r}, {limit!r})"}, "concat"
    if limit is None:
        serving.refuse(_NAME, "moe_runner_config.gemm1_clamp_limit", None, "a number, since there is a gemm1_alpha")
    beta = getattr(config, "gemm1_beta", None)
    layout = "interleaved" if getattr(config, "gate_up_interleaved", True) else "concat"
    return {"preset": "clamped_swiglu", "limit": float(limit), "alpha": float(alpha),
            "offset": 1.0 if beta is None else float(beta)}, layout
