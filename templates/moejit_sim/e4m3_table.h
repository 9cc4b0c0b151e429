// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace moejit::sim {

typedef double Double4 __attribute__((vector_size(32)));
typedef float Float4 __attribute__((vector_size(16)));

// The value of every e4m3 code.
struct E4m3Table {
  double value[256];
};

constexpr E4m3Table make_e4m3_table() {
  E4m3Table table{};
  for (int32_t code = 0; code < 256; ++code) {
    const int32_t exponent = (code >> 3) & 15;
    double value = exponent == 0 ? (code & 7) : 8 + (code & 7);  // in units of the last place
    for (int32_t e = exponent == 0 ? 1 : exponent; e < 10; ++e) value /= 2;
    for (int32_t e = 10; e < exponent; ++e) value *= 2;
    if ((code & 0x7f) == 0x7f) value = __builtin_nan("");
    table.value[code] = code & 0x80 ? -value : value;
  }
  return table;
}
inline constexpr E4m3Table kE4m3 = make_e4m3_table();

}  // namespace moejit::sim
