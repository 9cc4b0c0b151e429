// SPDX-License-Identifier: Apache-2.0
#include "cli/commands/build_jobs.h"

#include "cli/commands/layer_file.h"
#include "compiler/compiler.h"

#include <algorithm>
#include <fmt/core.h>
#include <map>
#include <string_view>
#include <tuple>

namespace moejit::cli {
namespace {

using compiler::Layer;
using compiler::Pass;
using JobsByText = std::map<std::string, BuildJob>;

Result<void> add_jobs(const BuildSubject& subject, const compiler::Plan& plan, JobsByText& jobs) {
  for (const compiler::KernelPlan& kernel : plan.kernels) {
    MOEJIT_TRY_ASSIGN(compiler::KernelSource source, compiler::emit_kernel(kernel, plan.target));
    const std::string text = source.text;
    BuildJob& job =
        jobs.emplace(text, BuildJob{{}, kernel.operation, std::move(source)}).first->second;
    if (std::ranges::count(job.subjects, subject) == 0) job.subjects.push_back(subject);
  }
  return {};
}

// Returns a layer with other passes: as it is, and as a description without splits_alignment gives
// it.
std::vector<Layer> with_passes(const Layer& layer, const std::vector<Pass>& passes) {
  Layer given = layer;
  given.passes = passes;
  Layer without = layer;
  set_passes(without, passes);
  return given == without ? std::vector{given} : std::vector{given, without};
}

// Returns the variants that `run` and hosts may make of a description by choosing passes and
// fusions.
std::vector<Layer> variants_of(const Layer& layer) {
  std::vector<Layer> variants;
  for (const bool fuses_activation : {true, false}) {
    for (Layer& forward : with_passes(layer, {Pass::kForward})) {
      forward.fuse_activation = fuses_activation;
      forward.recompute = compiler::Recompute::kNone;
      variants.push_back(forward);
    }
    for (unsigned choices = 0; choices < 8; ++choices) {
      const auto is_chosen = [&](unsigned bit) { return ((choices >> bit) & 1U) != 0; };
      for (Layer& training : with_passes(layer, {Pass::kForward, Pass::kBackward})) {
        training.fuse_activation = fuses_activation;
        training.fuse_transpose = is_chosen(0);
        training.fuse_activation_transpose = is_chosen(1);
        training.recompute =
            is_chosen(2) ? compiler::Recompute::kMoeExpert : compiler::Recompute::kNone;
        variants.push_back(training);
      }
    }
  }
  return variants;
}

Result<void> add_variants(const BuildSubject& subject, const Layer& layer,
                          const compiler::Target& target, const compiler::Tuning* tuning,
                          JobsByText& jobs) {
  for (const Layer& variant : variants_of(layer))
    for (const bool keeps : {false, true}) {
      const auto plan =
          compiler::plan_layer(variant, target, {.keep_intermediates = keeps, .tuning = tuning});
      if (plan) MOEJIT_TRY(add_jobs(subject, *plan, jobs));
      if (!plan && plan.error().code != ErrorCode::kUnsupported)
        return tl::make_unexpected(plan.error());
    }
  return {};
}

Result<void> add_plan(const std::string& path, const compiler::Plan& plan, BuildVariants variants,
                      const compiler::Tuning* tuning, JobsByText& by_text) {
  const BuildSubject subject{path, name_of(plan)};
  MOEJIT_TRY(add_jobs(subject, plan, by_text));
  if (!plan.layer) return {};  // an operation has no variants
  if (variants == BuildVariants::kWithIntermediates) {
    MOEJIT_TRY_ASSIGN(const compiler::Plan kept,
                      compiler::plan_layer(*plan.layer, plan.target,
                                           {.keep_intermediates = true, .tuning = tuning}));
    MOEJIT_TRY(add_jobs(subject, kept, by_text));
  }
  if (variants == BuildVariants::kAll)
    MOEJIT_TRY(add_variants(subject, *plan.layer, plan.target, tuning, by_text));
  return {};
}

// Returns the job's error, worded for the author of the layer.
Error told(const BuildJob& job) {
  Error error = *job.error;
  const BuildSubject& of = job.subjects.front();
  error.message =
      fmt::format("{}: layer \"{}\": {}: {}", of.file, of.name, job.operation, job.error->message);
  if (const std::string_view field = compiler::field_that_fuses(job.source.entry); !field.empty())
    error.hint = fmt::format("set \"{}\": false in {}: other kernels do the same then{}{}", field,
                             of.file, error.hint.empty() ? "" : "; ", error.hint);
  error.detail.clear();
  return error;
}

}  // namespace

Result<std::vector<BuildJob>> collect_build_jobs(const std::vector<std::string>& layers,
                                                 const std::string& target, BuildVariants variants,
                                                 const compiler::Tuning* tuning) {
  JobsByText by_text;
  for (const std::string& path : layers) {
    MOEJIT_TRY_ASSIGN(const std::vector<compiler::Plan> plans,
                      read_plans(path, target, {.tuning = tuning}));
    for (const compiler::Plan& plan : plans)
      MOEJIT_TRY(add_plan(path, plan, variants, tuning, by_text));
  }
  std::vector<BuildJob> jobs;
  for (auto& [text, job] : by_text) jobs.push_back(std::move(job));
  std::ranges::sort(jobs, {}, [](const BuildJob& job) {
    return std::tie(job.subjects.front().name, job.operation, job.source.entry);
  });
  return jobs;
}

bool is_of_one_kernel(const Error& error) {
  return error.code == ErrorCode::kCompileFailed || error.code == ErrorCode::kCompilerFault;
}

Result<void> report_failures(const std::vector<BuildJob>& jobs, const Terminal& terminal) {
  const BuildJob* first = nullptr;
  int64_t failures = 0;
  std::string logs;
  for (const BuildJob& job : jobs) {
    if (!job.error) continue;
    if (first == nullptr) first = &job;
    ++failures;
    terminal.report(told(job), false);
    if (!job.error->detail.empty())
      logs += fmt::format("{} of {}:\n{}\n", job.operation, job.subjects.front().file,
                          job.error->detail);
  }
  if (failures == 0) return {};
  return fail(
      Stage::kCompile, first->error->code,
      fmt::format("{} of {} kernels do not compile; the others were made", failures, jobs.size()),
      "moejit --verbose build shows what the compiler said; report it", std::move(logs));
}

}  // namespace moejit::cli
