// SPDX-License-Identifier: Apache-2.0
#include "compiler/parser/read_fields.h"
#include "compiler/parser/read_layer_parts.h"

#include <array>
#include <fmt/core.h>
#include <string>
#include <string_view>

namespace moejit::compiler {
namespace {

constexpr std::array kInputs = {LayerInput::kTokens, LayerInput::kGrouped};

// A field that tells of tokens and their choices, and why grouped rows have none.
struct TokenField {
  std::string_view key;
  std::string_view reason;
};

constexpr std::array kTokenFields = {
    TokenField{"router", "rows in the order of experts have been routed"},
    TokenField{"topk_ids_dtype", "tokens_per_expert_dtype is the type of what replaces topk_ids"},
    TokenField{"topk_probs_dtype", "probs, one of each row, are f32"},
    TokenField{"foreign_experts", "only rows of this rank's experts are given"},
    TokenField{"shared", "rows in the order of experts do not tell their tokens"},
    TokenField{"max_permuted_rows", "as many rows are multiplied as are given: max_tokens"},
    TokenField{"expert_parallel",
               "whoever groups the rows has exchanged them: give tokens to a layer that exchanges "
               "them itself"},
};

tl::unexpected<Error> refuse(const JsonView& view, std::string_view wanted, std::string hint) {
  return view.fail(ErrorCode::kInvalidValue,
                   fmt::format(R"(got {} with the input "grouped", wanted {})", view.got(), wanted),
                   std::move(hint));
}

// Refuses a number that differs from the one that grouped rows have.
Result<void> refuse_other(const JsonView& root, std::string_view key, int64_t wanted,
                          std::string hint) {
  const std::optional<JsonView> view = root.find(key);
  if (!view) return {};
  MOEJIT_TRY_ASSIGN(const int64_t got, view->read_int({.lowest = 1, .highest = INT32_MAX}));
  if (got == wanted) return {};
  return refuse(*view, std::to_string(wanted), std::move(hint));
}

}  // namespace

Result<LayerInput> read_input(const JsonView& root) {
  return read_enum_at(root, "input", kInputs, LayerInput::kTokens);
}

Result<void> check_fields_of_input(const JsonView& root, const Layer& layer) {
  if (!is_grouped(layer)) {
    const std::optional<JsonView> dtype = root.find("tokens_per_expert_dtype");
    if (!dtype) return {};
    return dtype->fail(
        ErrorCode::kInvalidValue,
        fmt::format(R"(got {} without grouped rows, wanted it left out)", dtype->got()),
        R"(say "input": "grouped", or topk_ids_dtype)");
  }
  for (const TokenField& field : kTokenFields)
    if (const std::optional<JsonView> view = root.find(field.key))
      return refuse(*view, "it left out", std::string(field.reason));
  MOEJIT_TRY(refuse_other(root, "top_k", 1, "each row has one expert"));
  MOEJIT_TRY(refuse_other(root, "local_experts", layer.experts,
                          "experts counts the experts of this rank: their rows alone are given"));
  if (layer.dispatch != Dispatch::kNone && !layer.dispatch_calls)
    return refuse(*root.find("dispatch"), R"("none")",
                  R"(the rows are there: add "dispatch_calls": true if they arrive as FP8 rows)");
  return {};
}

}  // namespace moejit::compiler
