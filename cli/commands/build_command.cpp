// SPDX-License-Identifier: Apache-2.0
#include "cache/pack.h"
#include "cache/pack_writer.h"
#include "cli/commands/build_jobs.h"
#include "cli/commands/build_report.h"
#include "cli/commands/kernel_commands.h"
#include "cli/commands/tuning_records.h"
#include "cli/terminal/output.h"
#include "compiler/kernel_source.h"
#include "compiler/support/exhausted.h"
#include "runtime/kernel_pack.h"
#include "runtime/trial/open_engine.h"

#include <algorithm>
#include <atomic>
#include <fmt/core.h>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

namespace moejit::cli {
namespace {

// Runs threads that take jobs in turn until all are done or one fails for a reason that applies to
// others too.
class Builder {
 public:
  Builder(const BuildCommand& command, std::vector<BuildJob>& jobs, runtime::Engine& engine,
          const Terminal& terminal)
      : is_quiet_(command.is_quiet),
        names_layers_(command.layers.size() > 1),
        jobs_(jobs),
        engine_(engine),
        terminal_(terminal) {}

  Result<void> run(int32_t threads) {
    std::vector<std::jthread> workers;
    for (int32_t i = 1; i < threads; ++i) workers.emplace_back([this] { work(); });
    work();
    workers.clear();
    terminal_.clear_progress();
    if (error_) return tl::make_unexpected(std::move(*error_));
    return {};
  }

 private:
  void work() {
    for (size_t i = next_++; i < jobs_.size() && !has_failed_; i = next_++) {
      auto kernel = make(jobs_[i]);
      const std::lock_guard lock(mutex_);
      if (!kernel && is_of_one_kernel(kernel.error())) {
        jobs_[i].error = std::move(kernel).error();
        ++done_;
        continue;
      }
      if (!kernel) {
        has_failed_ = true;
        if (!error_) error_ = std::move(kernel).error();
        return;
      }
      jobs_[i].kernel = std::move(*kernel);
      ++done_;
      tell(jobs_[i]);
    }
  }

  // Tells that a job is done. A kernel that was there already has no line of its own in a log.
  void tell(const BuildJob& job) const {
    const auto total = static_cast<int64_t>(jobs_.size());
    const std::string what =
        names_layers_ ? job.subjects.front().name + " " + job.operation : job.operation;
    if (job.kernel.compile_time && !is_quiet_)
      terminal_.report_progress(what, done_, total);
    else
      terminal_.show_progress(what, done_, total);
  }

  // Makes one kernel. Catches exceptions, since none may leave a thread.
  Result<runtime::ObtainedKernel> make(const BuildJob& job) {
    try {
      return engine_.obtain(job.source);
    } catch (const std::exception& exception) {
      if (auto error = exhausted(Stage::kCompile, exception))
        return tl::make_unexpected(*std::move(error));
      return fail(Stage::kCompile, ErrorCode::kInternal,
                  fmt::format("compiling {}: {}", job.source.entry, exception.what()));
    }
  }

  const bool is_quiet_;
  const bool names_layers_;
  std::vector<BuildJob>& jobs_;
  runtime::Engine& engine_;
  const Terminal& terminal_;
  std::mutex mutex_;
  std::atomic<size_t> next_ = 0;
  std::atomic<bool> has_failed_ = false;
  int64_t done_ = 0;
  std::optional<Error> error_;
};

Result<BuiltPack> write_pack(const std::string& path, const std::vector<BuildJob>& jobs) {
  std::vector<cache::Entry> entries;
  for (const BuildJob& job : jobs) {
    MOEJIT_TRY_ASSIGN(const compiler::KernelKey key, compiler::kernel_key(job.source));
    entries.push_back(runtime::kernel_entry(*job.kernel.binary, key));
  }
  MOEJIT_TRY_ASSIGN(entries, cache::unique_entries(std::move(entries)));
  MOEJIT_TRY_ASSIGN(const std::vector<std::byte> bytes,
                    cache::encode_pack(entries, runtime::pack_manifest(entries)));
  MOEJIT_TRY(cache::write_pack_file(path, bytes));
  MOEJIT_TRY_ASSIGN(const auto pack, cache::Pack::open(path, {.is_inspection = true}));
  return BuiltPack{path, pack->size(), pack->file_bytes(), pack->digest()};
}

// Adds a hint for a machine without a compiler: it can still pack what others compiled.
Error with_pack_hint(const BuildCommand& command, Error error) {
  const bool lacks_compiler =
      error.code == ErrorCode::kCompilerMissing || error.code == ErrorCode::kCacheMiss;
  if (lacks_compiler && !command.pack.empty())
    error.hint += "; moejit pack merge FOLDER makes a pack of what a folder has, by any compiler";
  return error;
}

// Returns whether the build is for the cache folder: not if it makes a pack or wants no folder.
bool fills_folder(const BuildCommand& command) {
  return command.pack.empty() && !command.cache.is_disabled;
}

// Checks, before anything is compiled, that missing kernels can be written.
Result<void> check_writable(const BuildCommand& command, const trial::CacheOptions& cache,
                            const std::vector<BuildJob>& jobs, const runtime::Engine& engine) {
  MOEJIT_TRY(check_output(command.pack));
  const std::string problem = engine.write_problem();
  if (problem.empty() || !fills_folder(command)) return {};
  std::vector<compiler::KernelSource> sources;
  for (const BuildJob& job : jobs) sources.push_back(job.source);
  MOEJIT_TRY_ASSIGN(const int64_t missing, trial::count_missing_kernels(cache, sources));
  if (missing == 0) return {};
  return fail(Stage::kCache, ErrorCode::kFileWrite,
              fmt::format("{} of {} kernels are missing, and could not be written: {}", missing,
                          jobs.size(), problem),
              "nothing was compiled; name a folder that can be written to with --cache-dir, or a "
              "file with --pack");
}

// Checks that the folder got the kernels.
Result<void> check_written(const BuildCommand& command, size_t kernels,
                           const runtime::Engine& engine) {
  const int64_t unpublished = engine.counters().unpublished;
  if (unpublished == 0 || !fills_folder(command)) return {};
  return fail(Stage::kCache, ErrorCode::kFileWrite,
              fmt::format("{} of {} kernels were not written: {}", unpublished, kernels,
                          engine.write_problem()),
              "make room, or name a folder that can be written to with --cache-dir");
}

BuildVariants variants_of(const BuildCommand& command) {
  if (command.variants == "all" || (command.variants.empty() && !command.pack.empty()))
    return BuildVariants::kAll;
  return command.with_intermediates ? BuildVariants::kWithIntermediates : BuildVariants::kDescribed;
}

}  // namespace

Result<void> run_build(const BuildCommand& command, Terminal& terminal) {
  if (command.jobs < 0 || command.jobs > 1024)
    return fail(Stage::kCommand, ErrorCode::kUsage,
                fmt::format("--jobs is {}, wanted 0 to 1024", command.jobs));
  MOEJIT_TRY_ASSIGN(const auto tuning, read_tuning_records(command.tuning));
  MOEJIT_TRY_ASSIGN(
      std::vector<BuildJob> jobs,
      collect_build_jobs(command.layers, command.target, variants_of(command), tuning.get()));
  trial::CacheOptions cache = command.cache;
  for (const std::string& layer : command.layers)
    cache.build_arguments += (cache.build_arguments.empty() ? "" : " ") + shell_word(layer);
  if (variants_of(command) == BuildVariants::kAll) cache.build_arguments += " --variants all";
  if (variants_of(command) == BuildVariants::kWithIntermediates)
    cache.build_arguments += " --with-intermediates";
  // A pack gets only kernels of this machine's compiler, whatever other packs there are.
  cache.uses_packs = command.pack.empty();
  cache.own_compiler_only = !command.pack.empty();
  MOEJIT_TRY_ASSIGN(const std::unique_ptr<runtime::Engine> engine,
                    trial::open_engine(cache, terminal.warner(), command.jobs));
  MOEJIT_TRY(check_writable(command, cache, jobs, *engine));
  auto built =
      Builder(command, jobs, *engine, terminal)
          .run(std::min<int32_t>(engine->compile_jobs(), static_cast<int32_t>(jobs.size())));
  if (!built) return tl::make_unexpected(with_pack_hint(command, std::move(built).error()));
  const auto failed = report_failures(jobs, terminal);
  std::optional<BuiltPack> pack;
  if (!command.pack.empty() && failed) {
    MOEJIT_TRY_ASSIGN(pack, write_pack(command.pack, jobs));
  }
  std::ranges::stable_sort(jobs, std::ranges::greater(), compile_seconds);
  const BuildResult result{jobs, pack, *engine};
  terminal.print(command.is_json    ? build_json(command, result)
                 : command.is_quiet ? build_summary(command, result, terminal.width())
                                    : build_text(command, result, terminal.width()));
  return failed ? check_written(command, jobs.size(), *engine) : failed;
}

}  // namespace moejit::cli
