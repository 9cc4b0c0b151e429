// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/plan.h"
#include "runtime/host_tensor.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace moejit::trial {

// The estimated seconds that the parts of a run in the simulator take, without compiling.
struct SimulatedTime {
  double random_data = 0.0;
  std::vector<double> kernels;  // by index into Plan::kernels; 0: not launched
  double check = 0.0;           // seconds that `run --check` takes to compare

  double total() const;
};

// The properties of a run that decide how long it takes.
struct SimulatedRun {
  bool makes_weights = true;  // whether random weights are made
  bool is_checked = false;
  int32_t cores = 1;  // free cores
  // Kernels that are launched, by index into Plan::kernels; absent: all but those that add to
  // gradients.
  std::optional<std::vector<std::size_t>> kernels = {};
};

// Estimates a run with this routing, topk_ids [T, K]. The rates were measured on one machine, and a
// busy or slower machine takes longer. docs/simulator.md has the rates and how far off they were.
SimulatedTime estimate_simulated_time(const compiler::Plan& plan,
                                      const runtime::HostTensor& topk_ids, const SimulatedRun& run);

}  // namespace moejit::trial
