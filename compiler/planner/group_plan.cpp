// SPDX-License-Identifier: Apache-2.0
#include "compiler/group_plan.h"

#include <fmt/core.h>

namespace moejit::compiler {

Result<void> check_is_of_one_rank(const Layer& layer) {
  if (!is_of_group(layer)) return {};
  return fail(Stage::kPlan, ErrorCode::kUnsupported,
              fmt::format("{}: got expert_parallel with {} ranks, wanted a layer of one rank",
                          named_layer(layer), layer.expert_parallel.ranks),
              "run it on a group: moejit run --ranks, moejit_group_adopt()");
}

Result<void> check_is_of_group(const Layer& layer) {
  if (is_of_group(layer)) return {};
  return fail(
      Stage::kPlan, ErrorCode::kUnsupported,
      fmt::format("{}: got no expert_parallel, wanted it for a group of ranks", named_layer(layer)),
      R"(add "expert_parallel": {"ranks": R} to its description)");
}

Layer layer_of_experts(const Layer& described) {
  const Layer layer = with_shared_chosen(described);
  Layer experts = layer;
  experts.expert_parallel = {};
  experts.max_tokens = layer.expert_parallel.ranks * layer.max_tokens;
  experts.topk_ids_dtype = IndexDtype::kI32;
  experts.topk_probs_dtype = TopkProbsDtype::kF32;
  // Without peers choices come as the caller gives them.
  if (layer.expert_parallel.ranks > 1) return experts;
  experts.topk_ids_dtype = layer.topk_ids_dtype;
  experts.topk_probs_dtype = layer.topk_probs_dtype;
  return experts;
}

Layer layer_of_one_rank(const Layer& layer) {
  Layer one = layer;
  one.expert_parallel = {};
  one.max_tokens = layer.expert_parallel.ranks * layer.max_tokens;
  one.local_experts = layer.experts;
  one.max_permuted_rows = worst_case_permuted_rows(one);
  return one;
}

}  // namespace moejit::compiler
