// SPDX-License-Identifier: Apache-2.0
#include "cli/commands/bench_run.h"
#include "cli/commands/layer_file.h"
#include "cli/commands/run_group.h"
#include "cli/commands/run_report.h"
#include "cli/commands/tuning_records.h"
#include "cli/terminal/output.h"
#include "compiler/group_plan.h"
#include "compiler/support/table.h"
#include "compiler/work.h"
#include "runtime/trial/group_inputs.h"
#include "runtime/trial/group_times.h"
#include "runtime/trial/open_target.h"
#include "runtime/trial/random_layer_inputs.h"

#include <algorithm>
#include <fmt/core.h>
#include <nlohmann/json.hpp>

namespace moejit::cli {
namespace {

using runtime::HostTensor;
using runtime::TensorMap;

using compiler::KernelPlan;
using compiler::Layer;
using compiler::Plan;

// Gives each expert weights: copies of those that there are, in turn.
void repeat_experts(HostTensor& weights, const Layer& layer) {
  const std::size_t bytes = weights.bytes.size(),
                    count = static_cast<std::size_t>(weights.shape[0]);
  const std::size_t of_expert = bytes / count;
  weights.shape[0] = layer.local_experts;
  weights.bytes.resize(of_expert * static_cast<std::size_t>(layer.local_experts));
  for (std::size_t at = bytes; at < weights.bytes.size(); at += of_expert)
    std::copy_n(weights.bytes.begin() + static_cast<std::ptrdiff_t>(at - bytes), of_expert,
                weights.bytes.begin() + static_cast<std::ptrdiff_t>(at));
}

Result<void> check_options(const BenchCommand& command, const Layer& layer) {
  const auto usage = [](std::string message, std::string hint) {
    return fail(Stage::kCommand, ErrorCode::kUsage, std::move(message), std::move(hint));
  };
  MOEJIT_TRY(check_ranks(command.ranks, layer, command.layer));
  if (!command.report.empty())
    return usage("--report is for one rank", "leave --report out, or --ranks");
  if (command.target == "sim")
    return usage("--target is sim, and the simulator has no times to tell",
                 "moejit run --ranks, which checks what ranks compute");
  return check_bench_options(command);
}

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
  trial::RandomRouting routing = trial::RandomRouting::kSkewed;
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

std::string text_of(const Layer& layer, const GroupBench& bench, int32_t width) {
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
      fmt::format("layer \"{}\" on {}, {} tokens each{}\n{}\n{}\n", layer.name, bench.target,
                  bench.tokens, trial::routing_text(bench.routing),
                  bench.tuning ? tuning_text(*bench.tuning) + "\n" : "", table.text(width));
  text += fmt::format("forward {}", time_text(bench.forward_us));
  if (bench.backward_us > 0.0)
    text += fmt::format(", backward {}, step {}", time_text(bench.backward_us), time_text(step));
  text += fmt::format("; exchange {}, {:.0f} % of it, on ranks that wait least\n",
                      time_text(bench.exchange_us), 100.0 * bench.exchange_us / step);
  return text + trial::counters_text(bench.counters) + "\n";
}

std::string json_of(const Layer& layer, const GroupBench& bench) {
  nlohmann::ordered_json lines = nlohmann::ordered_json::array();
  for (const KernelLine& line : bench.lines)
    lines.push_back({{"operation", line.kernel->operation},
                     {"phase", line.kernel->phase},
                     {"slowest_us", line.slowest_us},
                     {"fastest_us", line.fastest_us},
                     {"wire_bytes", line.wire_bytes},
                     {"wire_floor_us",
                      static_cast<double>(line.wire_bytes) / compiler::kLinkBytesPerMicrosecond}});
  nlohmann::ordered_json json = {{"layer", layer.name},
                                 {"device", bench.target},
                                 {"ranks", layer.expert_parallel.ranks},
                                 {"tokens", bench.tokens},
                                 {"routing", to_string(bench.routing)},
                                 {"kernels", lines},
                                 {"forward_us", bench.forward_us},
                                 {"backward_us", bench.backward_us},
                                 {"exchange_us", bench.exchange_us}};
  add_tuning(json, bench.tuning);
  return json_output(json);
}

}  // namespace

Result<void> bench_group(const BenchCommand& command, const Layer& described, Terminal& terminal) {
  MOEJIT_TRY(check_options(command, described));
  Layer layer = described;
  choose_passes(layer, command.pass);
  MOEJIT_TRY_ASSIGN(const Plan plan, compiler::plan_layer(layer, {}));
  GroupBench bench{.routing = command.routing};
  MOEJIT_TRY_ASSIGN(bench.tokens,
                    trial::random_token_count(layer, command.tokens.value_or(layer.max_tokens)));
  MOEJIT_TRY_ASSIGN(const auto devices, trial::GroupDevices::open(
                                            command.target == "auto" ? "cuda" : command.target,
                                            command.ranks, plan.group->memory.bytes, command.seed));
  bench.target = devices->description();
  terminal.note("target " + bench.target);
  MOEJIT_TRY_ASSIGN(const auto engine, trial::open_engine(command.cache, terminal.warner()));
  const Layer one = compiler::layer_of_one_rank(layer);
  const int64_t all = bench.tokens * command.ranks;
  TensorMap inputs = trial::measuring_inputs(one, all, command.seed, command.routing);
  for (const char* const weights : {"w1", "w2"}) repeat_experts(inputs.at(weights), one);
  const std::vector<int64_t> tokens(static_cast<std::size_t>(command.ranks), bench.tokens);
  const std::vector<TensorMap> of_ranks = trial::split_inputs(layer, inputs, tokens);
  MOEJIT_TRY_ASSIGN(const auto tuning, read_tuning_records(command.tuning, &devices->device(0)));
  MOEJIT_TRY_ASSIGN(const auto plans, trial::plan_ranks(layer, devices->device(0).target(),
                                                        {.tuning = tuning.get()}));
  MOEJIT_TRY_ASSIGN(const auto session, trial::Trial::create(plans, *engine, *devices, of_ranks));
  bench.tuning = tuning_use(session->plan(0), tuning.get());
  tell_tuning(bench.tuning, terminal);
  MOEJIT_TRY(session->call("update_weights"));
  MOEJIT_TRY_ASSIGN(const trial::GroupTimes measured,
                    trial::measure_group(*session, *devices,
                                         {.is_training = command.pass == "training",
                                          .repeat = command.repeat,
                                          .hot_seconds = command.hot_seconds}));
  MOEJIT_TRY_ASSIGN(const std::vector<uint32_t> status, session->status());
  for (const uint32_t word : status)
    if (word != 0)
      return fail(Stage::kLaunch, ErrorCode::kDeviceStatus,
                  fmt::format("the group's status word is {}: the times mean nothing", word));
  evaluate(measured, plans.front(), bench);
  bench.counters = engine->counters();
  terminal.print(command.is_json ? json_of(layer, bench) : text_of(layer, bench, terminal.width()));
  return {};
}

}  // namespace moejit::cli
