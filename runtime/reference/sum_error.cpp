// SPDX-License-Identifier: Apache-2.0
#include "runtime/reference/sum_error.h"

#include <cmath>

namespace moejit::reference {
// Bounds additions in fp32, in any order, with rounding or truncation. Each of `length` partial
// sums is below the sum of |products| and loses less than 2^-23 of itself.
double fp32_sum_error(double magnitude, std::int64_t length) {
  return 0x1p-23 * magnitude * static_cast<double>(length);
}

double with_bf16_rounding(double bound, double value) {
  return bound + 0x1p-8 * (std::fabs(value) + bound) + 0x1p-134;
}

}  // namespace moejit::reference
