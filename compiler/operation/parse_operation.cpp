// SPDX-License-Identifier: Apache-2.0
#include "compiler/compiler.h"
#include "compiler/operation/fields.h"
#include "compiler/parser/layer_schema.h"
#include "compiler/parser/read_layer_parts.h"

#include <fmt/core.h>
#include <optional>

namespace moejit::compiler {
namespace {

constexpr std::size_t kMostSizes = 1024;  // most tensors in a list, within kMaxDescriptionValues

// Collects the keys of a description.
class KeyLister final : public FieldVisitor {
 public:
  std::vector<std::string_view> keys = {"operation"};

  void required(std::string_view key, int64_t& /*value*/, const IntRange& /*range*/) override {
    keys.push_back(key);
  }
  void integer(std::string_view key, int64_t& /*value*/, const IntRange& /*range*/) override {
    keys.push_back(key);
  }
  void boolean(std::string_view key, bool& /*value*/) override { keys.push_back(key); }
  void activation(Activation& /*value*/) override { keys.push_back("activation"); }
  void sizes(std::string_view key, std::vector<MatrixSize>& /*value*/) override {
    keys.push_back(key);
  }
  void name(std::string_view key, std::size_t& /*index*/,
            std::span<const std::string_view> /*names*/) override {
    keys.push_back(key);
  }
};

Result<MatrixSize> read_size(const JsonView& view) {
  constexpr IntRange kSizeRange{.lowest = 0, .highest = int64_t{1} << 31};
  MOEJIT_TRY_ASSIGN(const std::vector<JsonView> numbers, view.read_array());
  if (numbers.size() != 2)
    return view.fail(ErrorCode::kInvalidValue,
                     fmt::format("got {} numbers, wanted [rows, columns]", numbers.size()));
  MOEJIT_TRY_ASSIGN(const int64_t rows, numbers[0].read_int(kSizeRange));
  MOEJIT_TRY_ASSIGN(const int64_t columns, numbers[1].read_int(kSizeRange));
  return MatrixSize{rows, columns};
}

Result<std::vector<MatrixSize>> read_sizes(const JsonView& view) {
  MOEJIT_TRY_ASSIGN(const std::vector<JsonView> elements, view.read_array());
  if (elements.empty() || elements.size() > kMostSizes)
    return view.fail(ErrorCode::kInvalidValue,
                     fmt::format("got {} sizes, wanted 1 to {}", elements.size(), kMostSizes));
  std::vector<MatrixSize> sizes;
  for (const JsonView& element : elements) {
    MOEJIT_TRY_ASSIGN(const MatrixSize size, read_size(element));
    sizes.push_back(size);
  }
  return sizes;
}

// Reads fields of a document, up to the first wrong one.
class Reader final : public FieldVisitor {
 public:
  explicit Reader(const JsonView& root) : root_(root) {}
  Result<void> result;

  void required(std::string_view key, int64_t& value, const IntRange& range) override {
    if (!result) return;
    const Result<JsonView> view = root_.at(key);
    if (view)
      take(view->read_int(range), value);
    else
      result = tl::unexpected(view.error());
  }
  void integer(std::string_view key, int64_t& value, const IntRange& range) override {
    read(key, value, [&](const JsonView& view) { return view.read_int(range); });
  }
  void boolean(std::string_view key, bool& value) override {
    read(key, value, [](const JsonView& view) { return view.read_bool(); });
  }
  void activation(Activation& value) override { read("activation", value, read_activation); }
  void sizes(std::string_view key, std::vector<MatrixSize>& value) override {
    if (!result) return;
    const Result<JsonView> view = root_.at(key);
    if (view)
      take(read_sizes(*view), value);
    else
      result = tl::unexpected(view.error());
  }
  void name(std::string_view key, std::size_t& index,
            std::span<const std::string_view> names) override {
    read(key, index, [&](const JsonView& view) { return view.read_choice(names); });
  }

 private:
  template <typename Value>
  void take(Result<Value> got, Value& value) {
    if (got)
      value = std::move(*got);
    else
      result = tl::unexpected(std::move(got).error());
  }
  template <typename Value, typename Read>
  void read(std::string_view key, Value& value, const Read& read_value) {
    if (!result) return;
    if (const std::optional<JsonView> view = root_.find(key)) take(read_value(*view), value);
  }

  const JsonView& root_;
};

// Returns an error that says why a field does not go with another one.
tl::unexpected<Error> refuse(const JsonView& root, std::string_view key, std::string_view beside,
                             std::string_view wanted, std::string_view hint = {}) {
  const JsonView view = root.find(key).value_or(root);
  return view.fail(ErrorCode::kInvalidValue,
                   fmt::format("got {} {}, wanted {}", view.got(), beside, wanted),
                   std::string(hint));
}

// Without max_permuted_rows in the description, sets it to the rows that any routing can need.
Result<void> complete(RoutedTokens& tokens, const JsonView& root) {
  if (tokens.max_permuted_rows > 0) return {};
  Layer routed;  // not braced: if memory ends there, GCC 12 destroys earlier members twice
  routed.local_experts = static_cast<int32_t>(tokens.local_experts);
  routed.top_k = static_cast<int32_t>(tokens.top_k);
  routed.splits_alignment = static_cast<int32_t>(tokens.splits_alignment);
  routed.max_tokens = tokens.max_tokens;
  tokens.max_permuted_rows = worst_case_permuted_rows(routed);
  if (tokens.max_permuted_rows <= kMaxPermutedRows) return {};
  return refuse(root, "max_tokens",
                fmt::format("tokens with {} experts each, which may need {} rows", tokens.top_k,
                            tokens.max_permuted_rows),
                fmt::format("at most {}", kMaxPermutedRows),
                "lower max_tokens, or give max_permuted_rows");
}

template <typename Kind>
Result<void> finish(Kind& /*operation*/, const JsonView& /*root*/) {
  return {};
}

// Refuses scales that blocks share in a recipe whose blocks share none.
Result<void> check_sharing(const Recipe& recipe, int64_t blocks, const JsonView& root) {
  if (blocks == 1 || recipe.shares_scales) return {};
  return refuse(root, "scale_sharing_k", fmt::format("with the recipe {}", recipe.name), "1",
                "blocks share their scales in rows of fp8_flow");
}

Result<void> finish(QuantizeOperation& operation, const JsonView& root) {
  return check_sharing(operation.recipe, operation.scale_sharing_k, root);
}
Result<void> finish(RouteOperation& operation, const JsonView& root) {
  return complete(operation.tokens, root);
}
Result<void> finish(PermutePadOperation& operation, const JsonView& root) {
  MOEJIT_TRY(check_sharing(operation.recipe, operation.scale_sharing_k, root));
  if (operation.experts == 0) operation.experts = operation.tokens.local_experts;
  if (operation.experts < operation.tokens.local_experts)
    return refuse(root, "experts",
                  fmt::format("with {} of them local", operation.tokens.local_experts),
                  "as many or more");
  return complete(operation.tokens, root);
}
Result<void> finish(UnpermuteOperation& operation, const JsonView& root) {
  return complete(operation.tokens, root);
}
Result<void> finish(QuantizeWeightsOperation& operation, const JsonView& root) {
  if (operation.gate_up_layout == GateUpLayout::kConcat || operation.sections == 2) return {};
  return refuse(root, "gate_up_layout", "with 1 section", "\"concat\"",
                "rows alternate where there are two sections, gate and up");
}
Result<void> finish(QuantizeColumnsOperation& operation, const JsonView& root) {
  if (!operation.rowwise || operation.recipe.wgrad_operands.is_recovered) return {};
  return refuse(root, "rowwise", fmt::format("with the recipe {}", operation.recipe.name), "false",
                "casts by rows and columns of one read are those of mxfp8 and nvfp4");
}
Result<void> finish(ActivationOperation& operation, const JsonView& root) {
  MOEJIT_TRY(check_sharing(operation.recipe, operation.scale_sharing_k, root));
  if (operation.gate_up_layout == GateUpLayout::kConcat || has_gate(operation.activation))
    return {};
  return refuse(root, "gate_up_layout",
                fmt::format("with the activation {}", to_string(operation.activation)),
                "\"concat\"",
                "the activation has no gate whose columns could alternate with those of up");
}
Result<void> finish(GroupedGemmOperation& operation, const JsonView& root) {
  const std::string beside = fmt::format("with the scales {}", to_string(operation.scales));
  const bool has_blocks = operation.scales == GemmScales::kRowBlock;
  if (operation.scale_sharing_k > 1 && !has_blocks)
    return refuse(root, "scale_sharing_k", beside, "1",
                  "blocks share their scales where scales are row_block");
  if (operation.bias != GemmBias::kNone && !has_blocks && operation.scales != GemmScales::kNone)
    return refuse(root, "bias", beside, "\"none\"",
                  "biases are added where scales are row_block or none");
  return {};
}

}  // namespace

bool describes_operation(std::string_view json) {
  const auto document =
      parse_json(json, {.max_bytes = kMaxDescriptionBytes, .max_values = kMaxDescriptionValues});
  return document && find_member(document->root, "operation") != nullptr;
}

Result<OperationDescription> parse_operation(std::string_view json, std::string_view source_name) {
  MOEJIT_TRY_ASSIGN(const JsonDocument document,
                    parse_json(json, {.source_name = source_name,
                                      .max_bytes = kMaxDescriptionBytes,
                                      .max_values = kMaxDescriptionValues}));
  const JsonView root(document);
  MOEJIT_TRY_ASSIGN(const JsonView name, root.at("operation"));
  MOEJIT_TRY_ASSIGN(const std::size_t index, name.read_choice(operation_names()));
  OperationDescription operation = default_operations()[index];
  KeyLister lister;
  visit_fields(operation, lister);
  MOEJIT_TRY(root.check_keys(lister.keys));
  Reader reader(root);
  visit_fields(operation, reader);
  MOEJIT_TRY(reader.result);
  MOEJIT_TRY(std::visit([&](auto& kind) { return finish(kind, root); }, operation));
  return operation;
}

}  // namespace moejit::compiler
