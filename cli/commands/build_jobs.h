// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/terminal/terminal.h"
#include "compiler/compiler.h"
#include "runtime/engine.h"

#include <optional>
#include <string>
#include <vector>

namespace moejit::cli {

// The plans of a description whose kernels a build makes.
enum class BuildVariants {
  kDescribed,          // the description as it stands
  kWithIntermediates,  // and with intermediates kept, for run --check and --dump-intermediates
  // Everything that a run of the layer can need. Variants are forward alone and with backward, with
  // and without recomputation, with kernels fused and apart, with intermediates kept or not.
  kAll
};

// A description that a build makes kernels for.
struct BuildSubject {
  std::string file;
  std::string name;  // of the layer or operation in it
  bool operator==(const BuildSubject&) const = default;
};

// One kernel to make; several plans and layers may need it.
struct BuildJob {
  std::vector<BuildSubject> subjects;  // that need it, each once, in their order; at least one
  std::string operation;
  compiler::KernelSource source;
  runtime::ObtainedKernel kernel = {};
  std::optional<Error> error = std::nullopt;  // why there is no kernel
};

// Returns the kernels of all layers, each once, in the order of layer, operation and entry.
// Variants that a target cannot run are left out, unless they are the description itself
// (kUnsupported). `tuning` may be null.
Result<std::vector<BuildJob>> collect_build_jobs(const std::vector<std::string>& layers,
                                                 const std::string& target, BuildVariants variants,
                                                 const compiler::Tuning* tuning);

// Returns whether an error concerns one kernel alone, so that others may still be made.
bool is_of_one_kernel(const Error& error);

// Reports each job that failed in a sentence with the layer's file and name. If the layer can do
// without the kernel, the sentence tells what to write there. The error counts the failed jobs, has
// the code of the first, and all compilers' logs as its detail. Succeeds if all jobs have their
// kernels.
Result<void> report_failures(const std::vector<BuildJob>& jobs, const Terminal& terminal);

}  // namespace moejit::cli
