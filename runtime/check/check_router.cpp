// SPDX-License-Identifier: Apache-2.0
#include "runtime/check/kernel_checks.h"
#include "runtime/reference/number_formats.h"
#include "runtime/trial/reference_router.h"
#include "runtime/trial/routing_tensors.h"

#include <algorithm>
#include <cmath>
#include <fmt/core.h>

namespace moejit::check {
namespace {

using compiler::DType;
using runtime::copy_elements;
using runtime::HostTensor;
using trial::reference_router;

// Numbers that a kernel of a router read.
struct RouterOperands {
  std::vector<float> logits, bias, expert_scale;
  std::vector<int64_t> ids;

  // `choice` is the role of the ids, or empty.
  RouterOperands(const KernelTensors& tensors, std::string_view choice)
      : logits(trial::probabilities(tensors.at("logits"))) {
    if (tensors.has("router_bias")) bias = copy_elements<float>(tensors.at("router_bias"));
    if (tensors.has("expert_scale"))
      expert_scale = copy_elements<float>(tensors.at("expert_scale"));
    if (!choice.empty()) ids = trial::expert_ids(tensors.at(choice));
  }
  reference::RouterInputs inputs() const {
    return {.logits = logits, .bias = bias, .expert_scale = expert_scale, .ids = ids};
  }
};

testing::Comparison compare(testing::TensorView view, std::span<const int32_t> got,
                            std::span<const int32_t> wanted) {
  return testing::compare_i32(view, got, wanted);
}
testing::Comparison compare(testing::TensorView view, std::span<const int64_t> got,
                            std::span<const int64_t> wanted) {
  return testing::compare_i64(view, got, wanted);
}

void check_ids(std::string_view role, std::span<const int64_t> wanted, int64_t top_k,
               const KernelTensors& tensors, CheckList& list) {
  if (!tensors.has(role)) return;
  const std::string_view name = tensors.name(role);
  list.add(check_of(
      name, testing::compare_i64({name, top_k}, trial::expert_ids(tensors.at(role)), wanted)));
}

// Checks sums that are added to what a tensor held.
template <typename Integer>
void check_sums(std::string_view role, std::vector<Integer> sums, const KernelTensors& tensors,
                CheckList& list) {
  if (!tensors.has(role) || tensors.before(role) == nullptr) return;
  const std::string_view name = tensors.name(role);
  const std::span<const Integer> before = runtime::elements<Integer>(*tensors.before(role));
  for (size_t i = 0; i < sums.size(); ++i) sums[i] += before[i];
  list.add(check_of(name, compare({name}, tensors.view<Integer>(role), sums)));
}

// Bounds the errors of the probabilities that a kernel makes of a function with errors.
std::vector<double> probability_bounds(const reference::Router& router,
                                       const RouterOperands& operands,
                                       const reference::RoutedLogits& wanted) {
  std::vector<double> bounds;
  const auto top_k = static_cast<size_t>(router.top_k);
  for (size_t first = 0; first < wanted.chosen_ids.size(); first += top_k) {
    double sum = 0.0, sum_of_errors = 0.0;
    std::vector<double> errors(top_k), factors(top_k, double{router.scale}), values(top_k);
    for (size_t k = 0; k < top_k; ++k) {
      const int64_t id = wanted.chosen_ids[first + k];
      if (id < 0) continue;
      const auto row = static_cast<int64_t>(first / top_k) * router.experts;
      double z = double{operands.logits[static_cast<size_t>(row + id)]} * router.logit_scale;
      if (router.softcap != 0.0F) z = std::tanh(z / router.softcap) * router.softcap;
      values[k] = router.function.value(z);
      // z itself is rounded, too.
      errors[k] =
          router.function.value_error(z) + 0x1p-20 * std::fabs(z * router.function.slope(z));
      if (!operands.expert_scale.empty())
        factors[k] *= operands.expert_scale[static_cast<size_t>(id)];
      sum += values[k];
      sum_of_errors += errors[k];
    }
    double divisor = 1.0;
    if (router.normalize == reference::RouterNormalize::kSum) divisor = sum + router.epsilon;
    if (router.normalize == reference::RouterNormalize::kFloor)
      divisor = std::max(sum, double{router.epsilon});
    if (router.normalize == reference::RouterNormalize::kNone) sum_of_errors = 0.0;
    // A sum that its own errors may make 0 says nothing.
    const double least = std::fabs(divisor) - sum_of_errors - 0x1p-18 * std::fabs(sum);
    for (size_t k = 0; k < top_k; ++k) {
      const double relative = least > 0.0 ? sum_of_errors / least + 0x1p-18 : INFINITY;
      const double bound = 2.0 * std::fabs(factors[k]) *
                               (errors[k] + std::fabs(values[k]) * relative) /
                               std::max(least, 0.0) +
                           0x1p-126;
      // Beyond fp32's range a formula's errors are not known.
      bounds.push_back(std::isnan(bound) ? INFINITY : bound);
    }
  }
  return bounds;
}

// Checks the probabilities of such a function, and the sums of the zero experts' ones.
void check_bounded_probs(const reference::Router& router, const RouterOperands& operands,
                         const reference::RoutedLogits& routed, const KernelTensors& tensors,
                         CheckList& list) {
  reference::Router without_zeros = router;
  without_zeros.zero_experts = 0;
  reference::RouterInputs inputs = operands.inputs();
  inputs.ids = routed.chosen_ids;
  const std::vector<float> all = route_logits(without_zeros, inputs).topk_probs;
  std::vector<double> probs(routed.topk_probs.begin(), routed.topk_probs.end());
  std::vector<double> bounds = probability_bounds(router, operands, routed);
  std::vector<double> zeros(routed.zero_probs.size()), zero_bounds(zeros.size());
  const auto top_k = static_cast<size_t>(router.top_k);
  for (size_t i = 0; i < all.size(); ++i) {
    if (routed.chosen_ids[i] < router.experts - router.zero_experts) continue;
    zeros[i / top_k] += all[i];
    zero_bounds[i / top_k] += bounds[i] + 0x1p-19 * std::fabs(all[i]);
    bounds[i] = 0.0;
  }
  const auto check = [&](std::string_view role, int64_t columns, std::span<const double> wanted,
                         std::span<const double> wanted_bounds) {
    list.add(check_within(
        tensors.name(role),
        testing::compare_f32_within({tensors.name(role), columns}, tensors.view<float>(role),
                                    wanted, wanted_bounds)));
  };
  check("topk_probs", router.top_k, probs, bounds);
  if (tensors.has("zero_probs")) check("zero_probs", 1, zeros, zero_bounds);
}

// Checks ids that a score with errors orders. Returns them, so that all else is checked by them.
std::vector<int64_t> check_choice(const reference::Router& router, const RouterOperands& operands,
                                  std::string_view role, const KernelTensors& tensors,
                                  CheckList& list) {
  const std::vector<int64_t> got = trial::expert_ids(tensors.at(role));
  TensorCheck check{.tensor = std::string(tensors.name(role)),
                    .verdict = "within errors of scores"};
  check.compared = std::ssize(got);
  const int64_t tokens = check.compared / router.top_k;
  for (int64_t t = 0; t < tokens; ++t) {
    const auto part = [&](const auto& all, int64_t size) {
      return std::span(all).subspan(static_cast<size_t>(t * size), static_cast<size_t>(size));
    };
    if (reference::may_choose(router, part(operands.logits, router.experts), operands.bias,
                              part(got, router.top_k)))
      continue;
    if (check.differing++ == 0)
      check.message =
          fmt::format("{}: row {} is no choice of the largest scores", tensors.name(role), t);
  }
  check.has_passed = check.differing == 0;
  if (!check.has_passed)
    check.verdict = fmt::format("{} of {} rows differ", check.differing, tokens);
  list.add(std::move(check));
  return got;
}

}  // namespace

void check_kernel(const compiler::RouterSpec& spec, const KernelTensors& tensors, CheckList& list) {
  const reference::Router router = reference_router(spec.formula, spec.experts, spec.top_k);
  const bool is_given = spec.formula.ids == compiler::RouterIds::kGiven;
  RouterOperands operands(tensors, is_given ? "topk_ids" : "");
  const bool has_function = router.score == reference::RouterScore::kFunction;
  reference::RoutedLogits wanted = route_logits(router, operands.inputs());
  const bool has_zeros = router.zero_experts > 0;
  if (has_function && !router.orders_by_logits && !is_given) {
    const uint32_t status = wanted.status;
    operands.ids =
        check_choice(router, operands, has_zeros ? "chosen_ids" : "topk_ids", tensors, list);
    wanted = route_logits(router, operands.inputs());
    wanted.status |= status;
  }
  // What check_choice() has checked stays as it is.
  check_ids("chosen_ids", wanted.chosen_ids, router.top_k, tensors, list);
  if (!is_given) check_ids("topk_ids", wanted.topk_ids, router.top_k, tensors, list);
  if (has_function) {
    check_bounded_probs(router, operands, wanted, tensors, list);
  } else {
    list.floats(tensors, "topk_probs", wanted.topk_probs);
    if (tensors.has("zero_probs")) list.floats(tensors, "zero_probs", wanted.zero_probs);
  }
  check_sums("counts", wanted.counts, tensors, list);
  check_sums("unbiased_counts", wanted.unbiased_counts, tensors, list);
  check_sums("score_sums", wanted.score_sums, tensors, list);
  check_sums("z_sum", std::vector<int64_t>{wanted.z_sum}, tensors, list);
  if (tensors.has("status")) {
    const HostTensor* const before = tensors.before("status");
    const uint32_t held = before == nullptr ? 0 : runtime::elements<uint32_t>(*before).front();
    // Values of a function that order the choice are not known to be numbers.
    const uint32_t unknown = has_function ? reference::kRouterBadLogit : 0;
    // In a layer other kernels set bits, too.
    const uint32_t own =
        tensors.plan().layer ? wanted.status | reference::kRouterBadLogit : ~uint32_t{0};
    list.status(tensors, own & ~unknown, held | wanted.status);
  }
}

void check_kernel(const compiler::RouterBackwardSpec& spec, const KernelTensors& tensors,
                  CheckList& list) {
  const reference::Router router = reference_router(spec.formula, spec.experts, spec.top_k);
  const RouterOperands operands(tensors, "topk_ids");
  const auto number = [&](std::string_view role) {
    return tensors.has(role) ? tensors.view<float>(role).front() : 0.0F;
  };
  reference::RouterGradientInputs gradients{.dprobs = tensors.view<float>("dprobs"),
                                            .aux_coefficient = number("aux_coefficient"),
                                            .z_coefficient = number("z_coefficient")};
  if (tensors.has("dzero_probs")) gradients.dzero_probs = tensors.view<float>("dzero_probs");
  if (tensors.has("counts")) gradients.counts = tensors.view<int32_t>("counts");
  const reference::RouterGradients wanted = router_backward(router, operands.inputs(), gradients);
  const auto compare = [&](std::string_view role, int64_t columns,
                           const std::vector<double>& values, std::vector<double> bounds) {
    const testing::TensorView view{tensors.name(role), columns};
    if (tensors.at(role).dtype == DType::kF32)
      return list.add(check_within(
          view.name, testing::compare_f32_within(view, tensors.view<float>(role), values, bounds)));
    for (size_t i = 0; i < bounds.size(); ++i)
      bounds[i] = reference::with_bf16_rounding(bounds[i], values[i]);
    list.add(check_within(view.name, testing::compare_bf16_within(
                                         view, tensors.view<uint16_t>(role), values, bounds)));
  };
  compare("dlogits", router.experts, wanted.dlogits, wanted.dlogits_bounds);
  if (tensors.has("dexpert_scale"))
    compare("dexpert_scale", router.top_k, wanted.dexpert_scale, wanted.dexpert_scale_bounds);
}

}  // namespace moejit::check
