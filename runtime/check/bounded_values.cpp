// SPDX-License-Identifier: Apache-2.0
#include "runtime/check/bounded_values.h"

#include "runtime/reference/number_formats.h"

namespace moejit::check {

float rounded(double value) {
  return reference::float_from_bf16(reference::bf16_from_float(static_cast<float>(value)));
}

double bound_at(const BoundedRows& rows, size_t at) {
  const double bound = rows.bound[at];
  return bound + (bound > 0.0 ? 0x1p-23 * std::fabs(rows.value[at]) : 0.0);
}

void AmaxBounds::add(const BoundedRows& rows, size_t at) {
  const double magnitude = std::fabs(rows.value[at]), bound = bound_at(rows, at);
  if (std::isnan(magnitude)) return;
  least = std::max(least, rounded(std::max(magnitude - bound, 0.0)));
  most = std::max(most, rounded(magnitude + bound));
  exact = std::max(exact, rounded(magnitude));
}

}  // namespace moejit::check
