// SPDX-License-Identifier: Apache-2.0
#include "runtime/check/tensor_check.h"

#include <fmt/core.h>

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

}  // namespace moejit::check
