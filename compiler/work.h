// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/plan.h"

#include <cstdint>
#include <optional>
#include <span>

namespace moejit::compiler {

// Rows of experts in a call, with and without the pad rows among them.
struct CallRows {
  int64_t tokens = 0;         // T
  int64_t routed = 0;         // sum of counts
  int64_t padded = 0;         // offs[E]
  int64_t routed_tokens = 0;  // tokens among the T that have a row
  // Experts that have a row. A plan does not know them, and counts as many as the rows can reach.
  std::optional<int64_t> routed_experts;
};

// Least traffic and arithmetic of a kernel: each input is read once, each output is written once;
// pad rows are written, never read or multiplied. A memory-bound kernel is judged by these bytes
// over its time.
struct Work {
  int64_t min_bytes = 0;
  int64_t multiply_adds = 0;
  // Bytes that go to the memory of all other ranks of a group, flags aside. It is the mean of all
  // routings in which a token's K experts differ and are drawn alike from all ranks' experts.
  int64_t sent_bytes = 0;
};
Work count_work(const KernelPlan& kernel, const CallRows& rows);

// Bytes that NVLink of an H100 or H200 carries each way in a microsecond: 18 links of 25 GB/s.
// (NVIDIA H100 Tensor Core GPU data sheet: 900 GB/s, both ways together.) Payload comes with
// headers, so no exchange gets there.
inline constexpr double kLinkBytesPerMicrosecond = 450e3;

// About what a kernel takes in the simulator: nanoseconds of one core, and how many CTAs share
// them.
struct SimulatedCost {
  double nanoseconds = 0.0;
  int32_t most_ctas = INT32_MAX;
};

// Estimates what a call of a kernel costs, from the call's work and the rows of each local expert.
// The rates were measured on one machine (docs/simulator.md); a busy or slower one takes longer.
SimulatedCost simulated_cost(const KernelPlan& kernel, const Work& work,
                             std::span<const int64_t> rows_of_experts);

}  // namespace moejit::compiler
