// SPDX-License-Identifier: Apache-2.0
#include "compiler/emitter/emitter.h"

#include "compiler/emitter/kernel_text.h"
#include "compiler/support/digest.h"

#include <algorithm>
#include <fmt/core.h>
#include <variant>

namespace moejit::compiler {
namespace {

bool is_identifier_part(std::string_view name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
  });
}

}  // namespace

Result<KernelSource> emit(const KernelPlan& kernel, const Target& target) {
  if (!is_identifier_part(kernel.operation)) {
    return fail(Stage::kEmit, ErrorCode::kInternal,
                fmt::format("operation \"{}\": wanted lower-case letters, digits and underscores",
                            kernel.operation));
  }
  const KernelText text = kernel_text(kernel.spec);
  // The name ends with a digest of the text in which the name is left empty. So kernels with
  // different texts never share a name in a profile.
  const std::string digest = sha256(render(kernel, text, "")).hex().substr(0, 8);
  const std::string entry =
      fmt::format("moejit_{}_{}_{}_{}", kernel.operation, text.types, text.tile, digest);
  return KernelSource{.entry = entry, .text = render(kernel, text, entry), .target = target};
}

}  // namespace moejit::compiler
