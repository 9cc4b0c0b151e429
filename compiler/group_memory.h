// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace moejit::compiler {

// A tensor at a place in a block of memory.
struct PlacedTensor {
  std::string name;
  int64_t bytes = 0;
  int64_t offset = 0;  // multiple of 256
  bool operator==(const PlacedTensor&) const = default;
};

// The memory that each rank gives to its group; all ranks reach it. A plan's tensor "slots_2" is
// "slots" here, with the rank 2. Only the rank itself touches its `epoch`.
struct GroupMemory {
  std::vector<PlacedTensor> tensors;
  int64_t bytes = 0;
  bool operator==(const GroupMemory&) const = default;
};
// Returns whether all tensors of `part` are in `whole`, at the same places. A layer without a
// backward pass has fewer tensors there than with one.
bool contains(const GroupMemory& whole, const GroupMemory& part);

// The place of a plan in a group: whose part it is, and what is in the memory of each rank.
struct GroupPlace {
  int64_t rank = 0;
  GroupMemory memory;
  bool operator==(const GroupPlace&) const = default;
};

}  // namespace moejit::compiler
