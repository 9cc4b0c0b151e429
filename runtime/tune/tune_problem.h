// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/plan.h"
#include "runtime/engine.h"
#include "runtime/measure/gemm_case.h"
#include "runtime/measure/versioned_kernel.h"
#include "runtime/tune/open_layer.h"
#include "runtime/tune/worth.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace moejit::tune {

// A kernel with versions, on a device, with operands and results.
struct OpenedKernel {
  measure::VersionedKernel kernel;
  std::shared_ptr<void> owner;  // owner of the memory that the kernel uses
};

// A problem that a tuner measures, and how to make its kernels.
struct TuneProblem {
  std::string name;       // KernelPlan::problem
  std::string subject;    // the names of the layer or case and of the kernel
  std::size_t owner = 0;  // the layer's or case's number
  Worth worth;            // decides when the problem is measured
  double share = 0.0;     // share of the estimated time of all problems; set by join_problems()
  std::vector<compiler::Choices> candidates;
  // Plans the problem with options. The kernel is kernels[index] of the plan.
  std::function<Result<std::shared_ptr<const compiler::Plan>>(const compiler::PlanOptions&)> plan;
  std::size_t index = 0;
  // Makes operands. Engine and device must outlive the result.
  std::function<Result<OpenedKernel>(runtime::Engine&, runtime::Device&)> open;
};

// Returns a record with these choices for one problem, to plan with.
compiler::Tuning tuning_of(const std::string& problem, const compiler::Choices& choices);

// Returns the problem's kernel with these choices.
Result<compiler::KernelPlan> kernel_of(const TuneProblem& problem,
                                       const compiler::Choices& choices);
// Return, for each candidate in order, the digest of the kernel's text as entries have it, and the
// kernel's source.
Result<std::vector<std::string>> text_digests_of(const TuneProblem& problem,
                                                 const compiler::Target& target);
Result<std::vector<compiler::KernelSource>> sources_of(const TuneProblem& problem,
                                                       const compiler::Target& target);
// Returns the sources of the candidates of all problems.
Result<std::vector<compiler::KernelSource>> sources_of(const std::vector<TuneProblem>& problems,
                                                       const compiler::Target& target);

// Returns the problem of a case. Its operands are made with `seed`.
Result<TuneProblem> problem_of(const measure::GemmCase& gemm, const compiler::Target& target,
                               uint64_t seed);

// Returns the problems of a layer's kernels. They share the layer's memory through `opened`. For a
// layer of a group, returns only problems of a rank's plan that the layer of its experts has too.
Result<std::vector<TuneProblem>> problems_of(const TunedLayer& tuned,
                                             const compiler::Target& target,
                                             const std::shared_ptr<OpenedLayer>& opened);

// Returns the kernels of a group's layer that might be tuned, but that no layer of one GPU has, as
// "layer kernel". They copy or quantize rows that go to other ranks or come from them.
Result<std::vector<std::string>> unmeasured_kernels(const TunedLayer& tuned,
                                                    const compiler::Target& target);

// Joins problems of the same name into one, with the worth of all, and sorts them. The subject with
// the longest estimated time comes first, and within a subject the longest problem.
void join_problems(std::vector<TuneProblem>& problems);

}  // namespace moejit::tune
