// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/target.h"

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

}  // namespace moejit::compiler
