// SPDX-License-Identifier: Apache-2.0
#include "compiler/compiler.h"
#include "compiler/operation/operation_draft.h"
#include "compiler/parser/layer_schema.h"
#include "compiler/support/json_text.h"

#include <fmt/core.h>

namespace moejit::compiler {
namespace {

using Draft = OperationDraft;

struct DescribedOperation {
  std::string_view name;
  void (*describe)(Draft& draft);
};

// Every operation, in the order in which errors list them.
constexpr DescribedOperation kOperations[] = {
    {"quantize", describe_quantize},
    {"quantize_weights", describe_quantize_weights},
    {"pack_weights", describe_pack_weights},
    {"route", describe_route},
    {"permute_pad", [](Draft& draft) { describe_permute(draft, false, false); }},
    {"quantize_permute_pad", [](Draft& draft) { describe_permute(draft, true, false); }},
    {"unpermute", [](Draft& draft) { describe_unpermute(draft, false); }},
    {"permute_pad_grad", [](Draft& draft) { describe_permute(draft, false, true); }},
    {"quantize_permute_pad_grad", [](Draft& draft) { describe_permute(draft, true, true); }},
    {"unpermute_grad", [](Draft& draft) { describe_unpermute(draft, true); }},
    {"activation", [](Draft& draft) { describe_activation(draft, false); }},
    {"activation_quantize", [](Draft& draft) { describe_activation(draft, true); }},
    {"activation_backward", [](Draft& draft) { describe_activation_backward(draft, false); }},
    {"activation_backward_quantize",
     [](Draft& draft) { describe_activation_backward(draft, true); }},
    {"transpose", describe_transpose},
    {"scale_columns", describe_scale_columns},
    {"quantize_columns", describe_quantize_columns},
    {"scale_weight_columns", describe_scale_weight_columns},
    {"quantize_weight_columns", describe_quantize_weight_columns},
    {"swizzle_scales", describe_swizzle_scales},
    {"multi_cast_transpose", describe_multi_cast_transpose},
    {"grouped_gemm", describe_grouped_gemm},
    {"contraction_grouped_gemm", describe_contraction_grouped_gemm},
    {"amax_rows", describe_amax_rows},
    {"amax_weights", describe_amax_weights},
    {"scale_experts", describe_scale_experts},
    {"router", describe_router},
    {"router_backward", describe_router_backward},
};

// Checks that the description has no other keys than one in which all fields have their defaults.
Result<void> check_keys(const JsonView& root, const DescribedOperation& operation) {
  JsonDocument empty;
  empty.root.kind = JsonKind::kObject;
  Draft draft(operation.name, JsonView(empty));
  operation.describe(draft);
  std::vector<std::string_view> keys = {"operation"};
  for (const OperationField& field : draft.fields()) keys.push_back(field.key);
  return root.check_keys(keys);
}

Result<JsonDocument> parse_description(std::string_view json, std::string_view source_name) {
  return parse_json(json, {.source_name = source_name,
                           .max_bytes = kMaxDescriptionBytes,
                           .max_values = kMaxDescriptionValues});
}

std::string json_of(int64_t value) { return std::to_string(value); }
std::string json_of(bool value) { return value ? "true" : "false"; }
std::string json_of(const std::string& value) { return json_string(value); }
std::string json_of(const Activation& value) { return to_json(value); }
std::string json_of(const RouterFormula& value) { return to_json(value); }
std::string json_of(const std::vector<MatrixSize>& sizes) {
  std::string list;
  for (const MatrixSize& size : sizes)
    list += fmt::format("{}[{}, {}]", list.empty() ? "" : ", ", size.rows, size.columns);
  return fmt::format("[{}]", list);
}

}  // namespace

bool describes_operation(std::string_view json) {
  const auto document = parse_description(json, "");
  return document && find_member(document->root, "operation") != nullptr;
}

std::vector<std::string_view> operation_names() {
  std::vector<std::string_view> names;
  for (const DescribedOperation& operation : kOperations) names.push_back(operation.name);
  return names;
}

Result<OperationParts> read_operation(std::string_view json, std::string_view source_name) {
  MOEJIT_TRY_ASSIGN(const JsonDocument document, parse_description(json, source_name));
  const JsonView root(document);
  MOEJIT_TRY_ASSIGN(const JsonView name, root.at("operation"));
  MOEJIT_TRY_ASSIGN(const std::size_t index, name.read_choice(operation_names()));
  const DescribedOperation& operation = kOperations[index];
  MOEJIT_TRY(check_keys(root, operation));
  Draft draft(operation.name, root);
  operation.describe(draft);
  return std::move(draft).take();
}

Result<OperationDescription> parse_operation(std::string_view json, std::string_view source_name) {
  MOEJIT_TRY_ASSIGN(OperationParts parts, read_operation(json, source_name));
  return std::move(parts.description);
}

std::string to_json(const OperationDescription& operation) {
  std::string members = fmt::format("  \"operation\": {}", json_string(operation.name));
  for (const auto& [key, value] : operation.fields)
    members += fmt::format(",\n  {}: {}", json_string(key),
                           std::visit([](const auto& one) { return json_of(one); }, value));
  return fmt::format("{{\n{}\n}}\n", members);
}

}  // namespace moejit::compiler
