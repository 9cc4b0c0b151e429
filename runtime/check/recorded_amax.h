// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/kernel_spec.h"
#include "runtime/check/kernel_tensors.h"

#include <vector>

namespace moejit::check {

// The largest magnitude of each expert's values, and how far from it a kernel may be.
struct ExpertAmax {
  std::vector<double> amax, bound;

  explicit ExpertAmax(size_t experts) : amax(experts, 0.0), bound(experts, 0.0) {}
  // Counts a magnitude in; NaN is none.
  void raise(size_t expert, double magnitude) {
    if (magnitude > amax[expert]) amax[expert] = magnitude;
  }
};

// Checks the columns of the state "amax" that a cast has raised to these magnitudes, as a part of
// the state's check, which other casts have their own parts in. Does nothing for casts that record
// nothing, and where it is not known what the state held before.
void check_recorded_amax(const compiler::AmaxColumns& columns, const ExpertAmax& experts,
                         const KernelTensors& tensors, CheckList& list);

}  // namespace moejit::check
