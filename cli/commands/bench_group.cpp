// SPDX-License-Identifier: Apache-2.0
#include "cli/commands/bench_run.h"
#include "cli/report/random_text.h"
#include "cli/terminal/output.h"
#include "compiler/support/table.h"
#include "compiler/work.h"
#include "runtime/trial/group_times.h"
#include "runtime/trial/open_engine.h"

#include <algorithm>
#include <fmt/core.h>
#include <nlohmann/json.hpp>

namespace moejit::cli {
namespace {

using compiler::KernelPlan;
using compiler::Plan;

// A kernel of a call, by the medians of the slowest and of the fastest rank.
struct KernelLine {
  const KernelPlan* kernel = nullptr;
  double slowest_us = 0.0, fastest_us = 0.0;
  int64_t wire_bytes = 0;  // that a rank sends, in the mean
};

// What a bench of a group tells.
struct GroupBench {
  std::string target;
  int64_t tokens = 0;  // of each rank
  trial::RandomInputs random;
  std::vector<KernelLine> lines;
  double forward_us = 0.0, backward_us = 0.0;
  double exchange_us = 0.0;  // of the kernels that exchange, each on the rank that waits least
  runtime::EngineCounters counters;
  std::optional<TuningUse> tuning;  // of each rank, if there were records
};

bool exchanges(const KernelPlan& kernel) { return touches(kernel, "epoch"); }

void evaluate(const trial::GroupTimes& measured, const Plan& plan, GroupBench& bench) {
  std::size_t of_forward = 0;
  for (std::size_t i = 0; i < measured.kernels.size(); ++i) {
    const KernelPlan& kernel = plan.kernels[measured.kernels[i]];
    if (plan.calls[call_of_kernel(plan, measured.kernels[i])].name == "forward") of_forward = i + 1;
    bench.lines.push_back({.kernel = &kernel,
                           .slowest_us = measured.slowest(i, i + 1),
                           .fastest_us = measured.fastest(i, i + 1),
                           .wire_bytes = count_work(kernel, {.tokens = bench.tokens}).sent_bytes});
    if (exchanges(kernel)) bench.exchange_us += bench.lines.back().fastest_us;
  }
  bench.forward_us = measured.slowest(0, of_forward);
  bench.backward_us = measured.slowest(of_forward, measured.kernels.size());
}

std::string text_of(const Plan& plan, const GroupBench& bench, int32_t width) {
  constexpr auto kRight = Table::Align::kRight;
  Table table({{"kernel"},
               {"slowest rank", kRight},
               {"fastest", kRight},
               {"on the wire", kRight},
               {"no less than", kRight},
               {"GB/s", kRight}});
  for (const KernelLine& line : bench.lines) {
    const bool sends = line.wire_bytes > 0;
    const auto bytes = static_cast<double>(line.wire_bytes);
    table.add({line.kernel->operation, time_text(line.slowest_us), time_text(line.fastest_us),
               sends ? bytes_text(line.wire_bytes) : "",
               sends ? fmt::format("{:.1f} us", bytes / compiler::kLinkBytesPerMicrosecond) : "",
               sends ? fmt::format("{:.0f}", bytes / line.fastest_us * 1e-3) : ""});
  }
  const double step = bench.forward_us + bench.backward_us;
  std::string text =
      fmt::format("layer \"{}\" on {}, {} tokens each{}\n{}\n{}\n", name_of(plan), bench.target,
                  bench.tokens, random_text(bench.random),
                  bench.tuning ? tuning_text(*bench.tuning) + "\n" : "", table.text(width));
  text += fmt::format("forward {}", time_text(bench.forward_us));
  if (bench.backward_us > 0.0)
    text += fmt::format(", backward {}, step {}", time_text(bench.backward_us), time_text(step));
  text += fmt::format("; exchange {}, {:.0f} % of it, on ranks that wait least\n",
                      time_text(bench.exchange_us), 100.0 * bench.exchange_us / step);
  return text + trial::counters_text(bench.counters) + "\n";
}

std::string json_of(const Plan& plan, const GroupBench& bench) {
  nlohmann::ordered_json lines = nlohmann::ordered_json::array();
  for (const KernelLine& line : bench.lines)
    lines.push_back({{"operation", line.kernel->operation},
                     {"phase", line.kernel->phase},
                     {"slowest_us", line.slowest_us},
                     {"fastest_us", line.fastest_us},
                     {"wire_bytes", line.wire_bytes},
                     {"wire_floor_us",
                      static_cast<double>(line.wire_bytes) / compiler::kLinkBytesPerMicrosecond}});
  nlohmann::ordered_json json = {{"layer", name_of(plan)},
                                 {"device", bench.target},
                                 {"ranks", plan.layer->expert_parallel.ranks},
                                 {"tokens", bench.tokens}};
  add_random(json, bench.random);
  json["kernels"] = lines;
  json["forward_us"] = bench.forward_us;
  json["backward_us"] = bench.backward_us;
  json["exchange_us"] = bench.exchange_us;
  add_tuning(json, bench.tuning);
  return json_output(json);
}

}  // namespace

Result<void> bench_group(const BenchCommand& command, const OpenedPlans& opened,
                         trial::Trial& trial, runtime::Engine& engine, Terminal& terminal) {
  MOEJIT_TRY(trial.call("update_weights"));
  MOEJIT_TRY_ASSIGN(const trial::GroupTimes measured,
                    trial::measure_group(trial, *opened.devices,
                                         {.is_training = command.pass == "training",
                                          .repeat = command.repeat,
                                          .hot_seconds = command.hot_seconds}));
  MOEJIT_TRY_ASSIGN(const std::vector<uint32_t> status, trial.status());
  for (const uint32_t word : status)
    if (word != 0)
      return fail(Stage::kLaunch, ErrorCode::kDeviceStatus,
                  fmt::format("the group's status word is {}: the times mean nothing", word));
  const Plan& plan = opened.plans.front();
  GroupBench bench{.target = opened.devices->description(),
                   .tokens = trial.tokens(),
                   .random = command.inputs.random,
                   .tuning = opened.tuning};
  evaluate(measured, plan, bench);
  bench.counters = engine.counters();
  terminal.print(command.is_json ? json_of(plan, bench) : text_of(plan, bench, terminal.width()));
  return {};
}

}  // namespace moejit::cli
