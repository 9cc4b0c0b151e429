// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/target.h"

#include <string>
#include <vector>

namespace moejit::compiler {

// One kernel as CUDA text. The same text serves every target; `target` says whose headers it is
// compiled with. Equal specs and targets give equal bytes.
struct KernelSource {
  std::string entry;  // name of the extern "C" entry: moejit_<operation>_<types>_<tile>_<8 hex>
  std::string text;
  Target target;
  bool operator==(const KernelSource&) const = default;
};

}  // namespace moejit::compiler
