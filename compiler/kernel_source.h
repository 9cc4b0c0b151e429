// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/support/digest.h"
#include "compiler/support/error.h"
#include "compiler/target.h"

#include <span>
#include <string>
#include <vector>

namespace moejit::compiler {

// One kernel as CUDA text. Every target compiles the same text; `target` says with whose headers.
// Equal specs and targets give equal bytes.
struct KernelSource {
  std::string entry;  // name of the extern "C" entry: moejit_<operation>_<types>_<tile>_<8 hex>
  std::string text;
  Target target;
  bool operator==(const KernelSource&) const = default;
};

// Identity of a kernel's machine code. It has everything that can change its bytes or how it is
// launched. It has no paths, hosts, times, environment, driver version or name of a GPU. It is
// equal on all machines.
struct KernelKey {
  Digest digest;
  std::vector<HashedField> fields;  // the hashed fields in order; the source's text as its digest
};

// Returns the key of a source. The toolchain that would compile it is part of the key: error
// kCompilerMissing if there is none.
Result<KernelKey> kernel_key(const KernelSource& source);

// Returns the key of a source for a toolchain given by "name=value" fields, see
// toolchain_identity().
KernelKey kernel_key(const KernelSource& source, std::span<const std::string> toolchain);

}  // namespace moejit::compiler
