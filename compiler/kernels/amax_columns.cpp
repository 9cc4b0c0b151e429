// SPDX-License-Identifier: Apache-2.0
#include "compiler/kernels/amax_columns.h"

#include "compiler/emitter/emitter.h"

#include <fmt/core.h>

namespace moejit::compiler {

std::string to_string(const AmaxColumns& columns) {
  return fmt::format("{}e+{}", columns.stride, columns.first);
}

ComposedType recorded_amax() {
  return {"Amax", "AmaxIsRecorded", {"kLocalExperts", "kAmaxStride", "kAmaxFirst"}};
}

void add_amax_columns(KernelText& text, const AmaxColumns& columns) {
  text.constants.push_back(
      integer_constant("kAmaxStride", columns.stride, "columns of the state for each expert"));
  text.constants.push_back(
      integer_constant("kAmaxFirst", columns.first, "which of them records the maximum"));
}

}  // namespace moejit::compiler
