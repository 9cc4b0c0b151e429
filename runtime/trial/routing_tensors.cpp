// SPDX-License-Identifier: Apache-2.0

#include "runtime/trial/routing_tensors.h"

#include "runtime/reference/number_formats.h"
#include "runtime/reference/route.h"

#include <algorithm>
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

using runtime::TensorMap;

compiler::CallRows count_call_rows(const compiler::Layer& layer, const TensorMap& inputs) {
  const HostTensor& ids = inputs.at("topk_ids");
  const int64_t tokens = ids.shape.front();
  const reference::Route route = reference::route(expert_ids(ids), tokens,
                                                  {.experts = layer.local_experts,
                                                   .top_k = layer.top_k,
                                                   .hidden = layer.hidden,
                                                   .intermediate = layer.intermediate,
                                                   .alignment = layer.splits_alignment,
                                                   .max_rows = layer.max_permuted_rows});
  return {.tokens = tokens,
          .routed = route.routed_rows(),
          .padded = route.rows(),
          .routed_tokens = route.routed_tokens(layer.top_k),
          .routed_experts = route.routed_experts()};
}

}  // namespace moejit::trial
