// SPDX-License-Identifier: Apache-2.0
#include "runtime/trial/inputs.h"

#include "compiler/compiler.h"
#include "runtime/trial/group_inputs.h"
#include "runtime/trial/layer_inputs.h"
#include "runtime/trial/operation_inputs.h"

#include <algorithm>
#include <fmt/core.h>
#include <utility>

namespace moejit::trial {

using compiler::CallDim;
using compiler::Dim;
using compiler::Plan;

Result<std::vector<CallInputs>> load_inputs(std::span<const Plan> plans,
                                            const InputOptions& options) {
  const Plan& plan = plans.front();
  std::vector<CallInputs> calls;
  if (plan.operation) {
    MOEJIT_TRY_ASSIGN(calls.emplace_back(), load_operation_call(plan, options));
  } else if (plan.group) {
    MOEJIT_TRY_ASSIGN(std::vector<runtime::TensorMap> ranks, load_group_inputs(plans, options));
    for (runtime::TensorMap& rank : ranks) calls.push_back(call_of(std::move(rank)));
  } else {
    MOEJIT_TRY_ASSIGN(runtime::TensorMap tensors, load_layer_inputs(plan, options));
    calls.push_back(call_of(std::move(tensors)));
    calls.back().rows = count_rows(plan, calls.back());
  }
  return calls;
}

CallInputs call_of(runtime::TensorMap tensors) {
  return {.dims = {.tokens = token_count(tensors)}, .rows = {}, .tensors = std::move(tensors)};
}

std::optional<RandomInputs> routed_at_random(const Plan& plan, const InputOptions& options) {
  if (!options.input_path.empty()) return std::nullopt;
  if (plan.layer && plan.layer->router) return options.random;
  for (const char* const name :
       {"topk_ids", "chosen_ids", "tokens_per_expert", "row_map", "offs"}) {
    const compiler::TensorPlan* const tensor = compiler::find_tensor(plan, name);
    if (tensor != nullptr && tensor->role != compiler::TensorRole::kOutput) return options.random;
  }
  return std::nullopt;
}

std::optional<Dim> call_size(const Plan& plan) {
  for (const CallDim wanted : {CallDim::kTokens, CallDim::kRows, CallDim::kColumns})
    for (const compiler::TensorPlan& tensor : plan.tensors)
      for (const Dim& dim : tensor.shape) {
        const bool is_blocks = compiler::call_dim(dim) == CallDim::kColumnBlocks;
        if (compiler::call_dim(dim) == wanted) return dim;
        if (is_blocks && wanted == CallDim::kColumns) return Dim{"C", 128 * dim.value};
      }
  return std::nullopt;
}

Result<void> check_tokens(int64_t tokens, int64_t least, int64_t most, std::string_view bound) {
  if (tokens >= least && tokens <= most) return {};
  return fail(Stage::kCommand, ErrorCode::kInvalidValue,
              fmt::format("--tokens is {}, wanted {} to {} ({})", tokens, least, most, bound));
}

Result<int64_t> random_size(const Plan& plan, const InputOptions& options) {
  const std::optional<Dim> size =
      plan.layer ? Dim{"max_tokens", plan.layer->max_tokens} : call_size(plan);
  const std::string_view subject =
      plan.layer ? "the layer" : std::string_view(plan.operation->name);
  if (!size && options.tokens)
    return fail(Stage::kCommand, ErrorCode::kInvalidValue,
                fmt::format("--tokens is {}, but all sizes of {} are those of its description",
                            *options.tokens, subject),
                "leave --tokens out");
  if (!size) return 0;
  const int64_t usual = options.is_measured ? size->value : plan.layer ? 128 : 256;
  const int64_t tokens = options.tokens.value_or(std::min(size->value, usual));
  MOEJIT_TRY(check_tokens(tokens, options.is_measured ? 1 : 0, size->value,
                          fmt::format("{} of {}", size->symbol, subject)));
  return tokens;
}

}  // namespace moejit::trial
