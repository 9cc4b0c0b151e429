// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace moejit::runtime {

// SplitMix64: any seed is good, and neighboring seeds give unrelated sequences.
class Random {
 public:
  explicit Random(uint64_t seed = 0) : state_(seed) {}

  uint64_t next() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  // Returns a number from 0 to limit - 1.
  uint32_t below(uint32_t limit) { return static_cast<uint32_t>(((next() >> 32) * limit) >> 32); }

 private:
  uint64_t state_;
};

}  // namespace moejit::runtime
