// SPDX-License-Identifier: Apache-2.0
#include "compiler/parser/hugging_face_router.h"

#include "compiler/parser/read_router.h"
#include "compiler/support/json_document.h"
#include "compiler/support/json_text.h"

#include <algorithm>
#include <array>
#include <fmt/core.h>
#include <map>
#include <optional>
#include <string>

namespace moejit::compiler {
namespace {

// RouterValues of "router" as JSON, by the names of fields.
using RouterValues = std::map<std::string_view, std::string, std::less<>>;

const HuggingFaceRouter* find_router(std::string_view model_type) {
  const std::string word = fmt::format(" {} ", model_type);
  for (const HuggingFaceRouter& router : hugging_face_routers())
    if (fmt::format(" {} ", router.model_types).find(word) != std::string::npos) return &router;
  return nullptr;
}

// Returns the value of a key under any of its names. An explicit null is one too: of groups it
// means that there are none.
std::optional<JsonView> find_key(const HuggingFaceSource& source, std::string_view key) {
  const std::array<std::string_view, 1> itself = {key};
  std::span<const std::string_view> names = router_key_names(key);
  if (names.empty()) names = itself;
  for (const std::string_view name : names) {
    if (const std::optional<JsonView> view = source.config.find(name)) return view;
    if (!source.parent) continue;
    if (const std::optional<JsonView> view = source.parent->find(name)) return view;
  }
  return std::nullopt;
}

// Returns what a key makes of a field, as JSON.
Result<std::string> value_of(const HuggingFaceRouterField& field, const JsonView& view) {
  if (field.name == "normalize") {
    MOEJIT_TRY_ASSIGN(const bool is_on, view.read_bool());
    return std::string(is_on ? "true" : "false");
  }
  switch (view.value().kind) {
    case JsonKind::kBoolean: return std::string(view.value().boolean ? "true" : "false");
    case JsonKind::kNumber: return view.value().text;
    case JsonKind::kString: return json_string(view.value().text);
    default: return view.fail(ErrorCode::kWrongType, fmt::format("got {}", view.got()));
  }
}

Result<RouterValues> read_values(const HuggingFaceRouter& router, const HuggingFaceSource& source) {
  RouterValues values;
  for (const HuggingFaceRouterField& field : router.fields) {
    if (field.name.empty()) continue;
    std::string& value = values[field.name];
    value = field.value;
    if (field.key.empty()) continue;
    const std::optional<JsonView> view = find_key(source, field.key);
    if (!view) continue;
    if (view->is_null() && field.name.starts_with("groups")) {
      value = "1";
      continue;
    }
    if (view->is_null()) continue;
    MOEJIT_TRY_ASSIGN(value, value_of(field, *view));
  }
  return values;
}

// Refuses configurations that name another way to choose than the family's modules have.
Result<void> check_method(const HuggingFaceSource& source, const RouterValues& values) {
  const auto refuse_other = [&](std::string_view key, std::string_view wanted) -> Result<void> {
    const std::optional<JsonView> view = find_key(source, key);
    if (!view || view->value().kind != JsonKind::kString || view->value().text == wanted) return {};
    return view->fail(ErrorCode::kUnsupported,
                      fmt::format("got {}, but the modules of {} have {}", view->got(),
                                  source.family.model_type, wanted),
                      "write \"router\" by hand: docs/router.md");
  };
  if (!values.contains("topk_method")) MOEJIT_TRY(refuse_other("topk_method", "noaux_tc"));
  const auto score = values.find("score");
  const std::string own = score == values.end() ? json_string("softmax") : score->second;
  return refuse_other("scoring_func", std::string_view(own).substr(1, own.size() - 2));
}

// Removes fields without a meaning beside others, and turns what rows abbreviate into JSON.
void complete(RouterValues& values, int32_t top_k) {
  if (const auto method = values.extract("topk_method");
      method && method.mapped() != json_string("group_limited_greedy"))
    values["groups"] = "1";
  if (const auto groups = values.find("groups"); groups != values.end() && groups->second == "1")
    for (const std::string_view key : {"groups", "groups_kept", "group_score", "group_fill"})
      values.erase(std::string_view(key));
  if (const auto normalize = values.find("normalize"); normalize != values.end()) {
    if (normalize->second == "true") normalize->second = json_string("sum");
    if (normalize->second == "false") {
      normalize->second = json_string("none");
      values.erase("epsilon");
    }
  }
  if (const auto scale = values.find("scale");
      scale != values.end() && scale->second == "1 / top_k")
    scale->second = fmt::format("{}", 1.0 / top_k);
}

std::string object_of(const RouterValues& values) {
  std::string text;
  for (const auto& [name, value] : values)
    text += fmt::format("{}{}: {}", text.empty() ? "" : ", ", json_string(name), value);
  return "{" + text + "}";
}

}  // namespace

Result<RouterFormula> read_hugging_face_router(const HuggingFaceSource& source, int32_t experts,
                                               int32_t top_k) {
  const HuggingFaceRouter* const router = find_router(source.model_type);
  const JsonView place = source.config.find("model_type").value_or(source.config);
  constexpr std::string_view kHint = "write \"router\" by hand if you know it: docs/router.md";
  if (router == nullptr)
    return place.fail(ErrorCode::kUnsupported, "got a family whose router is not known",
                      std::string(kHint));
  if (!router->refusal.empty())
    return place.fail(ErrorCode::kUnsupported,
                      fmt::format("got {}, whose router no formula expresses: {}",
                                  source.model_type, router->refusal),
                      "choose experts by the model's own router");
  MOEJIT_TRY_ASSIGN(RouterValues values, read_values(*router, source));
  MOEJIT_TRY(check_method(source, values));
  complete(values, top_k);
  const std::string name = "router of " + source.model_type;
  MOEJIT_TRY_ASSIGN(const JsonDocument document,
                    parse_json(object_of(values), {.source_name = name}));
  return read_router(JsonView(document), experts, top_k);
}

}  // namespace moejit::compiler
