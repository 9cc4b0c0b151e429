// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

namespace moejit::testing {

// Makes numbers that follow from a seed alone: the same with every standard library and compiler,
// which those of <random> are not. The generator is SplitMix64 (Steele, Lea and Flood, "Fast
// splittable pseudorandom number generators", 2014).
class SeededRandom {
 public:
  explicit SeededRandom(uint64_t seed) : state_(seed) {}

  uint64_t next() {
    state_ += 0x9e3779b97f4a7c15u;
    uint64_t mixed = state_;
    mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9u;
    mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebu;
    return mixed ^ (mixed >> 31);
  }

  // A whole number from `lowest` to `highest`, both included.
  int64_t between(int64_t lowest, int64_t highest) {
    return lowest + static_cast<int64_t>(next() % static_cast<uint64_t>(highest - lowest + 1));
  }

  // True in `percent` of a hundred calls.
  bool in_percent(int64_t percent) { return between(1, 100) <= percent; }

  // One of `values`, which must not be empty.
  template <typename T, std::size_t kCount>
  const T& pick(const T (&values)[kCount]) {
    return values[static_cast<std::size_t>(between(0, static_cast<int64_t>(kCount) - 1))];
  }

 private:
  uint64_t state_;
};

}  // namespace moejit::testing
