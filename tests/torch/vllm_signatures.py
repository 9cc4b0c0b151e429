# SPDX-License-Identifier: Apache-2.0
"""What moejit.torch.vllm uses of vLLM, as modules of that name: the names, signatures and abstract methods of vLLM's
modular kernels of August 2026, and nothing that computes."""
import abc
import enum
import sys
import types


class FusedMoEActivationFormat(enum.Enum):
    Standard = ("standard",)
    BatchedExperts = ("batched_experts",)


class MoEActivation(enum.Enum):
    SILU = "silu"
    GELU = "gelu"
    GELU_TANH = "gelu_tanh"
    RELU2 = "relu2"
    SWIGLUOAI = "swigluoai"
    SITU = "situ"
    SWIGLUOAI_UNINTERLEAVE = "swigluoai_uninterleave"
    SWIGLUSTEP = "swiglustep"
    SILU_NO_MUL = "silu_no_mul"
    GELU_NO_MUL = "gelu_no_mul"
    GELU_TANH_NO_MUL = "gelu_tanh_no_mul"
    RELU2_NO_MUL = "relu2_no_mul"


class TopKWeightAndReduce(abc.ABC):
    @abc.abstractmethod
    def apply(self, output, fused_expert_output, topk_weights, topk_ids, apply_router_weight_on_input): ...


class TopKWeightAndReduceNoOP(TopKWeightAndReduce):
    def apply(self, output, fused_expert_output, topk_weights, topk_ids, apply_router_weight_on_input): ...


class FusedMoEExpertsModular(abc.ABC):
    """What its users make and call. `quant_config` and `activation_config` are records of plain fields."""

    def __init__(self, moe_config, quant_config, max_num_tokens=None, num_dispatchers=None):
        self.moe_config, self.quant_config = moe_config, quant_config
        self.activation_config = types.SimpleNamespace(clamp_limit=quant_config.gemm1_clamp_limit,
                                                       alpha=quant_config.gemm1_alpha, beta=quant_config.gemm1_beta)

    expects_unquantized_inputs = property(lambda self: False)
    block_shape = property(lambda self: self.quant_config.block_shape)
    a1_scale = property(lambda self: self.quant_config.a1_scale)
    a2_scale = property(lambda self: self.quant_config.a2_scale)
    w1_scale = property(lambda self: self.quant_config.w1_scale)
    w2_scale = property(lambda self: self.quant_config.w2_scale)
    w1_bias = property(lambda self: self.quant_config.w1_bias)
    w2_bias = property(lambda self: self.quant_config.w2_bias)

    def process_weights_after_loading(self, layer): ...

    @staticmethod
    @abc.abstractmethod
    def activation_format(): ...

    @staticmethod
    @abc.abstractmethod
    def _supports_current_device(): ...

    @staticmethod
    @abc.abstractmethod
    def _supports_no_act_and_mul(): ...

    @staticmethod
    @abc.abstractmethod
    def _supports_quant_scheme(weight_key, activation_key): ...

    @staticmethod
    @abc.abstractmethod
    def _supports_activation(activation): ...

    @staticmethod
    @abc.abstractmethod
    def _supports_parallel_config(moe_parallel_config): ...

    @abc.abstractmethod
    def workspace_shapes(self, M, N, K, topk, global_num_experts, local_num_experts, expert_tokens_meta, activation): ...

    @abc.abstractmethod
    def finalize_weight_and_reduce_impl(self): ...

    @abc.abstractmethod
    def apply(self, output, hidden_states, w1, w2, topk_weights, topk_ids, activation, global_num_experts, expert_map,
              a1q_scale, a2_scale, workspace13, workspace2, expert_tokens_meta, apply_router_weight_on_input): ...


class FP8Registry:
    """What vLLM's open change for backends from outside adds: the last registration."""
    registered = None

    @staticmethod
    def register_fp8_moe_backend(name, expert_class_paths, *, auto_select=False):
        FP8Registry.registered = name, expert_class_paths, auto_select


# Keys of quantization schemes, each equal to itself alone.
QUANT_KEYS = {name: name for name in ("kFp8Static128BlockSym", "kFp8Dynamic128Sym", "kFp8StaticChannelSym",
                                      "kFp8DynamicTokenSym", "kFp8StaticTensorSym", "kFp8DynamicTensorSym")}


def grouped_topk(hidden_states, gating_output, topk, renormalize, num_expert_group=0, topk_group=0,
                 scoring_func="softmax", routed_scaling_factor=1.0, e_score_correction_bias=None): ...


def custom_routing_function(hidden_states, gating_output, topk, renormalize):
    """As FusedMoE calls it, and SGLang's TopK by these names."""


def install():
    """Puts the modules where `import` finds them."""
    folder = "vllm.model_executor.layers.fused_moe"
    platform = types.SimpleNamespace(is_cuda=lambda: True, is_device_capability=lambda capability: capability == 90)
    contents = {
        folder + ".modular_kernel": {"FusedMoEExpertsModular": FusedMoEExpertsModular,
                                     "FusedMoEActivationFormat": FusedMoEActivationFormat,
                                     "TopKWeightAndReduce": TopKWeightAndReduce},
        folder + ".topk_weight_and_reduce": {"TopKWeightAndReduceNoOP": TopKWeightAndReduceNoOP},
        folder + ".oracle": {"register_fp8_moe_backend": FP8Registry.register_fp8_moe_backend},
        "vllm.model_executor.layers.quantization.utils.quant_utils": QUANT_KEYS,
        "vllm.platforms": {"current_platform": platform}}
    for name, members in contents.items():
        parts = name.split(".")
        for end in range(1, len(parts) + 1):
            module = sys.modules.setdefault(".".join(parts[:end]), types.ModuleType(".".join(parts[:end])))
            module.__path__ = []
            if end > 1:
                setattr(sys.modules[".".join(parts[:end - 1])], parts[end - 1], module)
        vars(module).update(members)
