// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/kernel_source.h"
#include "compiler/kernel_spec.h"

#include <map>
#include <string>

namespace moejit::testing {

struct PlannedKernel {
  compiler::KernelSpec spec;
  compiler::KernelSource source;  // with assertions of the launch shape behind the emitted text
};

// Returns the kernels of example layers in all their forms, and those that no layer has yet, each
// under the name of its entry. What cannot be planned or emitted is a failure of the running test.
std::map<std::string, PlannedKernel> planned_kernels();

}  // namespace moejit::testing
