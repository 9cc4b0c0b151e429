// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/compile_time.h"
#include "compiler/support/file.h"

#include <optional>
#include <string>
#include <string_view>

namespace moejit::compiler {

// NVRTC writes the time of each phase to a file that its option --time names. This one is in memory
// and has no name in any folder.
class PhaseReport {
 public:
  // Where the system has no such files, what it makes of NVRTC's report is none.
  static PhaseReport create();

  // The option for one compilation, empty where there is no file.
  std::string option() const;
  // What the compilation has reported, if anything.
  std::optional<CompilePhases> phases() const;

 private:
  FileDescriptor file_;
};

// The phases in NVRTC's report, a CSV table: "k.cu, NVVM Optimizer, 1031, ms". None unless front
// end, optimizer and assembler are there, each in milliseconds.
std::optional<CompilePhases> phases_of(std::string_view report);

}  // namespace moejit::compiler
