// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace moejit {

// Returns the time now in UTC in a format of strftime(), of at most 31 characters.
std::string utc_time(const char* format);

}  // namespace moejit
