// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/simulator_group.h"
#include "tests/sim/support/sim_kernel.h"

#include <array>
#include <memory>
#include <string>
#include <vector>

namespace moejit::runtime {

// Runs one kernel on each of two ranks: `struct Params { uint32_t* words[2]; uint32_t* own; int32_t
// rank; };`, where words[r] are 1024 words of rank r's heap, and own are 16 of the rank's own
// memory. All are 0 at first.
struct RankWords {
  std::array<std::vector<uint32_t>, 2> words;
  std::array<std::vector<uint32_t>, 2> own;
  uint64_t nanoseconds = 0;
};
Result<RankWords> run_on_two_ranks(const std::string& body, uint64_t seed, int64_t ctas = 1,
                                   int32_t threads = 32);

}  // namespace moejit::runtime
