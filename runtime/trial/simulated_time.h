// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/plan.h"
#include "runtime/host_tensor.h"

#include <cstdint>
#include <vector>

namespace moejit::trial {

// About how many seconds the parts of a run in the simulator take, without compiling.
struct SimulatedTime {
  double random_data = 0.0;
  std::vector<double> kernels;  // by index into Plan::kernels; 0: not launched
  double check = 0.0;           // of `run --check`

  double total() const;
};

// The properties of a run that decide how long it takes.
struct SimulatedRun {
  bool makes_weights = true;  // random ones
  bool is_checked = false;
  int32_t cores = 1;  // that are free
};

// Estimates a run with this routing, topk_ids [T, K]. The rates were measured on one machine
// (docs/simulator.md has them, and how far off they were); a busy or slower machine takes longer.
SimulatedTime estimate_simulated_time(const compiler::LayerPlan& plan,
                                      const runtime::HostTensor& topk_ids, const SimulatedRun& run);

}  // namespace moejit::trial
