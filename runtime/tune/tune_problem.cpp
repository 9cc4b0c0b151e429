// SPDX-License-Identifier: Apache-2.0
#include "runtime/tune/tune_problem.h"

#include "compiler/compiler.h"
#include "compiler/tuning.h"
#include "compiler/work.h"
#include "runtime/measure/sm_clock.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <map>
#include <utility>

namespace moejit::tune {
namespace {

using compiler::KernelPlan;

// SMs and clock of an H100 and H200 SXM, and the bandwidth of an H200. Sources: NVIDIA H100 Tensor
// Core GPU Architecture, which peak_multiply_adds() uses too, and NVIDIA H200 data sheet.
constexpr double kSms = 132.0, kMegahertz = 1830.0;
constexpr double kBytesPerMicrosecond = 4.8e6;
// The shares of these peaks that our kernels reach at the power limit, by docs/performance. Grouped
// GEMMs of large calls reach 0.5 to 0.6, kernels that are bound by memory 0.75 to 0.88.
constexpr double kSustainedArithmetic = 0.55, kSustainedBandwidth = 0.85;

// Returns the rows of a call that is routed evenly over all experts of all ranks.
compiler::CallRows even_call(const compiler::CallBounds& bounds, int64_t tokens) {
  const int64_t experts = std::max<int64_t>({bounds.experts, bounds.groups, 1});
  const int64_t groups = bounds.groups > 0 ? bounds.groups : experts;
  const int64_t share = std::max<int64_t>(tokens * bounds.top_k * groups / experts, 1);
  const int64_t routed = std::min(share, bounds.max_permuted_rows);
  // On average, a group ends in the middle of its last pad rows.
  const int64_t pad_rows = groups * (bounds.splits_alignment - 1) / 2;
  return {.tokens = tokens,
          .routed = routed,
          .padded = std::min(routed + pad_rows, bounds.max_permuted_rows),
          .routed_tokens = std::min(tokens, routed)};
}

double estimated_us(const KernelPlan& kernel, const compiler::Work& work) {
  const double multiply_adds_per_us =
      kSms * kMegahertz * static_cast<double>(measure::peak_multiply_adds(kernel));
  const double multiply_us =
      static_cast<double>(work.multiply_adds) / (kSustainedArithmetic * multiply_adds_per_us);
  const double memory_us =
      static_cast<double>(work.min_bytes) / (kSustainedBandwidth * kBytesPerMicrosecond);
  return std::max(multiply_us, memory_us);
}

// Returns what a kernel's launches write, but not how long one ran.
Result<std::vector<measure::VersionedKernel::Written>> written_by(const trial::Trial& session,
                                                                  const KernelPlan& kernel) {
  std::vector<measure::VersionedKernel::Written> written;
  for (const compiler::TensorPlan& tensor : session.plan().tensors) {
    if (!writes(kernel, tensor.name) || tensor.name == "elapsed") continue;
    MOEJIT_TRY_ASSIGN(const runtime::MemoryRegion memory, session.memory_of(tensor));
    written.push_back({.address = const_cast<void*>(memory.address),
                       .bytes = memory.bytes / 4 * 4,
                       .is_added_to = reads(kernel, tensor.name)});
  }
  return written;
}

void keep_verified(std::vector<TuneProblem>& problems,
                   const std::vector<compiler::TuningEntry>& entries) {
  const auto entry_of = [&](const TuneProblem& problem) {
    return std::ranges::find(entries, problem.name, &compiler::TuningEntry::problem);
  };
  std::erase_if(problems,
                [&](const TuneProblem& problem) { return entry_of(problem) == entries.end(); });
  for (TuneProblem& problem : problems) {
    const compiler::Choices& recorded = entry_of(problem)->choices;
    const bool is_offered = std::ranges::count(problem.candidates, recorded) > 0;
    const bool is_usual = problem.candidates.front() == recorded;
    problem.candidates.resize(1);
    if (is_offered && !is_usual) problem.candidates.push_back(recorded);
  }
}

}  // namespace

Result<OpenedKernel> open_kernel(const TuneProblem& problem, std::shared_ptr<trial::Trial> session,
                                 runtime::Engine& engine, runtime::Device& device) {
  for (std::size_t i = 0; i < problem.index; ++i) MOEJIT_TRY(session->launch(i));
  OpenedKernel opened;
  opened.kernel.problem = problem.name;
  opened.kernel.candidates = problem.candidates;
  MOEJIT_TRY_ASSIGN(opened.kernel.written,
                    written_by(*session, session->plan().kernels[problem.index]));
  opened.kernel.make = [session, problem, &engine,
                        &device](const compiler::Choices& choices) -> Result<measure::Launch> {
    const compiler::Tuning tuning = tuning_of(problem.name, choices);
    MOEJIT_TRY_ASSIGN(const auto plan, problem.plan({.tuning = &tuning}));
    MOEJIT_TRY_ASSIGN(const std::shared_ptr<runtime::PreparedPlan> version,
                      runtime::PreparedPlan::prepare(plan, engine, device));
    return measure::Launch(
        [version, session, index = problem.index] { return session->launch(index, *version); });
  };
  opened.owner = std::move(session);
  return opened;
}

compiler::Tuning tuning_of(const std::string& problem, const compiler::Choices& choices) {
  std::vector<compiler::TuningRecord> records(1);
  records.front().entries.push_back({.problem = problem, .choices = choices});
  return *compiler::Tuning::make(std::move(records));  // a single record is always of one GPU
}

Result<compiler::KernelPlan> kernel_of(const TuneProblem& problem,
                                       const compiler::Choices& choices) {
  const compiler::Tuning tuning = tuning_of(problem.name, choices);
  MOEJIT_TRY_ASSIGN(const auto plan, problem.plan({.tuning = &tuning}));
  return plan->kernels[problem.index];
}

Result<std::vector<std::string>> text_digests_of(const TuneProblem& problem,
                                                 const compiler::Target& target) {
  std::vector<std::string> digests;
  for (const compiler::Choices& choices : problem.candidates) {
    MOEJIT_TRY_ASSIGN(const compiler::KernelPlan kernel, kernel_of(problem, choices));
    MOEJIT_TRY_ASSIGN(digests.emplace_back(), measured_text_digest(kernel, target));
  }
  return digests;
}

Result<std::vector<compiler::KernelSource>> sources_of(const TuneProblem& problem,
                                                       const compiler::Target& target) {
  std::vector<compiler::KernelSource> sources;
  for (const compiler::Choices& choices : problem.candidates) {
    MOEJIT_TRY_ASSIGN(const compiler::KernelPlan kernel, kernel_of(problem, choices));
    MOEJIT_TRY_ASSIGN(compiler::KernelSource source, emit_kernel(kernel, target));
    sources.push_back(std::move(source));
  }
  return sources;
}

Result<std::vector<compiler::KernelSource>> sources_of(const std::vector<TuneProblem>& problems,
                                                       const compiler::Target& target) {
  std::vector<compiler::KernelSource> all;
  for (const TuneProblem& problem : problems) {
    MOEJIT_TRY_ASSIGN(const std::vector<compiler::KernelSource> sources,
                      sources_of(problem, target));
    all.insert(all.end(), sources.begin(), sources.end());
  }
  return all;
}

double estimated_us(const KernelPlan& kernel) {
  return estimated_us(
      kernel, compiler::Work{.min_bytes = kernel.min_bytes, .multiply_adds = kernel.multiply_adds});
}

double estimated_us(const KernelPlan& kernel, int64_t tokens) {
  return estimated_us(kernel, count_work(kernel, even_call(kernel.bounds, tokens)));
}

std::string share_text(double share) {
  const double percent = 100.0 * share;
  if (percent < 0.1) return "under 0.1 %";
  return percent < 9.95 ? fmt::format("{:.1f} %", percent) : fmt::format("{:.0f} %", percent);
}

void join_problems(std::vector<TuneProblem>& problems) {
  std::map<std::string, std::size_t> places;
  std::vector<TuneProblem> joined;
  std::map<std::size_t, double> step_us;  // by owner
  for (TuneProblem& problem : problems) {
    const auto [place, is_new] = places.emplace(problem.name, joined.size());
    if (is_new)
      joined.push_back(std::move(problem));
    else
      joined[place->second].step_us += problem.step_us;
  }
  double all = 0.0;
  for (const TuneProblem& problem : joined) {
    step_us[problem.owner] += problem.step_us;
    all += problem.step_us;
  }
  for (TuneProblem& problem : joined) problem.share = all == 0.0 ? 0.0 : problem.step_us / all;
  std::ranges::stable_sort(joined, [&](const TuneProblem& one, const TuneProblem& other) {
    const double a = step_us[one.owner], b = step_us[other.owner];
    if (a != b) return a > b;
    if (one.owner != other.owner) return one.owner < other.owner;
    return one.share > other.share;
  });
  problems = std::move(joined);
}

Result<std::vector<TuneProblem>> collect_problems(const TuneSubjects& subjects,
                                                  const compiler::Target& target,
                                                  const std::shared_ptr<OpenedLayer>& opened) {
  std::vector<TuneProblem> problems;
  std::size_t owner = 0;
  const auto add = [&](TuneProblem problem) {
    problem.owner = owner;
    problems.push_back(std::move(problem));
  };
  for (const TunedLayer& tuned : subjects.layers) {
    MOEJIT_TRY_ASSIGN(std::vector<TuneProblem> found, problems_of(tuned, target, opened));
    for (TuneProblem& problem : found) add(std::move(problem));
    ++owner;
  }
  for (const measure::GemmCase& gemm : subjects.gemms) {
    MOEJIT_TRY_ASSIGN(TuneProblem problem, problem_of(gemm, target, subjects.seed));
    add(std::move(problem));
    ++owner;
  }
  join_problems(problems);
  if (!subjects.verified.empty()) keep_verified(problems, subjects.verified);
  return problems;
}

Result<std::vector<std::string>> unmeasured_kernels(const TuneSubjects& subjects,
                                                    const compiler::Target& target) {
  std::vector<std::string> kernels;
  for (const TunedLayer& tuned : subjects.layers) {
    MOEJIT_TRY_ASSIGN(const auto found, unmeasured_kernels(tuned, target));
    kernels.insert(kernels.end(), found.begin(), found.end());
  }
  return kernels;
}

std::string unmeasured_text(const std::vector<std::string>& kernels) {
  return fmt::format("not measured, since no layer of one GPU has them: {}; the usual choices stay",
                     fmt::join(kernels, ", "));
}

}  // namespace moejit::tune
