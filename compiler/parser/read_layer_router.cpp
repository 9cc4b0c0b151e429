// SPDX-License-Identifier: Apache-2.0
#include "compiler/parser/read_layer_parts.h"
#include "compiler/parser/read_router.h"

#include <fmt/core.h>

namespace moejit::compiler {
namespace {

Result<void> refuse_more(const JsonView& root, std::string_view key, int64_t got, int64_t most,
                         std::string hint) {
  if (got <= most) return {};
  return root.find(key)->fail(ErrorCode::kUnsupported,
                              fmt::format("got {} with a router, wanted at most {}", got, most),
                              std::move(hint));
}

}  // namespace

Result<std::optional<RouterFormula>> read_router_of_layer(const JsonView& root,
                                                          const Layer& layer) {
  const std::optional<JsonView> view = root.find("router");
  if (!view || is_grouped(layer)) return std::optional<RouterFormula>();
  MOEJIT_TRY(refuse_more(root, "experts", layer.experts, kMaxRouterExperts,
                         "kernels keep a token's logits in the registers of one warp"));
  MOEJIT_TRY(refuse_more(root, "top_k", layer.top_k, kMaxRouterTopK, "a lane has a choice"));
  MOEJIT_TRY_ASSIGN(const RouterFormula formula, read_router(*view, layer.experts, layer.top_k));
  if (formula.zero_experts == 0) return std::optional<RouterFormula>(formula);
  return view->find("zero_experts")
      ->fail(
          ErrorCode::kUnsupported, fmt::format("got {} in a layer, wanted 0", formula.zero_experts),
          "run the operation router, then a layer without \"router\", and add zero_probs times x "
          "to y");
}

Result<void> check_fields_of_router(const JsonView& root, const Layer& layer) {
  if (!layer.router) return {};
  if (layer.topk_probs_dtype != TopkProbsDtype::kF32)
    return root.find("topk_probs_dtype")
        ->fail(ErrorCode::kInvalidValue,
               fmt::format("got {} with a router, wanted f32", to_string(layer.topk_probs_dtype)),
               "a router makes probabilities in fp32: leave the field out");
  if (layer.dispatch_calls && has_backward(layer))
    return root.find("dispatch_calls")
        ->fail(ErrorCode::kUnsupported, "got true with a router and a backward pass, wanted false",
               "dprobs come home after experts_grad: leave \"router\" out, and run the operations "
               "router and router_backward");
  const bool is_whole = layer.local_experts == layer.experts || is_of_group(layer);
  if (is_whole || layer.dispatch_calls || layer.foreign_experts == ForeignExperts::kIgnore)
    return {};
  return root.find("local_experts")
      ->fail(ErrorCode::kInvalidValue,
             fmt::format("got {} of {} experts with a router, wanted all, or \"foreign_experts\": "
                         "\"ignore\"",
                         layer.local_experts, layer.experts),
             "the router chooses of all experts, and ids at or above local_experts would be "
             "reported");
}

}  // namespace moejit::compiler
