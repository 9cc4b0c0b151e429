// SPDX-License-Identifier: Apache-2.0
#include "cli/check/check_activation.h"

#include "tests/support/reference/compare.h"

#include <algorithm>
#include <cmath>
#include <fmt/core.h>

namespace moejit::cli {
namespace {

float block_amax(std::span<const float> values) {
  float amax = reference::kActivationEps;
  for (const float value : values)
    if (std::abs(value) > amax) amax = std::abs(value);
  return amax;
}

// Takes over the device's choice in blocks at a step of the scale; returns how many.
int64_t accept_other_scales(std::span<const float> values, const reference::QuantizedRows& got,
                            reference::QuantizedRows& wanted) {
  const int64_t blocks = reference::block_count(wanted.cols);
  int64_t accepted = 0;
  for (int64_t i = 0; i < wanted.rows * blocks; ++i) {
    const float a = got.scale_inv[i], b = wanted.scale_inv[i];
    if (a == b || (a != 2 * b && b != 2 * a)) continue;
    const int64_t start = i / blocks * wanted.cols + i % blocks * reference::kBlock;
    const int64_t end = std::min(start + reference::kBlock, (i / blocks + 1) * wanted.cols);
    const auto block = values.subspan(static_cast<size_t>(start), static_cast<size_t>(end - start));
    if (!reference::is_near_scale_step(block_amax(block))) continue;
    wanted.scale_inv[i] = a;
    std::copy(got.q.begin() + start, got.q.begin() + end, wanted.q.begin() + start);
    ++accepted;
  }
  return accepted;
}

TensorCheck check_of(std::string tensor, const testing::Comparison& comparison,
                     std::string verdict) {
  if (!comparison.is_equal())
    verdict = fmt::format("{} of {} differ", comparison.differing, comparison.compared);
  return {std::move(tensor),  comparison.is_equal(), std::move(verdict),
          comparison.message, comparison.compared,   comparison.differing};
}

}  // namespace

std::vector<TensorCheck> check_activation(std::span<const uint16_t> h1,
                                          std::span<const float> probs,
                                          const reference::Route& route, int64_t intermediate,
                                          const reference::QuantizedRows& got) {
  const std::vector<float> values = reference::swiglu(h1, probs, route.rows(), intermediate);
  reference::QuantizedRows wanted = reference::quantize_activation(values, route, intermediate);
  std::string scale_verdict = "exact";
  if (got.q.size() == wanted.q.size() && got.scale_inv.size() == wanted.scale_inv.size())
    if (const int64_t accepted = accept_other_scales(values, got, wanted); accepted > 0)
      scale_verdict = fmt::format("exact but for {} at a step", accepted);
  return {check_of("act_q",
                   testing::compare_e4m3_within_one_code({"act_q", intermediate}, got.q, wanted.q),
                   "within one code"),
          check_of("act_scale_inv",
                   testing::compare_f32({"act_scale_inv", reference::block_count(intermediate)},
                                        got.scale_inv, wanted.scale_inv),
                   std::move(scale_verdict))};
}

}  // namespace moejit::cli
