// SPDX-License-Identifier: Apache-2.0
#include "cli/commands/commands.h"
#include "cli/commands/layer_file.h"
#include "cli/execution/open_engine.h"
#include "cli/terminal/table.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <fmt/core.h>
#include <functional>
#include <iterator>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>

namespace moejit::cli {
namespace {

// One kernel to have in the cache; several layers may need the same.
struct Job {
  std::string layer;
  std::string operation;
  compiler::KernelSource source;
  runtime::ObtainedKernel kernel;
};

Result<void> add_jobs(const compiler::Plan& plan, std::map<std::string, Job>& jobs) {
  for (const compiler::KernelPlan& kernel : plan.kernels) {
    MOEJIT_TRY_ASSIGN(compiler::KernelSource source, compiler::emit_kernel(kernel, plan.target));
    const std::string text = source.text;
    jobs.emplace(text, Job{plan.layer.name, kernel.operation, std::move(source), {}});
  }
  return {};
}

Result<std::vector<Job>> collect_jobs(const BuildCommand& command) {
  std::map<std::string, Job> by_text;
  for (const std::string& path : command.layers) {
    MOEJIT_TRY_ASSIGN(const compiler::Plan plan, read_plan(path, command.target));
    MOEJIT_TRY(add_jobs(plan, by_text));
    if (!command.with_intermediates) continue;
    MOEJIT_TRY_ASSIGN(const compiler::Plan kept,
                      read_plan(path, command.target, {.keep_intermediates = true}));
    MOEJIT_TRY(add_jobs(kept, by_text));
  }
  std::vector<Job> jobs;
  for (auto& [text, job] : by_text) jobs.push_back(std::move(job));
  std::ranges::sort(jobs, {}, [](const Job& job) { return std::tie(job.layer, job.operation); });
  return jobs;
}

// Threads that take jobs in turn until all are done or one has failed.
class Builder {
 public:
  Builder(std::vector<Job>& jobs, runtime::Engine& engine, const Terminal& terminal)
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
      if (!kernel) {
        has_failed_ = true;
        if (!error_) error_ = std::move(kernel).error();
        return;
      }
      jobs_[i].kernel = std::move(*kernel);
      terminal_.show_progress(jobs_[i].operation, ++done_, static_cast<int64_t>(jobs_.size()));
    }
  }

  // An exception may not leave a thread.
  Result<runtime::ObtainedKernel> make(const Job& job) {
    try {
      return engine_.obtain(job.source);
    } catch (const std::exception& exception) {
      return fail(Stage::kCompile, ErrorCode::kInternal,
                  fmt::format("compiling {}: {}", job.source.entry, exception.what()));
    }
  }

  std::vector<Job>& jobs_;
  runtime::Engine& engine_;
  const Terminal& terminal_;
  std::mutex mutex_;
  std::atomic<size_t> next_ = 0;
  std::atomic<bool> has_failed_ = false;
  int64_t done_ = 0;
  std::optional<Error> error_;
};

double compile_seconds(const Job& job) {
  return job.kernel.compile_time ? job.kernel.compile_time->total : 0.0;
}

nlohmann::ordered_json job_json(const Job& job) {
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

// Wall and CPU time, then front end, optimizer and assembler; "-" for what nobody tells.
std::vector<std::string> time_cells(const Job& job) {
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

std::string json_report(const BuildCommand& command, const std::vector<Job>& jobs,
                        const runtime::Engine& engine) {
  const runtime::EngineCounters counters = engine.counters();
  nlohmann::ordered_json report;
  report["target"] = command.target;
  report["cache"] = engine.cache_description();
  report["kernels"] = nlohmann::ordered_json::array();
  for (const Job& job : jobs) report["kernels"].push_back(job_json(job));
  report["corrupt"] = counters.corrupt;
  report["compiled"] = counters.compiled;
  report["from_cache"] = counters.from_cache;
  return report.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

std::string text_report(const std::vector<Job>& jobs, const runtime::Engine& engine) {
  constexpr auto kRight = Table::Align::kRight;
  Table table({{"kernel"},
               {"compile time", kRight},
               {"CPU time", kRight},
               {"front end", kRight},
               {"optimizer", kRight},
               {"assembler", kRight},
               {"size", kRight},
               {"entry"}});
  for (const Job& job : jobs) {
    std::vector<std::string> cells = {job.operation};
    std::ranges::move(time_cells(job), std::back_inserter(cells));
    cells.push_back(bytes_text(std::ssize(job.kernel.binary->bytes)));
    cells.push_back(job.source.entry);
    table.add(std::move(cells));
  }
  const runtime::EngineCounters counters = engine.counters();
  return table.text() + fmt::format("cache: {}\ncompiled: {}, from cache: {}\n",
                                    engine.cache_description(), counters.compiled,
                                    counters.from_cache);
}

}  // namespace

Result<void> run_build(const BuildCommand& command, Terminal& terminal) {
  if (command.jobs < 0 || command.jobs > 1024)
    return fail(Stage::kCommand, ErrorCode::kUsage,
                fmt::format("--jobs is {}, wanted 0 to 1024", command.jobs));
  MOEJIT_TRY_ASSIGN(std::vector<Job> jobs, collect_jobs(command));
  MOEJIT_TRY_ASSIGN(const std::unique_ptr<runtime::Engine> engine,
                    open_engine(command.cache, terminal));
  const int32_t cores = static_cast<int32_t>(std::max(1U, std::thread::hardware_concurrency()));
  const int32_t wanted = command.jobs == 0 ? cores : command.jobs;
  MOEJIT_TRY(Builder(jobs, *engine, terminal)
                 .run(std::min<int32_t>(wanted, static_cast<int32_t>(jobs.size()))));
  std::ranges::stable_sort(jobs, std::ranges::greater(), compile_seconds);
  terminal.print(command.is_json ? json_report(command, jobs, *engine)
                                 : text_report(jobs, *engine));
  return {};
}

}  // namespace moejit::cli
