// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/compile_time.h"
#include "compiler/support/file.h"

#include <optional>
#include <string>
#include <string_view>

namespace moejit::compiler {

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
