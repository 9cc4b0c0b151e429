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
  // The tensors that the kernel reads, including the tensors that it adds to. multi_cast_transpose
  // reads a list: its tensors are "input.0", "input.1", ..., and "scale.0", ... for inputs that
  // have a scale.
  runtime::TensorMap inputs;
};

// Returns the dimension whose size `--tokens` sets: T; P if no tensor has T; C if no tensor has
// either. None if the description fixes all sizes.
std::optional<compiler::Dim> call_size(const compiler::Plan& plan);

// Loads the call of a file, whose tensors have the names in docs/operations-api.md. Without a file,
// makes a call of random data with `options.tokens` in the dimension of call_size(), by default at
// most 256. Errors name file and tensor (kMissingTensor, kTensorMismatch). kInvalidValue: too many
// tokens; kUsage: a routing is asked for, but no rows belong to experts.
Result<OperationCall> load_operation_call(const compiler::Plan& plan, const InputOptions& options);

// Returns how rows of random data choose their experts. None if no rows belong to experts, or if
// the call comes from a file.
std::optional<RandomRouting> routing_of(const compiler::Plan& plan, const InputOptions& options);

// Counts the rows that the kernel of such a call works on.
compiler::CallRows count_rows(const compiler::Plan& plan, const OperationCall& call);

// Removes rows past offs[E] from tensors of the call. These belong to no group, and no kernel
// writes them.
void cut_rows(const compiler::Plan& plan, const OperationCall& call, runtime::TensorMap& tensors);

// Makes a call of random data with `size` in the dimension of call_size(). A seed gives the same
// data on every machine. Activations and weights are as layers get them. The popularity of experts
// falls like 1 / rank, or is uniform. E4M3 codes have the scales of a quantizer. Pad rows hold
// numbers, not zeros, unless the operation says that columns of no token hold zeros.
OperationCall random_operation_call(const compiler::Plan& plan, int64_t size, uint64_t seed,
                                    RandomRouting routing = RandomRouting::kSkewed);

}  // namespace moejit::trial
