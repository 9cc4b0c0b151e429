// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tests/sim/support/sim_kernel.h"

#include <ostream>
#include <string>

namespace moejit::runtime {

// A kernel of kernels/ that breaks a rule where BROKEN is 1 and keeps it where BROKEN is 0.
struct BrokenKernel {
  std::string name;    // of the file
  std::string wanted;  // in the report, a regular expression
  int32_t threads = 32;
  int64_t ctas = 3;
  // Races between CTAs, and orders that only some seeds try: caught by most seeds, not all.
  bool depends_on_order = false;
  bool output_is_written = true;
};
std::ostream& operator<<(std::ostream& out, const BrokenKernel& kernel);

// The text of kernels/<name>.
std::string read_kernel(const std::string& name);

// The kernel with BROKEN defined; what stands before it is not counted in lines.
std::string variant(const std::string& text, bool broken);

// Is this a report on the kernel, as `wanted`, at a line of the text that is marked FAULT?
void expect_report(const Error& error, const std::string& wanted, const std::string& text);

}  // namespace moejit::runtime
