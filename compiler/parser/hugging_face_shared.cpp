// SPDX-License-Identifier: Apache-2.0
#include "compiler/parser/hugging_face_shared.h"

#include "compiler/parser/layer_schema.h"

#include <array>
#include <fmt/core.h>
#include <optional>
#include <string>
#include <string_view>

namespace moejit::compiler {
namespace {

// The shared experts of some families: `count` of them, each `width` wide. Facts come from the
// transformers library, version 5.23.
struct Row {
  std::string_view model_types;   // separated by blanks
  std::string_view count = {};    // a key; empty: one
  int32_t usual_count = 1;        // without the key
  std::string_view width = {};    // a key; empty: an expert's width
  bool gate = false;              // whether a sigmoid of the token multiplies their results
  std::string_view refusal = {};  // why they cannot run in the layer
};

constexpr std::array kRows = std::to_array<Row>({
    {.model_types = "deepseek_v3 deepseek_v32 deepseek_v4 kimi_k2 glm4_moe glm4_moe_lite glm4v_moe "
                    "glm_moe_dsa glm5_next mistral4 mistral_large4 axk1 axk2 solar_open",
     .count = "n_shared_experts"},
    {.model_types = "deepseek_v2 deepseek_ocr2 unlimited_ocr",
     .count = "n_shared_experts",
     .usual_count = 2},
    {.model_types = "dots1", .count = "n_shared_experts", .usual_count = 0},
    {.model_types = "kimi_linear bailing_hybrid exaone_moe hy_v3", .count = "num_shared_experts"},
    {.model_types = "afmoe", .count = "num_shared_experts", .usual_count = 2},
    {.model_types = "cohere2_moe", .count = "num_shared_experts", .usual_count = 0},
    {.model_types = "aria ernie4_5_moe ernie4_5_vl_moe",
     .count = "moe_num_shared_experts",
     .usual_count = 2},
    {.model_types = "hunyuan_v1_moe"},
    {.model_types = "qwen2_moe qwen3_next qwen3_5_moe qwen3_omni_moe_talker qwen4_exp",
     .width = "shared_expert_intermediate_size",
     .gate = true},
    {.model_types = "flint kolibri1 laguna", .width = "shared_expert_intermediate_size"},
    {.model_types = "dots3_note",
     .count = "n_shared_experts",
     .width = "shared_experts_intermediate_size"},
    {.model_types = "granitemoeshared granitemoe_swa granitemoehybrid minimax_m3_vl",
     .width = "shared_intermediate_size"},
    {.model_types = "nemotron_h", .width = "moe_shared_expert_intermediate_size"},
    {.model_types = "hy_v4",
     .refusal = "the experts' activation has a limit, and that of the shared experts has none"},
    {.model_types = "step3p5 step3p7",
     .refusal = "the shared experts' activation has limits of its own"},
    {.model_types = "inkling",
     .refusal = "the router weighs each shared expert together with the chosen ones"},
    {.model_types = "llama4",
     .refusal =
         "probabilities multiply the experts' inputs, and the shared expert's are the tokens"},
});

const Row* find_row(std::string_view model_type) {
  const std::string word = fmt::format(" {} ", model_type);
  for (const Row& row : kRows)
    if (fmt::format(" {} ", row.model_types).find(word) != std::string::npos) return &row;
  return nullptr;
}

// Returns the number under a key of a configuration; null is 0.
Result<int64_t> read_number(const HuggingFaceSource& source, std::string_view key,
                            int64_t otherwise) {
  if (key.empty()) return otherwise;
  std::optional<JsonView> view = source.config.find(key);
  if (!view && source.parent) view = source.parent->find(key);
  if (!view) return otherwise;
  if (view->is_null()) return 0;
  return view->read_int({.lowest = 0, .highest = kWidthRange.highest});
}

Result<void> check_like_experts(const HuggingFaceSource& source) {
  constexpr const char* kHint = "compute the shared experts beside the layer";
  const std::optional<JsonView> latent = source.config.find("moe_latent_size");
  if (source.family.has_latent_tokens && latent && !latent->is_null())
    return latent->fail(ErrorCode::kUnsupported,
                        "got experts that see a projection of the tokens, and shared experts that "
                        "see the tokens",
                        kHint);
  for (const std::string_view key : {"mlp_bias", "use_bias"})
    if (const std::optional<JsonView> bias = source.config.find(key);
        bias && bias->value().boolean && !source.family.biases)
      return bias->fail(ErrorCode::kUnsupported,
                        "got shared experts with biases, beside experts without", kHint);
  return {};
}

}  // namespace

Result<SharedExperts> read_hugging_face_shared(const HuggingFaceSource& source,
                                               int32_t intermediate) {
  const Row* const row = find_row(source.model_type);
  const JsonView place = source.config.find("model_type").value_or(source.config);
  if (row == nullptr && source.is_known) return SharedExperts{};
  if (row == nullptr)
    return place.fail(ErrorCode::kUnsupported, "got a family whose shared experts are not known",
                      "write \"shared\" by hand if you know them: docs/layer-description.md");
  if (!row->refusal.empty())
    return place.fail(ErrorCode::kUnsupported,
                      fmt::format("got {}: {}", source.model_type, row->refusal),
                      "compute the shared experts beside the layer");
  MOEJIT_TRY_ASSIGN(const int64_t count, read_number(source, row->count, row->usual_count));
  MOEJIT_TRY_ASSIGN(const int64_t width, read_number(source, row->width, intermediate));
  if (count * width == 0) return SharedExperts{};
  MOEJIT_TRY(check_like_experts(source));
  if (count * width % intermediate != 0 || count * width / intermediate > kSharedRange.highest)
    return place.fail(
        ErrorCode::kUnsupported,
        fmt::format("got shared experts {} wide in all, wanted 1 to {} times the experts' {}",
                    count * width, kSharedRange.highest, intermediate),
        "compute the shared experts beside the layer");
  return SharedExperts{.experts = static_cast<int32_t>(count * width / intermediate),
                       .gate = row->gate};
}

}  // namespace moejit::compiler
