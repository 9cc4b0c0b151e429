// SPDX-License-Identifier: Apache-2.0
#include "runtime/trial/routing_tensors.h"

#include "runtime/reference/number_formats.h"
#include "runtime/reference/random_inputs.h"
#include "runtime/reference/route.h"

#include <algorithm>
#include <array>
#include <iterator>

namespace moejit::trial {

using runtime::copy_elements;
using runtime::elements;
using runtime::HostTensor;
using runtime::make_tensor;

using compiler::DType;

std::vector<int64_t> expert_ids(const HostTensor& topk_ids) {
  if (topk_ids.dtype == DType::kI64) return copy_elements<int64_t>(topk_ids);
  const std::span<const int32_t> ids = elements<int32_t>(topk_ids);
  return {ids.begin(), ids.end()};
}

std::vector<float> probabilities(const HostTensor& topk_probs) {
  if (topk_probs.dtype == DType::kF32) return copy_elements<float>(topk_probs);
  std::vector<float> probs;
  std::ranges::transform(elements<uint16_t>(topk_probs), std::back_inserter(probs),
                         reference::float_from_bf16);
  return probs;
}

HostTensor make_topk_ids(DType dtype, std::vector<int64_t> shape, const std::vector<int64_t>& ids) {
  if (dtype == DType::kI64) return make_tensor(dtype, std::move(shape), ids);
  std::vector<int32_t> narrow;
  std::ranges::transform(ids, std::back_inserter(narrow),
                         [](int64_t id) { return static_cast<int32_t>(id); });
  return make_tensor(dtype, std::move(shape), narrow);
}

HostTensor make_topk_probs(DType dtype, std::vector<int64_t> shape,
                           const std::vector<float>& probs) {
  if (dtype == DType::kF32) return make_tensor(dtype, std::move(shape), probs);
  std::vector<uint16_t> rounded;
  std::ranges::transform(probs, std::back_inserter(rounded), reference::bf16_from_float);
  return make_tensor(dtype, std::move(shape), rounded);
}

namespace {

using compiler::CallDim;
using compiler::Plan;

compiler::CallDims dims_of(const Plan& plan, CallDim dim, int64_t size) {
  if (dim == CallDim::kTokens) return compiler::call_dims(plan.bounds, size);
  if (dim == CallDim::kRows) return {.rows = size};
  return {.columns = size / 128 * 128};
}

void route_tokens(const Plan& plan, const RandomInputs& random, RandomGroups& groups) {
  const compiler::CallBounds& bounds = plan.bounds;
  const int64_t tokens = groups.dims.tokens;
  groups.ids = reference::random_routing(tokens, bounds.groups, bounds.top_k, random);
  groups.route = reference::route(groups.ids, tokens,
                                  {.experts = bounds.groups,
                                   .top_k = bounds.top_k,
                                   .alignment = bounds.splits_alignment,
                                   .max_rows = groups.dims.rows});
}

// Fills the groups with rows; each row has one expert.
void fill_groups(const Plan& plan, const RandomInputs& random, RandomGroups& groups) {
  const int64_t count = find_tensor(plan, "counts")->shape.front().value;
  const std::string& symbol = call_size(plan)->symbol;
  const bool has_rows = symbol == "P" || symbol == "T";
  // If no tensor gives P, the plan's bound is used.
  const int64_t most = plan.bounds.max_permuted_rows;
  const int64_t columns = groups.dims.columns;
  const int64_t size = has_rows ? groups.dims.rows : most > 0 ? std::min(columns, most) : columns;
  const int64_t alignment =
      has_rows && size < 128 * count ? std::max(16, plan.bounds.splits_alignment) : 128;
  const int64_t rows = std::max(size / 2, size - count * (alignment - 1));
  groups.route =
      reference::route(reference::random_routing(rows, count, 1, random), rows,
                       {.experts = count, .top_k = 1, .alignment = alignment, .max_rows = size});
  if (find_tensor(plan, "output_offs") == nullptr) return;
  groups.column_starts = {0};
  for (const int32_t rows_of_group : groups.route.counts)
    groups.column_starts.push_back(groups.column_starts.back() + (rows_of_group + 127) / 128 * 128);
  groups.dims.columns = groups.column_starts.back();
}

}  // namespace

RandomGroups random_groups(const Plan& plan, int64_t size, const RandomInputs& random) {
  RandomGroups groups;
  if (const std::optional<compiler::Dim> dim = call_size(plan))
    groups.dims = dims_of(plan, *compiler::call_dim(*dim), size);
  const bool has_ids =
      std::ranges::any_of(std::array{"topk_ids", "chosen_ids", "row_map"},
                          [&](const char* name) { return find_tensor(plan, name) != nullptr; });
  if (has_ids)
    route_tokens(plan, random, groups);
  else if (find_tensor(plan, "offs") != nullptr)
    fill_groups(plan, random, groups);
  return groups;
}

}  // namespace moejit::trial
