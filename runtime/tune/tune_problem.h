// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/plan.h"
#include "runtime/engine.h"
#include "runtime/measure/gemm_case.h"
#include "runtime/measure/versioned_kernel.h"
#include "runtime/tune/decision/step_choice.h"
#include "runtime/tune/open_layer.h"
#include "runtime/tune/worth.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace moejit::tune {

// A kernel with versions, on a device with operands and results.
struct OpenedKernel {
  measure::VersionedKernel kernel;
  std::shared_ptr<void> owner;  // of the memory that the kernel uses
};

// A problem that a tuner measures, and how to come by its kernels.
struct TuneProblem {
  std::string name;       // KernelPlan::problem
  std::string subject;    // the layer's or case's name, and the kernel's
  std::size_t owner = 0;  // the layer or case, by number
  Worth worth;            // decides when it is measured
  double share = 0.0;     // of the estimated time of all problems; join_problems() sets it
  std::vector<compiler::Choices> candidates;
  // Plans the kernel with options, as kernels[index] of the plan.
  std::function<Result<std::shared_ptr<const compiler::Plan>>(const compiler::PlanOptions&)> plan;
  std::size_t index = 0;
  // Makes operands. Engine and device must outlive the result.
  std::function<Result<OpenedKernel>(runtime::Engine&, runtime::Device&)> open;
};

// Returns records that name these choices for the problem, or for several, to plan with.
compiler::Tuning tuning_of(const std::string& problem, const compiler::Choices& choices);
compiler::Tuning tuning_of(std::span<const StepChoice> choices);

// Returns the kernel with these choices.
Result<compiler::KernelPlan> kernel_of(const TuneProblem& problem,
                                       const compiler::Choices& choices);
// Return the digests of the kernel's text, as entries have them, and its source with each of the
// candidates, in their order.
Result<std::vector<std::string>> text_digests_of(const TuneProblem& problem,
                                                 const compiler::Target& target);
Result<std::vector<compiler::KernelSource>> sources_of(const TuneProblem& problem,
                                                       const compiler::Target& target);
// Returns the sources of all problems.
Result<std::vector<compiler::KernelSource>> sources_of(const std::vector<TuneProblem>& problems,
                                                       const compiler::Target& target);

// Returns the problem of a case. `seed` is of its operands.
Result<TuneProblem> problem_of(const measure::GemmCase& gemm, const compiler::Target& target,
                               uint64_t seed);

// Returns the problems of a layer's kernels. They share the layer's memory through `opened`. Of a
// layer of a group these are the problems of a rank's plan that the layer of its experts has.
Result<std::vector<TuneProblem>> problems_of(const TunedLayer& tuned,
                                             const compiler::Target& target,
                                             const std::shared_ptr<OpenedLayer>& opened);

// Returns the kernels of a group's layer that might be tuned, and that no layer of one GPU has:
// "layer kernel". They copy or quantize rows on their way to other ranks or from them.
Result<std::vector<std::string>> unmeasured_kernels(const TunedLayer& tuned,
                                                    const compiler::Target& target);

// Keeps one of the problems with the same name, with the worth of all, and sorts them by estimated
// time: those of the subject that takes longest first, and of a subject the longest first.
void join_problems(std::vector<TuneProblem>& problems);

}  // namespace moejit::tune
