// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/support/error.h"

#include <cstdint>
#include <utility>

namespace moejit::runtime {

// Memory that a living group of this process has for its rank. No other group may take it too:
// their epochs and flags would be the same words.
class ClaimedMemory {
 public:
  // Claims memory of a rank. Error kInvalidValue if part of it is claimed.
  static Result<ClaimedMemory> claim(int32_t rank, const void* base, int64_t bytes);
  ClaimedMemory() = default;
  ClaimedMemory(ClaimedMemory&& other) noexcept : base_(std::exchange(other.base_, nullptr)) {}
  ClaimedMemory& operator=(ClaimedMemory&& other) noexcept {
    std::swap(base_, other.base_);
    return *this;
  }
  ~ClaimedMemory();

 private:
  explicit ClaimedMemory(const void* base) : base_(base) {}
  const void* base_ = nullptr;
};

}  // namespace moejit::runtime
