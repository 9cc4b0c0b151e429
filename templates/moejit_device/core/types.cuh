// SPDX-License-Identifier: Apache-2.0
#pragma once

// Fixed-width types without a standard library: NVRTC compiles with no include paths. On the host
// (parameter records, simulator) the standard header gives the same names.

#if defined(__CUDACC_RTC__)  // NVRTC
using int8_t = signed char;
using uint8_t = unsigned char;
using int16_t = short;
using uint16_t = unsigned short;
using int32_t = int;
using uint32_t = unsigned int;
using int64_t = long long;
using uint64_t = unsigned long long;
#else
#include <cstdint>
#endif

namespace moejit::device {

// Storage of narrow formats: bits only, arithmetic happens in fp32.
struct Bf16 {
  uint16_t bits;
};
struct E4m3 {
  uint8_t bits;
};
struct E5m2 {
  uint8_t bits;
};

// 8 and 16 bytes that move as one access.
struct alignas(8) Bytes8 {
  uint32_t word[2];
};
struct alignas(16) Bytes16 {
  uint32_t word[4];
};

}  // namespace moejit::device
