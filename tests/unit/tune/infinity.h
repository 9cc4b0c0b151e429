// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <limits>

namespace moejit::tune {

// A time without a bound.
inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

}  // namespace moejit::tune
