// SPDX-License-Identifier: Apache-2.0
#include "compiler/parser/hugging_face_families.h"

#include <array>

namespace moejit::compiler {
namespace {

constexpr std::string_view kGptOssNote =
    "w1 is gate_up_proj transposed to [E, 2I, H], whose rows of gate and up alternate, and w2 is "
    "down_proj transposed to [E, H, I]; b1 and b2 are the biases of these as they are";
constexpr std::string_view kLlamaNote =
    "the model multiplies an expert's input by the probability, this layer multiplies the "
    "activation's output: scale x by the caller and pass topk_probs of 1 for the model's results; "
    "each MoE layer also has a shared expert, which is not part of the layer";

constexpr std::array kFamilies = std::to_array<HuggingFaceFamily>({
    {"deepseek_v2", "DeepSeek-V2, V2-Lite", "", "n_routed_experts", "moe_intermediate_size", "",
     ""},
    {"deepseek_v3", "DeepSeek-V3, R1, Moonlight", "", "n_routed_experts", "moe_intermediate_size",
     "", ""},
    {"deepseek_v32", "DeepSeek-V3.2", "", "n_routed_experts", "moe_intermediate_size", "", ""},
    {"kimi_k2", "Kimi-K2", "", "n_routed_experts", "moe_intermediate_size", "", ""},
    {"glm4_moe", "GLM-4.5, GLM-4.5-Air", "", "n_routed_experts", "moe_intermediate_size", "", ""},
    {"qwen3_moe", "Qwen3-30B-A3B, Qwen3-235B-A22B", "", "num_experts", "moe_intermediate_size", "",
     ""},
    {"qwen3_next", "Qwen3-Next-80B-A3B", "", "num_experts", "moe_intermediate_size", "", ""},
    {"nemotron_h", "Nemotron 3", "", "n_routed_experts", "moe_intermediate_size", "", "",
     "mlp_hidden_act", false},
    {"olmoe", "OLMoE-1B-7B", "", "num_experts", "intermediate_size", "", ""},
    {"mixtral", "Mixtral 8x7B, 8x22B", "", "num_local_experts", "intermediate_size", "", ""},
    {"minimax_m2", "MiniMax-M2", "", "num_local_experts", "intermediate_size", "", ""},
    {"minimax", "MiniMax-M2 (early files)", "", "num_local_experts", "intermediate_size", "", ""},
    {"gpt_oss", "gpt-oss-20b, gpt-oss-120b", "", "num_local_experts", "intermediate_size",
     "swiglu_limit", kGptOssNote, "hidden_act", true, GateUpLayout::kInterleaved, true},
    {"llama4", "Llama-4 Scout, Maverick", "text_config", "num_local_experts", "intermediate_size",
     "", kLlamaNote},
    {"llama4_text", "Llama-4 Scout, Maverick (text model)", "", "num_local_experts",
     "intermediate_size", "", kLlamaNote},
});

constexpr std::array kFacts = std::to_array<HuggingFaceFact>({
    {"n_shared_experts", "", "shared experts run beside the layer and are not part of it"},
    {"shared_expert_intermediate_size", "",
     "the shared expert runs beside the layer and is not part of it"},
    {"shared_intermediate_size", "",
     "the shared expert runs beside the layer and is not part of it"},
    {"moe_latent_size", "",
     "tokens are projected to this width before the experts and back behind them: give it as the "
     "layer's hidden"},
    {"first_k_dense_replace", "", "so many of the first decoder layers are dense, not MoE"},
    {"decoder_sparse_step", "1", "only every so many decoder layers one is MoE"},
    {"interleave_moe_layer_step", "1", "only every so many decoder layers one is MoE"},
    {"mlp_only_layers", "", "these decoder layers are dense, not MoE"},
    {"routed_scaling_factor", "1", "multiply topk_probs by it before the layer"},
    {"mlp_bias", "", "the experts' linear layers have biases, the layer's have none"},
    {"quantization_config", "", "the checkpoint's weights are quantised"},
});

}  // namespace

std::span<const HuggingFaceFamily> hugging_face_families() { return kFamilies; }

std::span<const HuggingFaceFact> hugging_face_facts() { return kFacts; }

}  // namespace moejit::compiler
