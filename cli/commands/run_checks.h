// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/commands/run_calls.h"
#include "runtime/check/tensor_check.h"

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace moejit::cli {

// Suffix of a state's name in checks made after its scales were updated. Checks without the suffix
// are of what casts have recorded.
inline constexpr std::string_view kOfNextStep = " of the next step";

// Compares each kernel of the calls with the CPU reference. `states` are those after the scales
// were updated, `results` all tensors before.
std::vector<check::TensorCheck> check_calls(const compiler::Plan& plan, const RunCalls& calls,
                                            const runtime::TensorMap& inputs,
                                            const runtime::TensorMap& results,
                                            const runtime::TensorMap& states);

// Runs a group's layer on one rank with all tokens, and compares each of its kernels with the CPU
// reference. The ranks' results are compared with the results of this run. `plan` is one rank's,
// and each rank has inputs, results and a T. Returns the errors of that run.
Result<std::vector<check::TensorCheck>> check_ranks(const RunCommand& command,
                                                    const compiler::Plan& plan,
                                                    std::span<const trial::CallInputs> inputs,
                                                    std::span<const runtime::TensorMap> results,
                                                    std::span<const int64_t> tokens,
                                                    runtime::Engine& engine);

}  // namespace moejit::cli
