// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/kernel_binary.h"
#include "compiler/support/file.h"

#include <optional>
#include <string>
#include <string_view>

namespace moejit::compiler {

// Why an assembled kernel is slower than it should be: the rest of the sentence "kernel E:", and
// advice for whoever writes kernels.
struct Complaint {
  std::string what;
  std::string hint;
};

// Returns the worst complaint about a kernel in ptxas's report (NVRTC's log under
// --ptxas-options=-v):
//   any kernel              matrix instructions that ptxas serialized, setmaxnreg that it ignored
//   with `forbids_spills`   registers that went to local memory
// None of them makes the results wrong: ptxas calls them "info", and what it takes apart or spills
// it puts in order again. (PTX: accumulators belong to the matrix unit up to wgmma.wait_group, and
// ptxas waits for it before it moves them.) But the kernel may be several times slower, so the user
// has to know.
std::optional<Complaint> complaint_of(std::string_view log, const ResourceUsage& usage,
                                      bool forbids_spills);

// Returns whether a text uses WGMMA. Such kernels forbid spills: their accumulators must stay in
// registers while the matrix unit works.
bool holds_wgmma(std::string_view text);

// A file for NVRTC's option --time, to which it writes the time of each phase. The file is in
// memory and has no name in any folder.
class PhaseReport {
 public:
  // Creates the file. If the system has no such files, there is no report.
  static PhaseReport create();

  // Returns the option for one compilation, empty if there is no file.
  std::string option() const;
  // Returns the phases that the compilation has reported, if any.
  std::optional<CompilePhases> phases() const;

 private:
  FileDescriptor file_;
};

// Returns the phases in NVRTC's report, a CSV table: "k.cu, NVVM Optimizer, 1031, ms". None unless
// front end, optimizer and assembler are there, each in milliseconds.
std::optional<CompilePhases> phases_of(std::string_view report);

}  // namespace moejit::compiler
