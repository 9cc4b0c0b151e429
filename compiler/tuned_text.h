// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/plan.h"
#include "compiler/tuning.h"

#include <string>

namespace moejit::compiler {

// Returns the digest that an entry has of a kernel: text_digest() of its text without the name of
// its operation. Kernels of several operations may be one problem (`quantize` and `quantize_dy` of
// a layer). Errors: as of emit_kernel() and text_digest().
Result<std::string> measured_text_digest(const KernelPlan& kernel, const Target& target);

// Returns whether the entry was measured with the kernel's text; false for a text that cannot be
// had. Takes the digest of the text with the name of the operation as well, which entries of
// earlier versions have.
bool is_measured_text(const TuningEntry& entry, const KernelPlan& kernel, const Target& target);

}  // namespace moejit::compiler
