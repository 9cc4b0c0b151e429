// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace moejit::reference {

// The byte that results start with where a test looks for what was left out.
inline constexpr std::uint8_t kUntouched = 0xCD;

}  // namespace moejit::reference
