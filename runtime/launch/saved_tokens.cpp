// SPDX-License-Identifier: Apache-2.0
#include "runtime/launch/saved_tokens.h"

#include <algorithm>
#include <cstring>
#include <fmt/core.h>

namespace moejit::runtime {

Result<void> check_saved_tokens(const compiler::Plan& plan, const BoundTensors& bound) {
  const auto found = std::ranges::find(plan.tensors, std::string_view("saved_tokens"),
                                       &compiler::TensorPlan::name);
  if (found == plan.tensors.end()) return {};
  int64_t tokens = 0;  // T of the forward call
  std::memcpy(&tokens, bound.address[static_cast<std::size_t>(found - plan.tensors.begin())],
              sizeof(tokens));
  if (tokens == bound.dims.tokens) return {};
  if (tokens < 0 || tokens > plan.bounds.max_tokens)
    return fail(Stage::kLaunch, ErrorCode::kTensorMismatch,
                fmt::format("the saved block has {} where a forward call leaves its number of "
                            "tokens, wanted {} as this backward call has",
                            tokens, bound.dims.tokens),
                "give the block that a forward call of this layer has filled");
  return fail(Stage::kLaunch, ErrorCode::kTensorMismatch,
              fmt::format("the backward call has {} tokens, wanted {} as the forward call that "
                          "filled the saved block",
                          bound.dims.tokens, tokens),
              "give the tensors and the saved block of the same forward call");
}

}  // namespace moejit::runtime
