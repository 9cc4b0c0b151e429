// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/plan.h"
#include "compiler/tuning.h"
#include "runtime/engine.h"
#include "runtime/measure/gemm_case.h"
#include "runtime/measure/versioned_kernel.h"
#include "runtime/trial/trial.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace moejit::tune {

// A layer as a tuner measures it, on one GPU. For a layer of a group, the tuner measures what a
// rank computes beside the exchange. This is the layer of the rank's experts, with the slots of all
// ranks as tokens.
struct TunedLayer {
  compiler::Layer layer;  // as it is described
  int64_t tokens = 0;     // of the calls; for a group, each rank's
  uint64_t seed = 0;      // of the operands

  // Return the layer that runs on one GPU, and the tokens of its calls.
  compiler::Layer measured_layer() const;
  int64_t measured_tokens() const;

  bool operator==(const TunedLayer&) const = default;
};

// Keeps the memory of the layer that was opened last. Problems of one layer share it; two layers
// may be too large to be open together.
struct OpenedLayer {
  TunedLayer tuned;
  std::shared_ptr<trial::Trial> session;
};

// What a tuner was asked to tune.
struct TuneSubjects {
  std::vector<TunedLayer> layers;
  std::vector<measure::GemmCase> gemms;
  uint64_t seed = 0;  // makes the operands of cases
  // Entries to verify. If empty, everything is tuned.
  std::vector<compiler::TuningEntry> verified = {};
};

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
  // Estimate of the time that its kernels take in a step. Decides when the problem is measured.
  double step_us = 0.0;
  double share = 0.0;  // share of the estimated time of all problems; set by join_problems()
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

// Returns an estimate of the microseconds of a launch: the kernel's least work divided by what a
// Hopper GPU sustains. Without `tokens`, calls reach all bounds of the plan. With `tokens`, a call
// has so many tokens, and this rank gets the mean share of their rows.
double estimated_us(const compiler::KernelPlan& kernel);
double estimated_us(const compiler::KernelPlan& kernel, int64_t tokens);
// Returns a share of the estimated time as "23 %", "4.2 %" or "under 0.1 %".
std::string share_text(double share);

// Returns the problem's kernel with its versions, which run on the tensors of a trial. The trial's
// plan has the kernel at the same index. Launches the kernels before it, so that it finds its
// inputs. Engine and device must outlive the result.
Result<OpenedKernel> open_kernel(const TuneProblem& problem, std::shared_ptr<trial::Trial> session,
                                 runtime::Engine& engine, runtime::Device& device);

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

// Joins problems of the same name into one, with the time of all, and sorts them. The subject with
// the longest estimated time comes first, and within a subject the longest problem.
void join_problems(std::vector<TuneProblem>& problems);

// Returns the problems of all subjects, each once, in the order of join_problems(). If entries are
// to be verified, returns only their problems. Such a problem has the usual choices and the choices
// of its entry, unless these are the usual ones or are not offered. Problems of layers keep the
// memory of the layer that was opened last in `opened`.
Result<std::vector<TuneProblem>> collect_problems(
    const TuneSubjects& subjects, const compiler::Target& target,
    const std::shared_ptr<OpenedLayer>& opened = std::make_shared<OpenedLayer>());

// Returns the kernels of all groups' layers that stay untuned.
Result<std::vector<std::string>> unmeasured_kernels(const TuneSubjects& subjects,
                                                    const compiler::Target& target);
// Returns a sentence about kernels that stay untuned.
std::string unmeasured_text(const std::vector<std::string>& kernels);

}  // namespace moejit::tune
