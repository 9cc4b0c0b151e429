// SPDX-License-Identifier: Apache-2.0
#include "cli/command_line.h"
#include "compiler/support/floating_point.h"

int main(int argc, char** argv) {
  // A preloaded library may have chosen modes, in which the reference computes other numbers.
  const moejit::DefaultFloatingPoint modes;
  return moejit::cli::run_command_line(argc, argv);
}
