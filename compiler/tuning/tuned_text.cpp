// SPDX-License-Identifier: Apache-2.0
#include "compiler/tuned_text.h"

#include "compiler/compiler.h"

namespace moejit::compiler {
namespace {

Result<std::string> digest_of(const KernelPlan& kernel, const Target& target) {
  MOEJIT_TRY_ASSIGN(const KernelSource source, emit_kernel(kernel, target));
  return text_digest(source.text);
}

}  // namespace

Result<std::string> measured_text_digest(const KernelPlan& kernel, const Target& target) {
  KernelPlan unnamed = kernel;
  unnamed.operation = "kernel";
  return digest_of(unnamed, target);
}

bool is_measured_text(const TuningEntry& entry, const KernelPlan& kernel, const Target& target) {
  if (const auto digest = measured_text_digest(kernel, target);
      digest && *digest == entry.text_digest)
    return true;
  const auto of_name = digest_of(kernel, target);
  return of_name && *of_name == entry.text_digest;
}

}  // namespace moejit::compiler
