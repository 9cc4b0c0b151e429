// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/compiler.h"
#include "compiler/operation.h"
#include "runtime/trial/inputs.h"

#include <cstdint>

namespace moejit::trial {

// Loads the call of a file, whose tensors have the names in docs/operations-api.md. Without a file,
// makes a call of random data with `options.tokens` in the dimension of call_size(), by default at
// most 256. Errors name file and tensor (kMissingTensor, kTensorMismatch). kInvalidValue: too many
// tokens; kUsage: a routing is asked for, but no rows belong to experts.
Result<CallInputs> load_operation_call(const compiler::Plan& plan, const InputOptions& options);

// Counts, on the host, the rows that the kernels of a call on one device work on.
compiler::CallRows count_rows(const compiler::Plan& plan, const CallInputs& call);

// Removes rows past offs[E] from tensors of the call. These belong to no group, and no kernel
// writes them.
void cut_rows(const compiler::Plan& plan, const CallInputs& call, runtime::TensorMap& tensors);

// Makes a call of random data with `size` in the dimension of call_size(), the same data on every
// machine. Activations and weights are as layers get them. E4M3 codes have the scales of a
// quantizer. Pad rows hold numbers, not zeros, unless the operation says that columns of no token
// hold zeros.
CallInputs random_operation_call(const compiler::Plan& plan, int64_t size,
                                 const RandomInputs& random);

}  // namespace moejit::trial
