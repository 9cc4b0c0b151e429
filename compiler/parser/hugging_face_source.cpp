// SPDX-License-Identifier: Apache-2.0
#include "compiler/parser/hugging_face_source.h"

#include "compiler/parser/layer_schema.h"

#include <algorithm>
#include <array>
#include <fmt/core.h>
#include <fmt/ranges.h>

namespace moejit::compiler {
namespace {

constexpr std::array kNonFinite = std::to_array<std::string_view>({"NaN", "Infinity", "-Infinity"});

// Returns the length of the string that begins at `start` with its quote, with both quotes.
std::size_t string_length(std::string_view text, std::size_t start) {
  std::size_t end = start + 1;
  while (end < text.size() && text[end] != '"') end += text[end] == '\\' ? 2 : 1;
  return std::min(end + 1, text.size()) - start;
}

std::size_t non_finite_length(std::string_view text) {
  for (const std::string_view name : kNonFinite)
    if (text.starts_with(name)) return name.size();
  return 0;
}

std::string replace_non_finite(std::string_view text) {
  std::string replaced;
  replaced.reserve(text.size());
  for (std::size_t i = 0; i < text.size();) {
    std::size_t length = text[i] == '"' ? string_length(text, i) : 1;
    if (const std::size_t number = non_finite_length(text.substr(i)); number > 0) {
      replaced += "null";
      length = number;
    } else {
      replaced += text.substr(i, length);
    }
    i += length;
  }
  return replaced;
}

}  // namespace

Result<JsonDocument> parse_python_json(std::string_view text, const JsonOptions& options) {
  const bool is_python = text.find("NaN") != text.npos || text.find("Infinity") != text.npos;
  if (text.size() > options.max_bytes || !is_python) return parse_json(text, options);
  return parse_json(replace_non_finite(text), options);
}

namespace {

constexpr std::size_t kRootLength = std::string_view("$.").size();
constexpr std::string_view kTypeKey = "model_type";
constexpr int kMaxConfigDepth = 3;  // thinker_config.text_config, and one more
// Keys of objects that are no configurations of models, whatever they contain.
constexpr std::array kOtherObjects =
    std::to_array<std::string_view>({"per_layer_config", "quantization_config"});
// A description is about the language model first, even if a vision encoder has experts too.
constexpr std::array kLanguageModels = std::to_array<std::string_view>(
    {"text_config", "thinker_config", "language_config", "llm_config"});

bool is_given(const std::optional<JsonView>& view) { return view && !view->is_null(); }

bool has_any(const JsonView& config, std::span<const std::string_view> keys) {
  return std::ranges::any_of(keys,
                             [&](std::string_view key) { return is_given(config.find(key)); });
}

std::string type_of(const JsonView& config) {
  const std::optional<JsonView> type = config.find(kTypeKey);
  return type && type->value().kind == JsonKind::kString ? type->value().text : std::string();
}

// An object within a configuration. If it has no model_type, the object around it.
struct ConfigPlace {
  JsonView config;
  std::optional<JsonView> parent;
  std::string model_type;
};

// Appends `at` and all objects within it, language models before others.
void collect(const ConfigPlace& at, int depth, std::vector<ConfigPlace>& found) {
  found.push_back(at);
  if (depth == kMaxConfigDepth) return;
  const Result<std::vector<JsonView>> members = at.config.read_members();
  if (!members) return;
  const auto descend = [&](const JsonView& member) {
    if (member.value().kind != JsonKind::kObject) return;
    if (std::ranges::find(kOtherObjects, member.key()) != kOtherObjects.end()) return;
    const std::string type = type_of(member);
    if (type.empty())
      collect({member, at.config, at.model_type}, depth + 1, found);
    else
      collect({member, std::nullopt, type}, depth + 1, found);
  };
  const auto is_language_model = [](const JsonView& member) {
    return std::ranges::find(kLanguageModels, member.key()) != kLanguageModels.end();
  };
  for (const JsonView& member : *members)
    if (is_language_model(member)) descend(member);
  for (const JsonView& member : *members)
    if (!is_language_model(member)) descend(member);
}

// Makes up a record for an unknown family, from the keys that most families have.
HuggingFaceFamily guess_family(const ConfigPlace& candidate) {
  HuggingFaceFamily family{.model_type = {}, .models = {}};
  const JsonView& config = candidate.config;
  if (!has_any(config, family.intermediate))
    family.intermediate = {"intermediate_size", "ffn_hidden_size"};
  for (const std::string_view key : {"hidden_activation", "activation_function"})
    if (is_given(config.find(key)) && !is_given(config.find("hidden_act"))) family.activation = key;
  return family;
}

HuggingFaceSource make_source(const ConfigPlace& candidate) {
  const HuggingFaceFamily* known = find_hugging_face_family(candidate.model_type);
  return {.model_type = known != nullptr ? std::string(known->model_type) : candidate.model_type,
          .family = known != nullptr ? *known : guess_family(candidate),
          .is_known = known != nullptr,
          .config = candidate.config,
          .parent = candidate.parent,
          .others = {}};
}

// Returns whether an object without a number of experts has a null in its place, or a switch.
bool names_experts(const ConfigPlace& candidate, const HuggingFaceFamily& family) {
  if (!family.switched_by.empty() && candidate.config.find(family.switched_by)) return true;
  return std::ranges::any_of(expert_count_keys(), [&](std::string_view key) {
    return candidate.config.find(key).has_value();
  });
}

// Refuses a configuration without any number of experts. Otherwise returns the family whose reading
// shows what is missing.
Result<HuggingFaceSource> explain_absence(const JsonView& root,
                                          const std::vector<ConfigPlace>& candidates) {
  // Reading a known family shows what is missing, best if something says that experts are off.
  const ConfigPlace* known = nullptr;
  for (const ConfigPlace& candidate : candidates) {
    const HuggingFaceFamily* family = find_hugging_face_family(candidate.model_type);
    if (family == nullptr || candidate.parent) continue;
    if (known == nullptr || names_experts(candidate, *family)) known = &candidate;
    if (names_experts(candidate, *family)) break;
  }
  if (known != nullptr) return make_source(*known);
  Result<JsonView> type = root.at(kTypeKey);
  if (!type) {
    const bool is_layer = root.find("experts") && root.find("top_k") && root.find("hidden");
    type.error().hint = is_layer ? "it looks like a layer description already: moejit layer FILE"
                                 : "wanted config.json of a model";
    return tl::make_unexpected(std::move(type).error());
  }
  MOEJIT_TRY(type->read_string());
  return type->fail(
      ErrorCode::kUnsupported,
      fmt::format("got {}, a model without experts: none of {} is there", type->got(),
                  fmt::join(expert_count_keys(), ", ")),
      fmt::format("a dense model has no MoE layer; of experts under other names {}", kWriteByHand));
}

Result<void> check_switch(const HuggingFaceSource& source) {
  if (source.family.switched_by.empty()) return {};
  const std::optional<JsonView> view = source.config.find(source.family.switched_by);
  if (!view) return {};
  MOEJIT_TRY_ASSIGN(const bool is_on, view->read_bool());
  if (is_on) return {};
  return view->fail(ErrorCode::kUnsupported, "got false, a model without experts",
                    "a dense model has no MoE layer");
}

Result<void> check_expressible(const HuggingFaceSource& source) {
  if (source.family.refusal.empty()) return {};
  const JsonView place = source.config.find(kTypeKey).value_or(source.config);
  return place.fail(ErrorCode::kUnsupported,
                    fmt::format("got {}, which a layer description cannot express: {}",
                                source.family.model_type, source.family.refusal),
                    fmt::format("of the part that it can, {}", kWriteByHand));
}

}  // namespace

Result<HuggingFaceSource> find_hugging_face_source(const JsonView& root) {
  MOEJIT_TRY(root.check_object());
  if (const std::optional<JsonView> type = root.find(kTypeKey)) MOEJIT_TRY(type->read_string());
  std::vector<ConfigPlace> candidates;
  collect({root, std::nullopt, type_of(root)}, 0, candidates);
  std::vector<ConfigPlace> with_experts;
  for (const ConfigPlace& candidate : candidates)
    if (has_any(candidate.config, expert_count_keys())) with_experts.push_back(candidate);

  const bool is_absent = with_experts.empty();
  Result<HuggingFaceSource> source =
      is_absent ? explain_absence(root, candidates) : make_source(with_experts.front());
  if (!source) return source;
  for (std::size_t i = 1; i < with_experts.size(); ++i)
    source->others.push_back(with_experts[i].config.path().substr(kRootLength));
  MOEJIT_TRY(check_switch(*source));
  MOEJIT_TRY(check_expressible(*source));
  return source;
}

}  // namespace moejit::compiler
