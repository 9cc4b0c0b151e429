// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/kernel_source.h"
#include "compiler/support/digest.h"
#include "compiler/support/error.h"

#include <span>
#include <string>
#include <vector>

namespace moejit::compiler {

// Identity of a kernel's machine code: everything that can change its bytes or how it is launched,
// and nothing else - no paths, hosts, times, environment, driver version or name of a GPU. Equal
// on all machines.
struct KernelKey {
  Digest digest;
  std::vector<HashedField> fields;  // what went in, in order; the text as its digest
};

// Error kCompilerMissing: the toolchain that would compile the source is part of the key.
Result<KernelKey> kernel_key(const KernelSource& source);

// The same for a toolchain told by "name=value" fields, see toolchain_identity().
KernelKey kernel_key(const KernelSource& source, std::span<const std::string> toolchain);

}  // namespace moejit::compiler
