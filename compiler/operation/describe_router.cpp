// SPDX-License-Identifier: Apache-2.0
#include "compiler/operation/operation_tensors.h"

#include <algorithm>
#include <array>

namespace moejit::compiler {
namespace {

// The fields of both operations, and the sizes that follow.
struct RouterFields {
  Dim t, k, a;
  DType topk_ids = DType::kI32;
  RouterFormula formula;

  bool has_aux() const { return formula.aux != AuxCounts::kNone; }
  bool has_zero_experts() const { return formula.zero_experts > 0; }
  std::vector<Dim> choices() const { return {t, k}; }

  // Ids count the experts as if they were this rank's.
  CallBounds bounds() const {
    return {.max_tokens = t.value,
            .top_k = int32_of(k),
            .groups = int32_of(a),
            .max_permuted_rows = std::min(t.value * k.value, kMaxPermutedRows)};
  }
  template <typename Kind>
  Kind kind() const {
    return {.formula = formula, .experts = int32_of(a), .top_k = int32_of(k), .topk_ids = topk_ids};
  }
};

RouterFields router_fields(OperationDraft& draft) {
  RouterFields fields;
  fields.t = draft.dim("T", "max_tokens", kTokensRange);
  const int64_t experts = draft.required("experts", {.lowest = 1, .highest = kMaxRouterExperts});
  const bool has_few = experts < kMaxRouterTopK;
  fields.k = draft.dim("K", "top_k",
                       {.lowest = 1,
                        .highest = std::min<int64_t>(kMaxRouterTopK, experts),
                        .bound_by = has_few ? std::string_view("experts") : std::string_view()});
  fields.topk_ids =
      dtype_of(draft.choice("topk_ids_dtype", std::array{IndexDtype::kI32, IndexDtype::kI64}));
  fields.formula = draft.router("router", static_cast<int32_t>(experts), int32_of(fields.k));
  const bool has_zero = fields.formula.zero_experts > 0;
  fields.a = {has_zero ? "E+zero_experts" : "E", experts + fields.formula.zero_experts};
  return fields;
}

}  // namespace

void describe_router(OperationDraft& draft) {
  const RouterFields fields = router_fields(draft);
  const RouterFormula& formula = fields.formula;
  const bool is_given = formula.ids == RouterIds::kGiven;
  draft.read("logits", formula.logits_dtype, {fields.t, fields.a});
  if (formula.has_bias) draft.read("router_bias", DType::kF32, {fields.a});
  if (formula.has_expert_scale) draft.read("expert_scale", DType::kF32, {fields.a});
  if (is_given)
    draft.read("topk_ids", fields.topk_ids, fields.choices());
  else
    draft.write("topk_ids", fields.topk_ids, fields.choices());
  draft.write("topk_probs", DType::kF32, fields.choices());
  if (fields.has_zero_experts()) {
    draft.write("chosen_ids", fields.topk_ids, fields.choices());
    draft.write("zero_probs", DType::kF32, {fields.t});
  }
  draft.write_optional("counts", DType::kI32, fields.a.value);
  if (formula.aux == AuxCounts::kUnbiased) draft.write("unbiased_counts", DType::kI32, {fields.a});
  if (fields.has_aux()) draft.write("score_sums", DType::kI64, {fields.a});
  if (formula.z) draft.write("z_sum", DType::kI64, {fixed(1)});
  draft.write_optional("status", DType::kU32, 1);
  draft.make(fields.kind<Router>(), fields.bounds());
}

void describe_router_backward(OperationDraft& draft) {
  const RouterFields fields = router_fields(draft);
  const RouterFormula& formula = fields.formula;
  draft.read("logits", formula.logits_dtype, {fields.t, fields.a});
  if (formula.has_expert_scale) draft.read("expert_scale", DType::kF32, {fields.a});
  draft.read(fields.has_zero_experts() ? "chosen_ids" : "topk_ids", fields.topk_ids,
             fields.choices());
  draft.read("dprobs", DType::kF32, fields.choices());
  if (fields.has_zero_experts()) draft.read("dzero_probs", DType::kF32, {fields.t});
  if (fields.has_aux()) {
    draft.read("counts", DType::kI32, {fields.a});
    draft.read("aux_coefficient", DType::kF32, {fixed(1)});
  }
  if (formula.z) draft.read("z_coefficient", DType::kF32, {fixed(1)});
  draft.write("dlogits", formula.logits_dtype, {fields.t, fields.a});
  if (formula.has_expert_scale) draft.write("dexpert_scale", DType::kF32, fields.choices());
  draft.make(fields.kind<RouterBackward>(), fields.bounds());
}

}  // namespace moejit::compiler
