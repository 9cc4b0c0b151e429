// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/call_dims.h"
#include "compiler/work.h"
#include "runtime/checkpoint/expert_weights.h"
#include "runtime/host_tensor.h"
#include "runtime/reference/random_inputs.h"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace moejit::trial {

using reference::RandomInputs;
using reference::RandomRouting;

// Where the tensors that calls read come from.
struct InputOptions {
  std::string input_path;                    // empty: random data
  std::string prefix;                        // of the tensors' names in this file
  checkpoint::CheckpointOptions checkpoint;  // no shards: weights come from where x comes from
  std::optional<int64_t> tokens;             // T, P or C of random data (call_size())
  RandomInputs random;
  std::vector<std::string> calls;  // of the plan, that will be made; empty: any that overwrite
  // Whether calls on random data are timed. By default they are then as large as they may be, and
  // not small. None has 0 tokens. Experts beyond the first four have copies of their weights. A
  // kernel's time does not depend on that, and all of DeepSeek-V3's experts would need 22 GB.
  bool is_measured = false;
};

// What the calls of a trial read on one device, and their sizes.
struct CallInputs {
  compiler::CallDims dims;
  compiler::CallRows rows;  // not counted for a rank of a group
  // Includes tensors that kernels add to. multi_cast_transpose reads a list: its tensors are
  // "input.0", "input.1", ..., and "scale.0", ... for inputs that have a scale.
  runtime::TensorMap tensors;
};

// Loads what calls of a layer or an operation read. For a group, the plans of all ranks are given
// in their order, and each rank has its inputs. Errors: of load_layer_inputs(),
// load_group_inputs(), load_operation_call().
Result<std::vector<CallInputs>> load_inputs(std::span<const compiler::Plan> plans,
                                            const InputOptions& options);

// Returns the calls' inputs of a layer on one device, without counting rows.
CallInputs call_of(runtime::TensorMap tensors);

// Returns what random data depend on, if they decide which rows belong to experts. None if no rows
// belong to experts, or if they come from a file.
std::optional<RandomInputs> routed_at_random(const compiler::Plan& plan,
                                             const InputOptions& options);

// Returns the dimension whose size `--tokens` sets: T; P if no tensor has T; C if no tensor has
// either. None if the description fixes all sizes.
std::optional<compiler::Dim> call_size(const compiler::Plan& plan);

// Returns the size of random data: the number that was asked for, or a default. Error
// kInvalidValue: the number is out of range, or the description fixes all sizes.
Result<int64_t> random_size(const compiler::Plan& plan, const InputOptions& options);

// Returns the error kInvalidValue if --tokens is not within the range. `bound` says what sets it.
Result<void> check_tokens(int64_t tokens, int64_t least, int64_t most, std::string_view bound);

}  // namespace moejit::trial
