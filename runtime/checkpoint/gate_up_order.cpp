// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/gate_up_order.h"

#include "compiler/support/file.h"
#include "compiler/support/json_document.h"

#include <algorithm>
#include <array>
#include <filesystem>

namespace moejit::checkpoint {
namespace {

using compiler::GateUpLayout;

struct Family {
  std::string_view model_type;
  GateUpLayout layout;
};

// Families whose checkpoints may have fused tensors. Their expert classes in transformers tell the
// layout (is_concatenated).
constexpr std::array kFamilies = {
    Family{"gpt_oss", GateUpLayout::kInterleaved},
    Family{"openai_privacy_filter", GateUpLayout::kConcat},
    Family{"aria_text", GateUpLayout::kConcat},
    Family{"granitemoe", GateUpLayout::kConcat},
    Family{"granitemoeshared", GateUpLayout::kConcat},
    Family{"granitemoehybrid", GateUpLayout::kConcat},
    Family{"llama4", GateUpLayout::kConcat},
    Family{"llama4_text", GateUpLayout::kConcat},
    Family{"mixtral", GateUpLayout::kConcat},
    Family{"qwen2_moe", GateUpLayout::kConcat},
    Family{"qwen3_moe", GateUpLayout::kConcat},
    Family{"qwen3_next", GateUpLayout::kConcat},
    Family{"qwen3_vl_moe", GateUpLayout::kConcat},
    Family{"qwen3_vl_moe_text", GateUpLayout::kConcat},
    Family{"qwen3_5_moe", GateUpLayout::kConcat},
    Family{"qwen3_5_moe_text", GateUpLayout::kConcat},
    Family{"deepseek_v2", GateUpLayout::kConcat},
    Family{"deepseek_v3", GateUpLayout::kConcat},
    Family{"glm4_moe", GateUpLayout::kConcat},
    Family{"olmoe", GateUpLayout::kConcat},
    Family{"minimax_m2", GateUpLayout::kConcat},
};

const JsonValue* find(const JsonValue& object, std::string_view key) {
  for (const JsonMember& member : object.members)
    if (member.key == key) return &member.value;
  return nullptr;
}

}  // namespace

std::optional<GateUpLayout> family_gate_up_layout(const std::string& folder) {
  const std::string path = (std::filesystem::path(folder) / "config.json").string();
  const auto text = read_text_file(path);
  if (!text) return std::nullopt;
  const auto document = parse_json(*text, {.source_name = path});
  if (!document) return std::nullopt;
  const JsonValue* inner = find(document->root, "text_config");
  const JsonValue* type = inner == nullptr ? nullptr : find(*inner, "model_type");
  if (type == nullptr) type = find(document->root, "model_type");
  if (type == nullptr) return std::nullopt;
  const auto* const family = std::ranges::find(kFamilies, type->text, &Family::model_type);
  return family == kFamilies.end() ? std::nullopt : std::optional(family->layout);
}

}  // namespace moejit::checkpoint
