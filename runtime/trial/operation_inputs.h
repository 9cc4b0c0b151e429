// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/call_dims.h"
#include "compiler/compiler.h"
#include "compiler/operation.h"
#include "runtime/host_tensor.h"
#include "runtime/trial/layer_inputs.h"

#include <cstdint>
#include <optional>

namespace moejit::trial {

// A call of an operation: its sizes and what it reads.
struct OperationCall {
  compiler::CallDims dims;
  compiler::CallRows rows;
  // The tensors that the kernel reads, those that it adds to among them. multi_cast_transpose reads
  // a list: its tensors are "input.0", "input.1", ..., and "scale.0", ... where they have one.
  runtime::TensorMap inputs;
};

// Returns the dimension whose size `--tokens` tells: T, or where no tensor has it P, or else C.
// None where all sizes are those of the description.
std::optional<compiler::Dim> call_size(const compiler::OperationPlan& plan);

// Loads the call of a file, whose tensors have the names that docs/operations-api.md tells, or else
// makes one of random data, of `options.tokens` in that dimension, at most 256 by default. Errors
// name file and tensor (kMissingTensor, kTensorMismatch); kInvalidValue: too many tokens; kUsage:
// a routing that is asked for where no rows belong to experts.
Result<OperationCall> load_operation_call(const compiler::OperationPlan& plan,
                                          const InputOptions& options);

// Returns how rows of random data choose their experts; none where no rows belong to experts, and
// for the call of a file.
std::optional<RandomRouting> routing_of(const compiler::OperationPlan& plan,
                                        const InputOptions& options);

// Counts the rows that the kernel of such a call works on.
compiler::CallRows count_rows(const compiler::OperationPlan& plan, const OperationCall& call);

// Leaves rows past offs[E] out of tensors of the call: they belong to no group, and no kernel
// writes them.
void cut_rows(const compiler::OperationPlan& plan, const OperationCall& call,
              runtime::TensorMap& tensors);

}  // namespace moejit::trial
