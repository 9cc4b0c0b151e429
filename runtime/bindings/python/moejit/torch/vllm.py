# SPDX-License-Identifier: Apache-2.0
"""Experts as a class of vLLM's modular kernels, forward only. Importing this module imports vLLM."""
from __future__ import annotations

from typing import Any

import torch

try:
    import vllm.model_executor.layers.fused_moe.modular_kernel as mk
    from vllm.model_executor.layers.fused_moe.topk_weight_and_reduce import TopKWeightAndReduceNoOP
    from vllm.model_executor.layers.quantization.utils import quant_utils
    from vllm.platforms import current_platform
except ImportError as error:
    raise ImportError(f"moejit.torch.vllm needs vLLM with its modular kernels of experts: {error}") from error

try:
    from vllm.model_executor.layers.fused_moe.oracle import register_fp8_moe_backend
except ImportError:  # this vLLM takes no backends from outside
    register_fp8_moe_backend = None

from moejit.torch import serving
from moejit.torch.fp8_weights import FP8Weights

_NAME = "MoejitExperts.apply"
# Maps the values of vLLM's MoEActivation to activations.
_ACTIVATIONS: dict[str, serving.Activation] = {
    "silu": "swiglu", "gelu": "geglu", "gelu_tanh": {"expression": "gelu_tanh(gate) * up"},
    "swigluoai": {"preset": "clamped_swiglu", "limit": 7.0, "alpha": 1.702, "offset": 1.0},
    "swigluoai_uninterleave": "clamped_swiglu",
    "swiglustep": {"expression": "min(silu(gate), 7.0) * clamp(up, -7.0, 7.0)"},
    "silu_no_mul": {"expression": "silu(up)"}, "gelu_no_mul": {"expression": "gelu(up)"},
    "gelu_tanh_no_mul": {"expression": "gelu_tanh(up)"}, "relu2_no_mul": "relu_squared"}
# Schemes of weights and tokens that are FP8: scales of weights are static, and scales of tokens are found in each call.
_QUANT_SCHEMES = ((quant_utils.kFp8Static128BlockSym, quant_utils.kFp8Dynamic128Sym),
                  (quant_utils.kFp8StaticChannelSym, quant_utils.kFp8DynamicTokenSym),
                  (quant_utils.kFp8StaticTensorSym, quant_utils.kFp8DynamicTokenSym))


def register_backend(name: str = "moejit") -> None:
    """Registers MoejitExperts as a backend of FP8 experts, for vLLM's --moe-backend.

    Each process of vLLM has to call it, as plugins of vLLM's group "vllm.general_plugins" do. docs/serving.md has one.

    Raises:
        ImportError: This vLLM takes no backends from outside.
    """
    if register_fp8_moe_backend is None:
        raise ImportError("moejit.torch.vllm.register_backend() needs a vLLM with "
                          "fused_moe.oracle.register_fp8_moe_backend()\n"
                          "hint: make the modular kernel with MoejitExperts yourself, or take a newer vLLM")
    register_fp8_moe_backend(name, f"{MoejitExperts.__module__}.{MoejitExperts.__qualname__}")


class MoejitExperts(mk.FusedMoEExpertsModular):
    """Experts with bf16 or FP8 weights that take the place of `fused_experts` in vLLM's modular kernel.

    Weights are w1 [E, 2I, H] and w2 [E, H, I], as vLLM loads them. The first call after loading quantizes bf16 ones. FP8
    weights are read where they are, with the scales of the quantization config. register_backend() makes vLLM choose this
    class, where vLLM takes backends from outside; elsewhere make the kernel with it yourself.

    Raises:
        RuntimeError: Raised by apply() if the library cannot do what an argument asks for; the sentence says which.
    """

    recipe: str | None = None  # recipe of the layer, as of serving.run(); a subclass may set "bf16"

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
        return (weight_key, activation_key) in ((None, None), *_QUANT_SCHEMES)

    @staticmethod
    def _supports_activation(activation: Any) -> bool:
        return activation.value in _ACTIVATIONS

    @staticmethod
    def _supports_parallel_config(moe_parallel_config: Any) -> bool:
        return True

    @property
    def expects_unquantized_inputs(self) -> bool:
        """Tells vLLM to hand over bf16 tokens, since the layer quantizes them."""
        return True

    def supports_expert_map(self) -> bool:
        return True

    def process_weights_after_loading(self, layer: torch.nn.Module) -> None:
        """Forgets the quantized copies of the layer's earlier weights, and checks the values of FP8 weights."""
        serving.forget(layer.w13_weight)
        if self.w1_scale is not None:
            self._codes(layer.w13_weight, layer.w2_weight).check_values()

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
            w1: [E, 2I, H] bf16 or float8_e4m3fn; [E, I, H] if the activation has no gate.
                Or the mxfp4_weights() of both.
            w2: [E, H, I], as w1; None with mxfp4_weights().
            topk_weights: [T, K] float32; each counts as 1 if `apply_router_weight_on_input` says that the input
                includes them already.
            topk_ids: [T, K] int32 or int64: experts of all ranks; -1: none.
            activation: vLLM's MoEActivation.
            expert_map: [global_num_experts]: the expert's number on this rank, or -1; None: all experts are on this
                rank.
            a1q_scale, a2_scale: None.
        """
        serving.refuse_unless(_NAME, {
            "a1q_scale": (a1q_scale, None), "a2_scale": (a2_scale, None),
            "a1_scale of the quant_config": (self.a1_scale, None), "a2_scale of the quant_config": (self.a2_scale, None)},
            "give tokens in bf16: the layer's recipe quantizes them itself")
        if apply_router_weight_on_input:
            topk_weights = torch.ones_like(topk_weights)
        if expert_map is not None:
            topk_ids = torch.where(topk_ids >= 0, expert_map[topk_ids.clamp(min=0).long()].to(topk_ids.dtype), -1)
        formula, layout = self._formula(activation)
        weights = (w1, w2) if self.w1_scale is None and self.w2_scale is None else (self._codes(w1, w2), None)
        output.copy_(serving.run(hidden_states, topk_ids, topk_weights, *weights, self.w1_bias, self.w2_bias,
                                 activation=formula, layout=layout, recipe=self.recipe))

    def _codes(self, w1: torch.Tensor, w2: torch.Tensor) -> FP8Weights:
        return serving.codes(_NAME, w1, w2, self.w1_scale, self.w2_scale, self.block_shape)

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
