// SPDX-License-Identifier: Apache-2.0
// Facts about the configurations of all families: names of figures, and keys to report.
#include "compiler/parser/hugging_face_families.h"

namespace moejit::compiler {
namespace {

// Errors about absent keys use the first name of a list.
constexpr std::array kExpertCountKeys = std::to_array<std::string_view>(
    {"num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"});
constexpr std::array kTopKKeys = std::to_array<std::string_view>(
    {"num_experts_per_tok", "num_experts_per_token", "moe_topk", "moe_top_k", "moe_k",
     "top_k_experts", "num_selected_experts", "experts_per_token"});
constexpr std::array kHiddenKeys =
    std::to_array<std::string_view>({"hidden_size", "d_model", "n_embd"});

constexpr std::string_view kSharedNote =
    "shared experts run beside the layer and are not part of it";
constexpr std::string_view kScaleNote = "multiply topk_probs by it before the layer";
constexpr std::string_view kDenseNote = "so many of the first decoder layers are dense, not MoE";
constexpr std::string_view kEveryNote = "only every so many decoder layers one is MoE";

constexpr std::array kFacts = std::to_array<HuggingFaceFact>({
    {"n_shared_experts", "", kSharedNote},
    {"num_shared_experts", "", kSharedNote},
    {"moe_num_shared_experts", "", kSharedNote},
    {"num_shared_expert", "", kSharedNote},
    {"shared_expert_intermediate_size", "", kSharedNote},
    {"shared_intermediate_size", "", kSharedNote},
    {"share_expert_dim", "", kSharedNote},
    {"shared_expert_combination_strategy", "sum",
     "how the shared experts' result joins that of the layer, where there are any; average means "
     "half of their sum"},
    {"zero_expert_num", "",
     "this many experts after the others return the token unchanged: give -1 in topk_ids for them, "
     "and add the token times the probability after the layer"},
    {"moe_token_dropout", "",
     "at inference the model multiplies the experts' results by 1 less this: multiply topk_probs"},
    {"first_k_dense_replace", "", kDenseNote},
    {"num_dense_layers", "", kDenseNote},
    {"decoder_sparse_step", "1", kEveryNote},
    {"encoder_sparse_step", "1", kEveryNote},
    {"interleave_moe_layer_step", "1", kEveryNote},
    {"expert_layer_period", "1", kEveryNote},
    {"moe_layer_interval", "1", kEveryNote},
    {"moe_layer_freq", "1", kEveryNote},
    {"mlp_only_layers", "", "these decoder layers are dense, not MoE"},
    {"routed_scaling_factor", "1", kScaleNote},
    {"router_scaling_factor", "1", kScaleNote},
    {"moe_routed_scaling_factor", "1", kScaleNote},
    {"moe_router_scaling_factor", "1", kScaleNote},
    {"route_scale", "1", kScaleNote},
    {"mlp_bias", "",
     "of dense and shared MLPs; where the experts have biases too, set biases to true"},
    {"use_bias", "",
     "of dense and shared MLPs; where the experts have biases too, set biases to true"},
    {"quantization_config", "", "the checkpoint's weights are quantized"},
});

constexpr std::array kExpertFormulaKeys = std::to_array<std::string_view>(
    {"swiglu_limit", "swiglu_alpha", "swiglu_limits", "swiglu_beta", "swiglu_clamp", "glu_limit",
     "activation_limit", "mlp_gate_softcap", "mlp_up_softcap", "moe_latent_size", "moe_hidden_size",
     "expert_bias", "expert_biases", "experts_bias", "moe_bias", "gate_up_layout"});

}  // namespace

std::span<const std::string_view> expert_count_keys() { return kExpertCountKeys; }
std::span<const std::string_view> top_k_keys() { return kTopKKeys; }
std::span<const std::string_view> hidden_keys() { return kHiddenKeys; }

std::span<const HuggingFaceFact> hugging_face_facts() { return kFacts; }

std::span<const std::string_view> expert_formula_keys() { return kExpertFormulaKeys; }

}  // namespace moejit::compiler
