// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/kernel_spec.h"
#include "runtime/check/kernel_tensors.h"
#include "runtime/reference/scales.h"

#include <functional>
#include <vector>

namespace moejit::check {

// The largest magnitude of each expert's values, and how far from it a kernel may be.
struct ExpertAmax {
  std::vector<double> amax, bound;

  explicit ExpertAmax(size_t experts) : amax(experts, 0.0), bound(experts, 0.0) {}
  // Counts a magnitude in; a NaN is ignored.
  void raise(size_t expert, double magnitude) {
    if (magnitude > amax[expert]) amax[expert] = magnitude;
  }
};

// Checks the columns of the state "amax" that a cast has raised to these magnitudes. This is a part
// of the state's check; other casts check their own columns. Does nothing for casts that record
// nothing, or if it is not known what the state held before.
void check_recorded_amax(const compiler::AmaxColumns& columns, const ExpertAmax& experts,
                         const KernelTensors& tensors, CheckList& list);

// The values of permuted rows before they are rounded to bf16: `parts` parts of `columns` columns
// each, gate before up.
struct ValueRows {
  int64_t parts = 1;
  int64_t columns = 0;
  std::function<float(int64_t row, int64_t part, int64_t column)> at;
};

// The next functions check kernels of rows whose experts have one scale each. Tokens' rows are
// compared bit for bit: their largest magnitudes in the order of experts, and their cast. For
// computed values a kernel may round some to the other neighbor in bf16. A cast is checked together
// with the magnitudes that it records.
void check_permuted_amax(const compiler::RowChainSpec& spec, const KernelTensors& tensors,
                         CheckList& list);
// Checks the largest magnitudes of bf16 rows in the order of experts; pad rows have 0.
void check_rows_amax(const compiler::RowChainSpec& spec, const KernelTensors& tensors,
                     CheckList& list);
void check_permuted_cast(const compiler::RowChainSpec& spec, const KernelTensors& tensors,
                         CheckList& list);
void check_values_amax(const ValueRows& values, const KernelTensors& tensors, CheckList& list);
void check_values_cast(const ValueRows& values, compiler::DType format,
                       const compiler::AmaxColumns& amax, const KernelTensors& tensors,
                       CheckList& list);

}  // namespace moejit::check
