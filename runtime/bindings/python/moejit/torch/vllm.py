# SPDX-License-Identifier: Apache-2.0
"""Experts as a class of vLLM's modular kernels, forward only. Importing this module imports vLLM."""
from __future__ import annotations

from typing import Any

import torch

try:
    import vllm.model_executor.layers.fused_moe.modular_kernel as mk
    from vllm.model_executor.layers.fused_moe.topk_weight_and_reduce import TopKWeightAndReduceNoOP
    from vllm.platforms import current_platform
except ImportError as error:
    raise ImportError(f"moejit.torch.vllm needs vLLM with its modular kernels of experts: {error}") from error

from moejit.torch import serving

_NAME = "MoejitExperts.apply"
# Maps the values of vLLM's MoEActivation to activations.
_ACTIVATIONS: dict[str, serving.Activation] = {
    "silu": "swiglu", "gelu": "geglu", "gelu_tanh": {"expression": "gelu_tanh(gate) * up"},
    "swigluoai": {"preset": "clamped_swiglu", "limit": 7.0, "alpha": 1.702, "offset": 1.0},
    "swigluoai_uninterleave": "clamped_swiglu",
    "swiglustep": {"expression": "min(silu(gate), 7.0) * clamp(up, -7.0, 7.0)"},
    "silu_no_mul": {"expression": "silu(up)"}, "gelu_no_mul": {"expression": "gelu(up)"},
    "gelu_tanh_no_mul": {"expression": "gelu_tanh(up)"}, "relu2_no_mul": "relu_squared"}


class MoejitExperts(mk.FusedMoEExpertsModular):
    """Experts with bf16 weights that take the place of `fused_experts` in vLLM's modular kernel.

    Weights are w1 [E, 2I, H] and w2 [E, H, I], as vLLM loads them. The first call after loading quantizes them. vLLM
    does not choose this class as a backend: make the kernel with it yourself.

    Raises:
        RuntimeError: Raised by apply() if the library cannot do what an argument asks for; the sentence says which.
    """

    recipe = "fp8_flow"  # recipe of the layer; a subclass may set "bf16"

    @staticmethod
    def activation_format() -> mk.FusedMoEActivationFormat:
        return mk.FusedMoEActivationFormat.Standard

    @staticmethod
    def _supports_current_device() -> bool:
        return current_platform.is_cuda() and current_platform.is_device_capability(90)

    @staticmethod
    def _supports_no_act_and_mul() -> bool:
        return True

    @staticmethod
    def _supports_quant_scheme(weight_key: Any, activation_key: Any) -> bool:
        return weight_key is None and activation_key is None

    @staticmethod
    def _supports_activation(activation: Any) -> bool:
        return activation.value in _ACTIVATIONS

    @staticmethod
    def _supports_parallel_config(moe_parallel_config: Any) -> bool:
        return True

    def supports_expert_map(self) -> bool:
        return True

    def process_weights_after_loading(self, layer: torch.nn.Module) -> None:
        """Forgets the quantized copies of the layer's earlier weights."""
        serving.forget(layer.w13_weight)

    def finalize_weight_and_reduce_impl(self) -> mk.TopKWeightAndReduce:
        """Returns vLLM's object that does nothing, since apply() weights and sums itself."""
        return TopKWeightAndReduceNoOP()

    def workspace_shapes(self, M: int, N: int, K: int, topk: int, global_num_experts: int, local_num_experts: int,
                         expert_tokens_meta: Any, activation: Any) -> tuple[tuple[int, ...], ...]:
        """Returns the shapes of two workspaces, which are not needed, and of the output."""
        return (0,), (0,), (M, K)

    def apply(self, output: torch.Tensor, hidden_states: torch.Tensor, w1: torch.Tensor, w2: torch.Tensor,
              topk_weights: torch.Tensor, topk_ids: torch.Tensor, activation: Any, global_num_experts: int,
              expert_map: torch.Tensor | None, a1q_scale: torch.Tensor | None, a2_scale: torch.Tensor | None,
              workspace13: torch.Tensor, workspace2: torch.Tensor, expert_tokens_meta: Any,
              apply_router_weight_on_input: bool) -> None:
        """Writes the weighted sum of each token's experts to `output`.

        Args:
            output: [T, H] bf16.
            hidden_states: [T, H] bf16.
            w1: [E, 2I, H] bf16; [E, I, H] if the activation has no gate.
            w2: [E, H, I] bf16.
            topk_weights: [T, K] float32; each counts as 1 if `apply_router_weight_on_input` says that the input
                includes them already.
            topk_ids: [T, K] int32 or int64: experts of all ranks; -1: none.
            activation: vLLM's MoEActivation.
            expert_map: [global_num_experts]: the expert's number on this rank, or -1; None: all experts are on this
                rank.
            a1q_scale, a2_scale: None.
        """
        serving.refuse_unless(_NAME, {"a1q_scale": (a1q_scale, None), "a2_scale": (a2_scale, None),
                                      "w1_scale": (self.w1_scale, None), "w2_scale": (self.w2_scale, None)},
                              "give bf16: the layer's recipe quantizes tokens and weights itself")
        if apply_router_weight_on_input:
            topk_weights = torch.ones_like(topk_weights)
        if expert_map is not None:
            topk_ids = torch.where(topk_ids >= 0, expert_map[topk_ids.clamp(min=0).long()].to(topk_ids.dtype), -1)
        formula, layout = self._formula(activation)
        output.copy_(serving.run(hidden_states, topk_ids, topk_weights, w1, w2, self.w1_bias, self.w2_bias,
                                 activation=formula, layout=layout, recipe=self.recipe))

    def _formula(self, activation: Any) -> tuple[serving.Activation, str]:
        """Returns the activation and the layout of gate and up in w1."""
        name = activation.value
        if name not in _ACTIVATIONS:
            serving.refuse(_NAME, "activation", name, f"one of {', '.join(_ACTIVATIONS)}")
        config = getattr(self, "activation_config", None)
        limit = getattr(config, "clamp_limit", None)
        if name == "swigluoai_uninterleave" and limit is None:
            serving.refuse(_NAME, "activation", f"{name} without a clamp_limit", "one with it")
        if name == "swigluoai_uninterleave" or (name == "silu" and limit is not None):
            is_plain = name == "silu"
            return {"preset": "clamped_swiglu", "limit": float(limit), "alpha": 1.0 if is_plain else float(config.alpha),
                    "offset": 0.0 if is_plain else float(config.beta)}, "concat"
        return _ACTIVATIONS[name], "interleaved" if name == "swigluoai" else "concat"
