// SPDX-License-Identifier: Apache-2.0
#include "cache/pack.h"
#include "cache/pack_writer.h"
#include "cli/commands/build_failures.h"
#include "cli/commands/build_jobs.h"
#include "cli/commands/commands.h"
#include "cli/commands/tuning_records.h"
#include "cli/execution/open_engine.h"
#include "cli/terminal/json_output.h"
#include "cli/terminal/shell_word.h"
#include "compiler/kernel_key.h"
#include "compiler/support/exhausted.h"
#include "compiler/support/table.h"
#include "runtime/kernel_pack.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <fmt/core.h>
#include <functional>
#include <iterator>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

namespace moejit::cli {
namespace {

// Runs threads that take jobs in turn until all are done or one fails for a reason that applies to
// others too.
class Builder {
 public:
  Builder(std::vector<BuildJob>& jobs, runtime::Engine& engine, const Terminal& terminal)
      : jobs_(jobs), engine_(engine), terminal_(terminal) {}

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
      const auto total = static_cast<int64_t>(jobs_.size());
      ++done_;
      if (jobs_[i].kernel.compile_time)
        terminal_.report_progress(jobs_[i].operation, done_, total);
      else
        terminal_.show_progress(jobs_[i].operation, done_, total);
    }
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

  std::vector<BuildJob>& jobs_;
  runtime::Engine& engine_;
  const Terminal& terminal_;
  std::mutex mutex_;
  std::atomic<size_t> next_ = 0;
  std::atomic<bool> has_failed_ = false;
  int64_t done_ = 0;
  std::optional<Error> error_;
};

double compile_seconds(const BuildJob& job) {
  return job.kernel.compile_time ? job.kernel.compile_time->total : 0.0;
}

nlohmann::ordered_json job_json(const BuildJob& job) {
  nlohmann::ordered_json json{{"layer", job.layer},
                              {"operation", job.operation},
                              {"entry", job.source.entry},
                              {"bytes", job.kernel.binary->bytes.size()},
                              {"from_cache", !job.kernel.compile_time.has_value()}};
  if (!job.kernel.compile_time) return json;
  const compiler::CompileTime& time = *job.kernel.compile_time;
  const auto rounded = [](double seconds) { return std::round(seconds * 1e3) * 1e-3; };
  json["compile_seconds"] = rounded(time.total);
  if (time.cpu) json["cpu_seconds"] = rounded(*time.cpu);
  if (time.phases) {
    json["front_end_seconds"] = time.phases->front_end;
    json["optimizer_seconds"] = time.phases->optimizer;
    json["assembler_seconds"] = time.phases->assembler;
  }
  return json;
}

nlohmann::ordered_json failure_json(const BuildJob& job) {
  return {{"file", job.file},
          {"layer", job.layer},
          {"operation", job.operation},
          {"entry", job.source.entry},
          {"code", to_string(job.error->code)},
          {"message", job.error->message}};
}

// Returns wall and CPU time, then front end, optimizer and assembler; "-" for unknown times.
std::vector<std::string> time_cells(const BuildJob& job) {
  if (!job.kernel.compile_time) return {"from cache", "", "", "", ""};
  const auto text = [](double seconds) { return fmt::format("{:.2f} s", seconds); };
  const compiler::CompileTime& time = *job.kernel.compile_time;
  std::vector<std::string> cells = {text(time.total), time.cpu ? text(*time.cpu) : "-"};
  for (double compiler::CompilePhases::*phase :
       {&compiler::CompilePhases::front_end, &compiler::CompilePhases::optimizer,
        &compiler::CompilePhases::assembler})
    cells.push_back(time.phases ? text((*time.phases).*phase) : "-");
  return cells;
}

// Facts about the written pack, read from its file.
struct BuiltPack {
  std::string path;
  int64_t kernels = 0;
  int64_t bytes = 0;
  Digest digest;
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

std::string json_report(const BuildCommand& command, const std::vector<BuildJob>& jobs,
                        const std::optional<BuiltPack>& pack, const runtime::Engine& engine) {
  const runtime::EngineCounters counters = engine.counters();
  nlohmann::ordered_json report;
  report["target"] = command.target;
  report["cache"] = engine.cache_description();
  report["kernels"] = nlohmann::ordered_json::array();
  for (const BuildJob& job : jobs)
    if (!job.error) report["kernels"].push_back(job_json(job));
  report["failed"] = nlohmann::ordered_json::array();
  for (const BuildJob& job : jobs)
    if (job.error) report["failed"].push_back(failure_json(job));
  report["corrupt"] = counters.corrupt;
  report["compiled"] = counters.compiled;
  report["unpublished"] = counters.unpublished;
  report["from_cache"] = counters.from_cache;
  report["from_packs"] = counters.from_packs;
  if (pack)
    report["pack"] = {{"path", pack->path},
                      {"kernels", pack->kernels},
                      {"bytes", pack->bytes},
                      {"digest", pack->digest.hex()}};
  return json_output(report);
}

std::string text_report(const std::vector<BuildJob>& jobs, const std::optional<BuiltPack>& pack,
                        const runtime::Engine& engine, int32_t width) {
  constexpr auto kRight = Table::Align::kRight;
  Table table({{"kernel"},
               {"compile time", kRight},
               {"CPU time", kRight},
               {"front end", kRight},
               {"optimizer", kRight},
               {"assembler", kRight},
               {"size", kRight},
               {"entry"}});
  for (const BuildJob& job : jobs) {
    if (job.error) continue;
    std::vector<std::string> cells = {job.operation};
    std::ranges::move(time_cells(job), std::back_inserter(cells));
    cells.push_back(bytes_text(std::ssize(job.kernel.binary->bytes)));
    cells.push_back(job.source.entry);
    table.add(std::move(cells));
  }
  std::string text = table.text(width) + fmt::format("cache: {}\n{}", engine.cache_description(),
                                                     counters_text(engine.counters()));
  if (pack)
    text += fmt::format("\npack: {}, {} kernels, {}", pack->path, pack->kernels,
                        bytes_text(pack->bytes));
  return text + "\n";
}

// Adds a hint for a machine without a compiler: it can still pack what others compiled.
Error with_pack_hint(const BuildCommand& command, Error error) {
  const bool lacks_compiler =
      error.code == ErrorCode::kCompilerMissing || error.code == ErrorCode::kCacheMiss;
  if (lacks_compiler && !command.pack.empty())
    error.hint += "; moejit pack merge FOLDER makes a pack of what a folder has, by any compiler";
  return error;
}

// Checks that the folder got the kernels, unless the build makes a pack or wants no folder.
Result<void> check_written(const BuildCommand& command, size_t kernels,
                           const runtime::Engine& engine) {
  const int64_t unpublished = engine.counters().unpublished;
  if (unpublished == 0 || !command.pack.empty() || command.cache.is_disabled) return {};
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
  CacheOptions cache = command.cache;
  for (const std::string& layer : command.layers)
    cache.build_arguments += (cache.build_arguments.empty() ? "" : " ") + shell_word(layer);
  if (variants_of(command) == BuildVariants::kAll) cache.build_arguments += " --variants all";
  if (variants_of(command) == BuildVariants::kWithIntermediates)
    cache.build_arguments += " --with-intermediates";
  // A pack gets only kernels of this machine's compiler, whatever other packs there are.
  cache.uses_packs = command.pack.empty();
  cache.own_compiler_only = !command.pack.empty();
  MOEJIT_TRY_ASSIGN(const std::unique_ptr<runtime::Engine> engine,
                    open_engine(cache, terminal, command.jobs));
  auto built =
      Builder(jobs, *engine, terminal)
          .run(std::min<int32_t>(engine->compile_jobs(), static_cast<int32_t>(jobs.size())));
  if (!built) return tl::make_unexpected(with_pack_hint(command, std::move(built).error()));
  const auto failed = report_failures(jobs, terminal);
  std::optional<BuiltPack> pack;
  if (!command.pack.empty() && failed) {
    MOEJIT_TRY_ASSIGN(pack, write_pack(command.pack, jobs));
  }
  std::ranges::stable_sort(jobs, std::ranges::greater(), compile_seconds);
  terminal.print(command.is_json ? json_report(command, jobs, pack, *engine)
                                 : text_report(jobs, pack, *engine, terminal.width()));
  return failed ? check_written(command, jobs.size(), *engine) : failed;
}

}  // namespace moejit::cli
