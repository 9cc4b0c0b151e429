// SPDX-License-Identifier: Apache-2.0
#include "runtime/trial/router_inputs.h"

#include "runtime/reference/number_formats.h"
#include "runtime/reference/random_inputs.h"
#include "runtime/trial/random_layer_inputs.h"
#include "runtime/trial/reference_router.h"
#include "runtime/trial/routing_tensors.h"

#include <algorithm>

namespace moejit::trial {
namespace {

using compiler::DType;
using reference::RandomStream;
using runtime::HostTensor;
using runtime::make_tensor;
using runtime::TensorMap;

// Purposes of random numbers, behind the ones of other tensors.
enum RouterPurpose : uint64_t { kLogits = 110, kBias = 111, kScale = 112, kSums = 113 };

// Returns values of bf16, so that some logits of a token are equal.
std::vector<float> logits_of(const std::vector<int64_t>& ids, int64_t tokens, int64_t experts,
                             uint64_t seed) {
  const RandomStream random(seed, kLogits);
  std::vector<float> logits(static_cast<size_t>(tokens * experts));
  for (size_t i = 0; i < logits.size(); ++i) logits[i] = static_cast<float>(random.normal(i));
  const int64_t top_k = tokens == 0 ? 0 : std::ssize(ids) / tokens;
  for (int64_t i = 0; i < std::ssize(ids); ++i)
    if (ids[static_cast<size_t>(i)] >= 0)
      logits[static_cast<size_t>(i / top_k * experts + ids[static_cast<size_t>(i)])] += 5.0F;
  for (float& logit : logits) logit = reference::float_from_bf16(reference::bf16_from_float(logit));
  return logits;
}

HostTensor random_of_experts(int64_t experts, uint64_t seed, RouterPurpose purpose, float middle) {
  const RandomStream random(seed, purpose);
  std::vector<float> values;
  for (int64_t e = 0; e < experts; ++e)
    values.push_back(middle + 0.25F * static_cast<float>(random.normal(static_cast<uint64_t>(e))));
  return make_tensor(DType::kF32, {experts}, values);
}

template <typename Integer>
HostTensor random_sums(DType dtype, int64_t count, uint64_t seed) {
  const RandomStream random(seed, kSums);
  std::vector<Integer> sums;
  for (int64_t i = 0; i < count; ++i)
    sums.push_back(static_cast<Integer>(random.below(static_cast<uint64_t>(i), 1 << 16)));
  return make_tensor(dtype, {count}, sums);
}

}  // namespace

TensorMap random_logits(const compiler::Layer& layer, int64_t tokens, const RandomInputs& random) {
  const compiler::RouterFormula& formula = *layer.router;
  const int64_t experts = layer.experts;
  const uint64_t seed = random.seed;
  compiler::Layer all = layer;  // whose experts are all here
  all.local_experts = layer.experts;
  all.foreign_experts = compiler::ForeignExperts::kReport;
  const HostTensor ids = random_topk_ids(all, tokens, random);
  TensorMap inputs;
  inputs["logits"] = make_topk_probs(formula.logits_dtype, {tokens, experts},
                                     logits_of(expert_ids(ids), tokens, experts, seed));
  if (formula.ids == compiler::RouterIds::kGiven) inputs["topk_ids"] = ids;
  if (formula.has_bias) inputs["router_bias"] = random_of_experts(experts, seed, kBias, 0.0F);
  if (formula.has_expert_scale)
    inputs["expert_scale"] = random_of_experts(experts, seed, kScale, 1.0F);
  inputs["counts"] = random_sums<int32_t>(DType::kI32, experts, seed);
  if (formula.aux == compiler::AuxCounts::kUnbiased)
    inputs["unbiased_counts"] = random_sums<int32_t>(DType::kI32, experts, seed + 1);
  if (formula.aux != compiler::AuxCounts::kNone)
    inputs["score_sums"] = random_sums<int64_t>(DType::kI64, experts, seed + 2);
  if (formula.z) inputs["z_sum"] = random_sums<int64_t>(DType::kI64, 1, seed + 3);
  return inputs;
}

TensorMap loss_coefficients(const compiler::RouterFormula& formula) {
  TensorMap coefficients;
  const auto add = [&](const char* name, float value) {
    coefficients[name] = make_tensor(DType::kF32, {1}, std::vector<float>{value});
  };
  if (formula.aux != compiler::AuxCounts::kNone) add("aux_coefficient", 0x1p-16F);
  if (formula.z) add("z_coefficient", 0x1p-8F);
  return coefficients;
}

bool is_sum_of_router(const compiler::Plan& plan, const compiler::TensorPlan& tensor) {
  return std::ranges::any_of(plan.kernels, [&](const compiler::KernelPlan& kernel) {
    return std::holds_alternative<compiler::RouterSpec>(kernel.spec) &&
           compiler::reads(kernel, tensor.name) && compiler::writes(kernel, tensor.name) &&
           tensor.dtype != DType::kU32;  // the status word
  });
}

std::vector<int64_t> chosen_ids(const compiler::Layer& layer, const TensorMap& inputs) {
  if (!layer.router || layer.router->ids == compiler::RouterIds::kGiven)
    return expert_ids(inputs.at("topk_ids"));
  const std::vector<float> logits = probabilities(inputs.at("logits"));
  std::vector<float> bias;
  if (layer.router->has_bias) bias = runtime::copy_elements<float>(inputs.at("router_bias"));
  const std::vector<float> scale(static_cast<size_t>(layer.experts), 1.0F);
  return reference::route_logits(reference_router(*layer.router, layer.experts, layer.top_k),
                                 {.logits = logits, .bias = bias, .expert_scale = scale, .ids = {}})
      .topk_ids;
}

}  // namespace moejit::trial
