// SPDX-License-Identifier: Apache-2.0
#include "compiler/support/utc_time.h"

#include <array>
#include <ctime>

namespace moejit {

std::string utc_time(const char* format) {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), format, &parts);
  return text.data();
}

}  // namespace moejit
