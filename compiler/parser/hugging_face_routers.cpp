// SPDX-License-Identifier: Apache-2.0
// The routers of model families as rows.
#include "compiler/parser/hugging_face_router.h"

namespace moejit::compiler {
namespace {

using Field = HuggingFaceRouterField;
using Fields = std::array<Field, 8>;
using Text = std::string_view;

constexpr Field kSigmoid = {"score", "\"sigmoid\""};
constexpr Field kAfter = {"when", "\"after\""};
constexpr Field kBias = {"bias", "true"};
constexpr Field kSum = {"normalize", "\"sum\""};
constexpr Field kTiny = {"epsilon", "1e-20"};
constexpr Field kBf16 = {"logits_dtype", "\"bf16\""};
constexpr Field kFillZero = {"group_fill", "\"zero\""};
constexpr Field kGreedy = {"topk_method", "\"greedy\"", "topk_method"};

constexpr Field normalized(Text value) { return {"normalize", value, "norm_topk_prob"}; }
constexpr Field scaled(Text value) { return {"scale", value, "routed_scaling_factor"}; }
constexpr Field groups(Text value) { return {"groups", value, "n_group"}; }
constexpr Field kept(Text value) { return {"groups_kept", value, "topk_group"}; }
constexpr Field score(Text value) { return {"score", value, "scoring_func"}; }

// Routers of one form, whose configuration classes have other defaults.
constexpr Fields qwen(Text is_normalized) { return {kBf16, normalized(is_normalized)}; }
constexpr Fields deepseek_v3(Text n_group, Text topk_group, Text scale,
                             Text is_normalized = "true") {
  return {kSigmoid, kBias,        groups(n_group), kept(topk_group), normalized(is_normalized),
          kTiny,    scaled(scale)};
}
constexpr Fields biased_sigmoid(Text scale, Field logits = {}) {
  return {kSigmoid, kBias, kSum, kTiny, scaled(scale), logits};
}
// Multiplies the experts' sum by the scale, where others multiply weights.
constexpr Fields minimax(Field scale, Field softcap = {}) {
  return {kSigmoid, kBias, kSum, kBf16, scale, softcap};
}

constexpr std::array kRouters = std::to_array<HuggingFaceRouter>({
    {"qwen3_moe qwen2_moe qwen3_omni_moe_talker olmoe flex_olmo", qwen("false")},
    {"qwen3_next qwen3_omni_moe qwen4_exp mellum", qwen("true")},
    {"qwen3_vl_moe qwen3_5_moe mixtral minimax hunyuan_v1_moe", {kBf16, kSum}},
    {"jamba", {kBf16}},
    {"gpt_oss granitemoe granitemoeshared granitemoe_swa granitemoehybrid aria jetmoe",
     {kAfter, kBf16}},
    {"openai_privacy_filter", {kAfter, {"scale", "1 / top_k"}}},
    {"deepseek_v2 deepseek_ocr2 unlimited_ocr",
     {kGreedy, groups("1"), kept("1"), Field{"group_score", "\"max\""}, kFillZero, scaled("1")}},
    {"deepseek_v3 deepseek_v32 kimi_k2 axk1 bailing_hybrid beam", deepseek_v3("8", "4", "2.5")},
    {"axk2",
     {kSigmoid, kBias, groups("1"), kept("1"), kFillZero, normalized("true"), kTiny,
      scaled("2.5")}},
    {"glm4_moe glm4v_moe nemotron_h dots3_note mimo_v2_flash solar_open",
     deepseek_v3("1", "1", "1")},
    {"glm4_moe_lite", deepseek_v3("1", "1", "1.8")},
    {"glm_moe_dsa glm5_next exaone_moe", deepseek_v3("1", "1", "2.5")},
    {"kimi_linear", deepseek_v3("1", "1", "2.446")},
    {"hy_v4", deepseek_v3("1", "1", "2.827")},
    {"dots1", deepseek_v3("1", "1", "1", "false")},
    {"mistral4",
     {groups("1"), kept("1"), kFillZero, normalized("true"), kTiny, scaled("1"), kBf16}},
    {"mistral_large4", {groups("1"), kept("1"), kFillZero, kSum, kTiny, scaled("1")}},
    {"deepseek_v4", {score("\"sqrtsoftplus\""), kBias, kSum, kTiny, scaled("1.5"), kBf16}},
    {"inkling2", {score("\"sigmoid\""), kBias, kSum, kTiny, scaled("8")}},
    {"minimax_m2", minimax({})},
    {"minimax_m3_vl", minimax(scaled("2"))},
    {"step3p5", minimax(scaled("1"))},
    {"laguna", minimax(scaled("1"), {"softcap", "0", "moe_router_logit_softcapping"})},
    {"afmoe", biased_sigmoid("1", kBf16)},
    {"hy_v3", biased_sigmoid("2.826")},
    {"dots3_note_vision_encoder", biased_sigmoid("1")},
    {"lfm2_moe",
     {kSigmoid, Field{"bias", "true", "use_expert_bias"}, normalized("true"),
      Field{"epsilon", "1e-6"}, scaled("1"), kBf16}},
    {"flint", {kSigmoid, normalized("true")}},
    {"kolibri1", {kSigmoid, kAfter, kBias, normalized("false")}},
    {"cohere2_moe", {score("\"softmax\""), kAfter, normalized("true"), kBf16}},
    {"longcat_flash", {kBias, Field{"zero_experts", "256", "zero_expert_num"}, scaled("6")}},
    {"ernie4_5_moe ernie4_5_vl_moe",
     {kBias, Field{"normalize", "\"floor\""}, Field{"epsilon", "1e-12", "moe_norm_min"}}},
    {"gemma4 diffusion_gemma", {kSum, Field{"expert_scale", "true"}, kBf16}},
    {"llama4", {}, "its probabilities multiply the input of experts, not their results"},
    {"inkling", {}, "the chosen experts share a softmax with the shared experts"},
    {"dbrx", {}, "it divides weights by another norm than the sum"},
    {"phimoe", {}, "it draws experts at random in training, and masks logits by their distance"},
    {"zaya", {}, "its logits come from an MLP with a state, and one of its choices is no expert"},
    {"switch_transformers nllb-moe", {}, "it drops choices beyond an expert's capacity"},
});

// The first name is what rows above call a key.
constexpr std::array kNormalizedNames =
    std::to_array<std::string_view>({"norm_topk_prob", "moe_renormalize"});
constexpr std::array kGroupNames = std::to_array<std::string_view>({"n_group", "num_expert_group"});
constexpr std::array kScaleNames = std::to_array<std::string_view>(
    {"routed_scaling_factor", "router_scaling_factor", "moe_routed_scaling_factor",
     "moe_router_scaling_factor", "route_scale"});
constexpr std::array kScoreNames = std::to_array<std::string_view>(
    {"scoring_func", "score_func", "score_function", "expert_selection_fn",
     "moe_router_activation_func", "moe_router_activation"});
constexpr std::array kKeyNames = std::to_array<std::span<const std::string_view>>(
    {kNormalizedNames, kGroupNames, kScaleNames, kScoreNames});

}  // namespace

std::span<const HuggingFaceRouter> hugging_face_routers() { return kRouters; }

std::span<const std::string_view> router_key_names(std::string_view key) {
  for (const std::span<const std::string_view> names : kKeyNames)
    if (names.front() == key) return names;
  return {};
}

}  // namespace moejit::compiler
