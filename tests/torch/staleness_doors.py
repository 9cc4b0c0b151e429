# SPDX-License-Identifier: Apache-2.0
"""Kinds of calls in the matrix of stale weights: the doors for models and serving libraries, and groups of one rank."""
import types

import torch
import torch.distributed as dist
import transformers
import vllm_signatures
from torch.distributed.fsdp import fully_shard
from transformers.models.gpt_oss.modeling_gpt_oss import GptOssExperts
from transformers.models.qwen3_moe.modeling_qwen3_moe import Qwen3MoeExperts

vllm_signatures.install()

import staleness_kinds
from staleness_calls import compiled, eager, frozen, inference_mode, step
from staleness_case import RECIPES, E, Kind, float32
from staleness_kinds import ALL, COPIED, MEMORY, SHARDED
from support import DEVICE, H, I, K, MAX_TOKENS
from moejit.torch import convert, register_hf
from moejit.torch.flashinfer import cutlass_fused_moe
from moejit.torch.fsdp import enable_fp8_all_gather
from moejit.torch.sglang import fused_experts
from moejit.torch.vllm import MoejitExperts

transformers.logging.set_verbosity_error()
for _recipe in RECIPES:
    register_hf(f"staleness_{_recipe}", recipe=_recipe, max_tokens=MAX_TOKENS)

# Without swap_tensors(): the functions know weights by weak references, which torch does not swap.
REPLACED = (*MEMORY, "replace", "swap")
SERVED = (*MEMORY, "replace", "structure", "functional", "inference")
BIASED = ("fp8_flow", "bf16")  # recipes that take biases, as gpt-oss has them
SIZES = {"hidden_size": H, "num_experts_per_tok": K, "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 16,
         "num_hidden_layers": 1, "vocab_size": H}


class Served(torch.nn.Module):
    """Weights of a serving library, and the call that it makes."""

    def __init__(self, run, recipe):
        super().__init__()
        torch.manual_seed(0)
        options = {"dtype": torch.bfloat16, "device": DEVICE}
        self.gate_up_proj = torch.nn.Parameter(torch.randn(E, 2 * I, H, **options) * H ** -0.5, False)
        self.down_proj = torch.nn.Parameter(torch.randn(E, H, I, **options) * I ** -0.5, False)
        self.run, self.recipe = run, recipe

    def forward(self, x, ids, probs):
        return self.run(x.detach(), ids, probs.detach(), self.gate_up_proj, self.down_proj, self.recipe)


def sglang(x, ids, probs, w1, w2, recipe):
    config = types.SimpleNamespace(activation="silu", is_gated=True)
    return fused_experts(x, w1, w2, (probs, ids, None), config, recipe=recipe)


def flashinfer(x, ids, probs, w1, w2, recipe):
    return cutlass_fused_moe(x, ids.int(), probs, w1, w2, torch.bfloat16, [], recipe=recipe)[0]


class Vllm:
    """A kernel of vLLM, which lives as long as its layer."""

    def __init__(self, recipe):
        names = ("w1_scale", "w2_scale", "w1_bias", "w2_bias", "gemm1_clamp_limit", "gemm1_alpha", "gemm1_beta",
                 "a1_scale", "a2_scale", "block_shape")
        kind = type("Chosen", (MoejitExperts,), {"recipe": recipe})
        self.experts = kind(types.SimpleNamespace(), types.SimpleNamespace(**dict.fromkeys(names)))

    def __call__(self, x, ids, probs, w1, w2, recipe):
        output = torch.empty_like(x)
        self.experts.apply(
            output=output, hidden_states=x, w1=w1, w2=w2, topk_weights=probs, topk_ids=ids, global_num_experts=E,
            activation=vllm_signatures.MoEActivation.SILU, expert_map=None, a1q_scale=None, a2_scale=None,
            workspace13=torch.empty(0), workspace2=torch.empty(0), expert_tokens_meta=None,
            apply_router_weight_on_input=False)
        return output


def make_converted(recipe, module=Qwen3MoeExperts, **fields):
    """A module of transformers, converted. gpt-oss has other weights than ours: transposed, in each call anew."""
    torch.manual_seed(0)
    kind = transformers.GptOssConfig if module is GptOssExperts else transformers.Qwen3MoeConfig
    config = kind(**SIZES, num_experts=E, num_local_experts=E, moe_intermediate_size=I, intermediate_size=I)
    config._experts_implementation = "eager"
    root = torch.nn.ModuleList([module(config).to(DEVICE, torch.bfloat16)])
    for parameter in root.parameters():
        torch.nn.init.normal_(parameter, std=H ** -0.5)
    convert(root, recipe, max_tokens=MAX_TOKENS, **fields)
    return root[0], ""


class Model(torch.nn.Module):
    """A model of transformers as something that has tokens for inputs, whose router chooses the experts."""

    def __init__(self, recipe):
        super().__init__()
        torch.manual_seed(0)
        config = transformers.Qwen3MoeConfig(**SIZES, num_experts=E, moe_intermediate_size=I, intermediate_size=I)
        self.model = transformers.Qwen3MoeForCausalLM(config).to(DEVICE, torch.bfloat16)
        self.model.set_experts_implementation(f"staleness_{recipe}")
        for name, parameter in self.model.named_parameters():
            if "experts" in name:
                torch.nn.init.normal_(parameter, std=parameter.shape[-1] ** -0.5)

    def forward(self, x, ids, probs):
        return self.model(inputs_embeds=x[None], use_cache=False).logits[0]


def make_sharded(recipe, gathers_codes=False, **options):
    root, path = staleness_kinds.make(recipe, **options)
    if gathers_codes:
        enable_fp8_all_gather(root)
    return fully_shard(root, reshard_after_forward=True), path


def make_unsharded(recipe, gathers_codes=False, **options):
    return staleness_kinds.make(recipe)


def make_group(recipe, **options):
    return staleness_kinds.make(recipe, process_group=dist.group.WORLD, **options)


def served(name, run, reference=float32):
    def make(recipe):
        return Served(run(recipe), recipe), ""
    return (Kind(name, make, (eager,), (eager,), SERVED, reference=reference),
            Kind(name + " in inference mode", make, (inference_mode,), (inference_mode,), SERVED, reference=reference))


KINDS = (
    *served("sglang", lambda recipe: sglang),
    *served("flashinfer", lambda recipe: flashinfer, lambda *given: float32(*given, up_first=True)),
    *served("vllm", Vllm),
    Kind("converted", make_converted, (eager,), (eager,), (*ALL, "inference"), reference=float32),
    Kind("converted, compiled", make_converted, (eager, compiled), (compiled, eager), ALL, reference=float32),
    Kind("converted, in training", make_converted, (step, eager), (eager, step), ALL, reference=float32),
    Kind("converted and kept", make_converted, (step,), (step, eager), ALL, {"cache_weights": True}, reference=float32),
    Kind("converted, transposed", make_converted, (eager,), (eager, step), ALL, {"module": GptOssExperts},
         BIASED),
    Kind("transposed and kept", make_converted, (step,), (step, eager), ALL,
         {"module": GptOssExperts, "cache_weights": True}, BIASED),
    Kind("registered", lambda recipe: (Model(recipe), "model.model.layers.0.mlp.experts"), (frozen,), (frozen,),
         COPIED),
    Kind("registered, in training", lambda recipe: (Model(recipe), "model.model.layers.0.mlp.experts"), (eager, step),
         (eager, step), ALL))

# These need a group of torch.distributed, with which others keep nothing by default.
GROUP_KINDS = (
    Kind("sharded", make_sharded, (eager, step), (eager, step), SHARDED, make_fresh=make_unsharded, reference=float32),
    Kind("sharded and kept", make_sharded, (step, eager), (step, eager), SHARDED, {"cache_weights": True},
         make_fresh=make_unsharded, reference=float32),
    Kind("sharded codes", make_sharded, (eager, step), (eager, step), SHARDED, {"gathers_codes": True}, ("fp8_flow",),
         make_fresh=make_unsharded, reference=float32),
    Kind("data parallel", staleness_kinds.make, (eager, step), (eager, step), REPLACED, reference=float32),
    Kind("kept beside a group", staleness_kinds.make, (eager, step), (step, eager), REPLACED,
         {"cache_weights": True}, reference=float32),
    Kind("experts of a group", make_group, (eager, step), (eager, step), REPLACED, reference=float32),
    Kind("kept by a group", make_group, (eager, step), (step, eager), REPLACED, {"cache_weights": True},
         reference=float32),
    Kind("kept by a group, compiled", make_group, (eager, compiled), (compiled, eager), REPLACED,
         {"cache_weights": True}, reference=float32))
