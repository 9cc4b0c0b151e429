// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/kernel_binary.h"

#include <optional>
#include <string>
#include <string_view>

namespace moejit::compiler {

// Why a kernel that was assembled is slower than it should be: the rest of the sentence "kernel
// E:", and what who writes kernels can do.
struct Complaint {
  std::string what;
  std::string hint;
};

// What ptxas's report (NVRTC's log under --ptxas-options=-v) holds against a kernel, the worst
// first:
//   any kernel              matrix instructions that ptxas serialised, setmaxnreg that it ignored
//   with `forbids_spills`   registers that went to local memory
// Each of them leaves the results right: ptxas calls them "info", and what it takes apart or spills
// it puts in order again (PTX: accumulators belong to the matrix unit up to wgmma.wait_group, and
// ptxas waits for it before it moves them). But the kernel may be several times slower, so that
// somebody has to be told.
std::optional<Complaint> complaint_of(std::string_view log, const ResourceUsage& usage,
                                      bool forbids_spills);

// Whether a text asks for WGMMA. Kernels that do, themselves or in a header, forbid spills: their
// accumulators must stay in registers while the matrix unit works.
bool holds_wgmma(std::string_view text);

}  // namespace moejit::compiler
