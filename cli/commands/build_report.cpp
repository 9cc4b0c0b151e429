// SPDX-License-Identifier: Apache-2.0
#include "cli/commands/build_report.h"

#include "cli/terminal/output.h"
#include "compiler/support/table.h"
#include "runtime/trial/open_engine.h"

#include <algorithm>
#include <cmath>
#include <fmt/core.h>
#include <iterator>
#include <nlohmann/json.hpp>

namespace moejit::cli {
namespace {

using runtime::KernelOrigin;

nlohmann::ordered_json job_json(const BuildJob& job) {
  nlohmann::ordered_json json{{"layer", job.subjects.front().name},
                              {"layers", nlohmann::ordered_json::array()},
                              {"operation", job.operation},
                              {"entry", job.source.entry},
                              {"bytes", job.kernel.binary->bytes.size()},
                              {"from_cache", job.kernel.origin == KernelOrigin::kCache},
                              {"from_pack", job.kernel.origin == KernelOrigin::kPack}};
  for (const BuildSubject& subject : job.subjects) json["layers"].push_back(subject.name);
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
  return {{"file", job.subjects.front().file},  {"layer", job.subjects.front().name},
          {"operation", job.operation},         {"entry", job.source.entry},
          {"code", to_string(job.error->code)}, {"message", job.error->message}};
}

// Returns wall and CPU time, then front end, optimizer and assembler; "-" for unknown times. A
// kernel that was there has a cell that tells where.
std::vector<std::string> time_cells(const BuildJob& job) {
  if (!job.kernel.compile_time)
    return {job.kernel.origin == KernelOrigin::kPack ? "from pack" : "from cache", "", "", "", ""};
  const auto text = [](double seconds) { return fmt::format("{:.2f} s", seconds); };
  const compiler::CompileTime& time = *job.kernel.compile_time;
  std::vector<std::string> cells = {text(time.total), time.cpu ? text(*time.cpu) : "-"};
  for (double compiler::CompilePhases::*phase :
       {&compiler::CompilePhases::front_end, &compiler::CompilePhases::optimizer,
        &compiler::CompilePhases::assembler})
    cells.push_back(time.phases ? text((*time.phases).*phase) : "-");
  return cells;
}

// Returns the lines below a table: the folder, what was compiled and what was there, and the pack.
std::string totals_text(const BuildResult& result) {
  std::string text = fmt::format("cache: {}\n{}\n", result.engine.cache_description(),
                                 trial::counters_text(result.engine.counters()));
  if (result.pack)
    text += fmt::format("pack: {}, {} kernels, {}\n", result.pack->path, result.pack->kernels,
                        bytes_text(result.pack->bytes));
  return text;
}

// Returns the descriptions of all jobs, each once, in the order of the files that were given.
std::vector<BuildSubject> subjects_of(const std::vector<std::string>& files,
                                      const std::vector<BuildJob>& jobs) {
  std::vector<BuildSubject> subjects;
  for (const std::string& file : files)
    for (const BuildJob& job : jobs)
      for (const BuildSubject& subject : job.subjects)
        if (subject.file == file && std::ranges::count(subjects, subject) == 0)
          subjects.push_back(subject);
  return subjects;
}

}  // namespace

double compile_seconds(const BuildJob& job) {
  return job.kernel.compile_time ? job.kernel.compile_time->total : 0.0;
}

std::string build_json(const BuildCommand& command, const BuildResult& result) {
  const runtime::EngineCounters counters = result.engine.counters();
  nlohmann::ordered_json report;
  report["target"] = command.target;
  report["cache"] = result.engine.cache_description();
  report["kernels"] = nlohmann::ordered_json::array();
  for (const BuildJob& job : result.jobs)
    if (!job.error) report["kernels"].push_back(job_json(job));
  report["failed"] = nlohmann::ordered_json::array();
  for (const BuildJob& job : result.jobs)
    if (job.error) report["failed"].push_back(failure_json(job));
  report["corrupt"] = counters.corrupt;
  report["compiled"] = counters.compiled;
  report["unpublished"] = counters.unpublished;
  report["from_cache"] = counters.from_cache;
  report["from_packs"] = counters.from_packs;
  if (result.pack)
    report["pack"] = {{"path", result.pack->path},
                      {"kernels", result.pack->kernels},
                      {"bytes", result.pack->bytes},
                      {"digest", result.pack->digest.hex()}};
  return json_output(report);
}

std::string build_text(const BuildCommand& command, const BuildResult& result, int32_t width) {
  constexpr auto kRight = Table::Align::kRight;
  const bool has_layers = command.layers.size() > 1;
  std::vector<Table::Column> columns = {{"kernel"},
                                        {"compile time", kRight},
                                        {"CPU time", kRight},
                                        {"front end", kRight},
                                        {"optimizer", kRight},
                                        {"assembler", kRight},
                                        {"size", kRight},
                                        {"entry"}};
  if (has_layers) columns.insert(columns.begin(), {"layer"});
  Table table(columns);
  for (const BuildJob& job : result.jobs) {
    if (job.error) continue;
    std::vector<std::string> cells;
    if (has_layers) cells.push_back(job.subjects.front().name);
    cells.push_back(job.operation);
    std::ranges::move(time_cells(job), std::back_inserter(cells));
    cells.push_back(bytes_text(std::ssize(job.kernel.binary->bytes)));
    cells.push_back(job.source.entry);
    table.add(std::move(cells));
  }
  return table.text(width) + totals_text(result);
}

std::string build_summary(const BuildCommand& command, const BuildResult& result, int32_t width) {
  constexpr auto kRight = Table::Align::kRight;
  Table table({{"layer"},
               {"kernels", kRight},
               {"compiled", kRight},
               {"from cache", kRight},
               {"from packs", kRight},
               {"size", kRight}});
  for (const BuildSubject& subject : subjects_of(command.layers, result.jobs)) {
    int64_t kernels = 0;
    int64_t bytes = 0;
    std::array<int64_t, 3> counts{};  // in the order of the columns
    for (const BuildJob& job : result.jobs) {
      if (job.error || std::ranges::count(job.subjects, subject) == 0) continue;
      ++kernels;
      bytes += std::ssize(job.kernel.binary->bytes);
      const KernelOrigin origin = job.kernel.origin;
      ++counts.at(origin == KernelOrigin::kCompiler ? 0 : origin == KernelOrigin::kPack ? 2 : 1);
    }
    std::vector<std::string> cells = {subject.name, fmt::format("{}", kernels)};
    for (const int64_t count : counts) cells.push_back(fmt::format("{}", count));
    cells.push_back(bytes_text(bytes));
    table.add(std::move(cells));
  }
  return table.text(width) + totals_text(result);
}

}  // namespace moejit::cli
