// SPDX-License-Identifier: Apache-2.0
#include "compiler/planner/candidate.h"

#include "compiler/support/integer.h"

#include <algorithm>
#include <cmath>

namespace moejit::compiler {

int64_t mean_rows(const CallBounds& bounds) {
  const int64_t experts = std::max<int64_t>(bounds.experts, bounds.groups);
  const int64_t choices = bounds.max_tokens * bounds.top_k;
  const int64_t of_rank = bounds.groups > 0 ? ceil_div(choices * bounds.groups, experts) : choices;
  return std::max<int64_t>(std::min(of_rank, bounds.max_permuted_rows), 1);
}

GroupRows group_rows(const CallBounds& bounds) {
  return {.mean = ceil_div(mean_rows(bounds), std::max<int64_t>(bounds.groups, 1)),
          .most = bounds.max_tokens};
}

int64_t rows_class(int64_t rows) {
  // The middle of class b is 2^(b/2), and its end 2^(b/2 + 1/4). Squares are compared in whole
  // numbers, so that all machines agree. Counts are below 2^31.
  constexpr uint64_t kRootOfTwo = 6521908912666391106;  // sqrt(2) * 2^62, rounded down
  const auto square = static_cast<uint64_t>(rows * rows);
  uint32_t b = 0;
  while (square > kRootOfTwo >> (62 - b)) ++b;
  return std::lround(std::sqrt(std::ldexp(1.0, static_cast<int>(b))));
}

}  // namespace moejit::compiler
