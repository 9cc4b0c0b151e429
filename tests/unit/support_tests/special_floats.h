// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <limits>

namespace moejit::reference {

inline constexpr float kInf = std::numeric_limits<float>::infinity();
inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

}  // namespace moejit::reference
