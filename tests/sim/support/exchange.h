// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/simulator_group.h"
#include "tests/sim/support/sim_kernel.h"

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace moejit::runtime {

// A change of one line of a kernel in kernels/ranks.
struct KernelChange {
  std::string kernel;  // "push"
  std::string from;    // occurs once
  std::string to;
};

// Returns the text of kernels/ranks/<kernel>.cu, changed; "#line" names <kernel>.cu.
std::string rank_kernel_text(const std::string& kernel, const std::vector<KernelChange>& changes);

// Returns the number of the line of a kernel's changed text that has the snippet; 0 if none has.
int32_t line_of(const std::string& kernel, const std::vector<KernelChange>& changes,
                const std::string& snippet);

struct ExchangeOptions {
  int32_t ranks = 2;
  uint64_t seed = 0;
  int32_t epochs = 3;
  std::vector<int32_t> tokens;  // of each rank; empty: a few, other numbers each
  uint32_t timeout = 0;         // ns
  bool expires = true;          // whether data of the last epoch count as stale
  int32_t silent_rank = -1;     // launches nothing
  int32_t killed_rank = -1;     // dies after `killed_after` parts
  int64_t killed_after = 0;
  std::vector<int32_t> epochs_of;  // of each rank; empty: `epochs`
  bool is_receive_first = false;   // whether receive is launched before push, on another stream
  int64_t receive_ctas = 3;
  std::vector<KernelChange> changes;
};

// What came of it.
struct ExchangeResult {
  bool is_right = true;  // whether all tokens came home, in all epochs, for ranks that answered
  std::vector<uint32_t> status;  // of each rank
  uint64_t nanoseconds = 0;      // of virtual time
};

// Runs the kernels of kernels/ranks on all ranks, for some epochs, without waiting in between.
Result<ExchangeResult> run_exchange(const ExchangeOptions& options);

}  // namespace moejit::runtime
