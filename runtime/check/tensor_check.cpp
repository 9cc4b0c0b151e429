// SPDX-License-Identifier: Apache-2.0
#include "runtime/check/tensor_check.h"

#include "runtime/reference/compare.h"

#include <algorithm>
#include <cmath>
#include <fmt/core.h>
#include <utility>

namespace moejit::check {

TensorCheck check_of(std::string_view tensor, const testing::Comparison& comparison,
                     std::string verdict) {
  if (!comparison.is_equal())
    verdict = fmt::format("{} of {} differ", comparison.differing, comparison.compared);
  return {std::string(tensor), comparison.is_equal(), std::move(verdict),
          comparison.message,  comparison.compared,   comparison.differing};
}

TensorCheck check_within(std::string_view tensor, const testing::Comparison& comparison) {
  return check_of(tensor, comparison, fmt::format("{:.2g} of the bound", comparison.worst_ratio));
}

TensorCheck check_number(std::string_view tensor, int64_t got, int64_t wanted) {
  const bool has_passed = got == wanted;
  return {std::string(tensor),
          has_passed,
          has_passed ? "exact" : "1 of 1 differ",
          has_passed ? std::string() : fmt::format("got {}, wanted {}", got, wanted),
          1,
          has_passed ? 0 : 1};
}

std::string sampled_text(int64_t compared, int64_t all, std::string_view what) {
  return compared < all ? fmt::format(" ({} of {} {})", compared, all, what) : std::string();
}

namespace {

float block_amax(std::span<const float> values) {
  float amax = reference::kActivationEps;
  for (const float value : values)
    if (std::abs(value) > amax) amax = std::abs(value);
  return amax;
}

// Accepts the device's scales and codes for blocks whose amax is near a step of the scale. Returns
// how many it accepted. `sharing` blocks of a row share each scale.
int64_t accept_other_scales(std::span<const float> values, int64_t sharing,
                            const reference::QuantizedRows& got, reference::QuantizedRows& wanted) {
  const int64_t blocks = reference::block_count(wanted.cols);
  int64_t accepted = 0;
  for (int64_t i = 0; i < wanted.rows * blocks; ++i) {
    const float a = got.scale_inv[i], b = wanted.scale_inv[i];
    if (a == b || (a != 2 * b && b != 2 * a)) continue;
    const int64_t row = i / blocks * wanted.cols;
    const int64_t block = i % blocks;
    const int64_t first_shared = block / sharing * sharing;
    const auto columns_of = [&](int64_t first, int64_t count) {
      const int64_t begin = first * reference::kBlock;
      return std::pair(row + begin, row + std::min(begin + count * reference::kBlock, wanted.cols));
    };
    const auto [shared_start, shared_end] = columns_of(first_shared, sharing);
    if (!reference::is_near_scale_step(block_amax(values.subspan(
            static_cast<size_t>(shared_start), static_cast<size_t>(shared_end - shared_start)))))
      continue;
    const auto [start, end] = columns_of(block, 1);
    wanted.scale_inv[i] = a;
    std::copy(got.q.begin() + start, got.q.begin() + end, wanted.q.begin() + start);
    ++accepted;
  }
  return accepted;
}

}  // namespace

std::vector<TensorCheck> check_quantized(std::string_view codes, std::string_view scales,
                                         std::span<const float> values,
                                         const reference::Route& route, int64_t sharing,
                                         const reference::QuantizedRows& got) {
  reference::QuantizedRows wanted =
      reference::quantize_activation(values, route, got.cols, sharing);
  std::string scale_verdict = "exact";
  if (got.q.size() == wanted.q.size() && got.scale_inv.size() == wanted.scale_inv.size())
    if (const int64_t accepted = accept_other_scales(values, sharing, got, wanted); accepted > 0)
      scale_verdict = fmt::format("exact but for {} at a step", accepted);
  return {check_of(codes, testing::compare_e4m3_within_one_code({codes, got.cols}, got.q, wanted.q),
                   "within one code"),
          check_of(scales,
                   testing::compare_f32({scales, reference::block_count(got.cols)}, got.scale_inv,
                                        wanted.scale_inv),
                   std::move(scale_verdict))};
}

}  // namespace moejit::check
