// SPDX-License-Identifier: Apache-2.0
#include "cli/commands/run_group.h"

#include "cli/commands/run_report.h"
#include "cli/commands/tuning_records.h"
#include "cli/commands/tuning_use.h"
#include "cli/terminal/json_output.h"
#include "compiler/support/table.h"
#include "runtime/check/check_group.h"
#include "runtime/check/check_plan.h"
#include "runtime/trial/group_session.h"
#include "runtime/trial/layer_session.h"
#include "runtime/trial/open_engine.h"
#include "runtime/trial/open_target.h"
#include "runtime/trial/random_layer_inputs.h"
#include "runtime/trial/split_inputs.h"

#include <algorithm>
#include <fmt/core.h>
#include <nlohmann/json.hpp>
#include <utility>

namespace moejit::cli {
namespace {

using runtime::HostTensor;
using runtime::TensorMap;

using compiler::GroupPlan;
using compiler::Layer;
using compiler::Phase;
using compiler::TensorRole;

Result<void> check_options(const RunCommand& command, const Layer& layer) {
  const auto usage = [](std::string message, std::string hint) {
    return fail(Stage::kCommand, ErrorCode::kUsage, std::move(message), std::move(hint));
  };
  MOEJIT_TRY(check_ranks(command.ranks, layer, command.layer));
  const std::pair<bool, const char*> of_one_rank[] = {
      {!command.inputs.input_path.empty(), "--input"},
      {!command.inputs.checkpoint.shards.empty(), "--weights"},
      {!command.output.empty(), "--output"},
      {command.dump_intermediates, "--dump-intermediates"}};
  for (const auto& [is_given, option] : of_one_rank)
    if (is_given)
      return usage(fmt::format("{} is for one rank, and --ranks runs {}", option, command.ranks),
                   fmt::format("leave {} out: ranks get random tokens and weights", option));
  return {};
}

constexpr int64_t kTimeoutMs = 10000;

// What a run came to.
struct GroupReport {
  std::string target;
  std::vector<int64_t> tokens;  // of each rank
  trial::RandomRouting routing = trial::RandomRouting::kSkewed;
  std::vector<uint32_t> status;
  std::vector<check::TensorCheck>
      checks;  // of the ranks, and of the one rank with the CPU reference
  runtime::EngineCounters counters;
  std::optional<TuningUse> tuning;  // of each rank, if there were records
};

// Runs the layer on one rank with all tokens, whose results the ranks' are compared with, and
// compares each of its kernels with the CPU reference.
Result<TensorMap> run_one_rank(const Layer& layer, runtime::Device& device, runtime::Engine& engine,
                               const TensorMap& inputs, GroupReport& report) {
  MOEJIT_TRY_ASSIGN(const compiler::LayerPlan plan,
                    compiler::plan_layer(compiler::layer_of_one_rank(layer), device.target(),
                                         {.keep_intermediates = true}));
  MOEJIT_TRY_ASSIGN(const auto session, trial::LayerSession::create(plan, engine, device, inputs));
  std::vector<Phase> phases = {Phase::kWeights, Phase::kForward};
  MOEJIT_TRY(session->update_weights());
  MOEJIT_TRY(session->forward());
  if (has_backward(layer)) {
    MOEJIT_TRY(session->backward(compiler::GradientMode::kOverwrite));
    phases.push_back(Phase::kBackward);
  }
  TensorMap results;
  for (const compiler::TensorPlan& tensor : plan.tensors) {
    if (tensor.role == TensorRole::kInput || tensor.role == TensorRole::kWeight) continue;
    if (tensor.name == "status") continue;
    MOEJIT_TRY_ASSIGN(HostTensor host, session->read(tensor));
    results.emplace(tensor.name, std::move(host));
  }
  for (check::TensorCheck& check : check::check_plan(plan, phases, inputs, results)) {
    check.tensor += " of one rank";
    report.checks.push_back(std::move(check));
  }
  return results;
}

Result<std::vector<TensorMap>> run_ranks(const Layer& layer, trial::GroupDevices& devices,
                                         runtime::Engine& engine, const TensorMap& inputs,
                                         const TuningOptions& records, GroupReport& report,
                                         const Terminal& terminal) {
  const std::vector<TensorMap> of_ranks = trial::split_inputs(layer, inputs, report.tokens);
  MOEJIT_TRY_ASSIGN(const auto tuning, read_tuning_records(records, &devices.device(0)));
  MOEJIT_TRY_ASSIGN(
      const auto session,
      trial::GroupSession::create(layer, devices, engine, of_ranks, kTimeoutMs, tuning.get()));
  report.tuning = tuning_use(session->plan(0), tuning.get());
  tell_tuning(report.tuning, terminal);
  MOEJIT_TRY(session->update_weights());
  MOEJIT_TRY(session->forward());
  if (has_backward(layer)) MOEJIT_TRY(session->backward(compiler::GradientMode::kOverwrite));
  MOEJIT_TRY_ASSIGN(report.status, session->status());
  std::vector<TensorMap> results;
  for (int32_t rank = 0; rank < devices.ranks(); ++rank) {
    TensorMap& own = results.emplace_back();
    for (const compiler::TensorPlan& tensor : session->plan(rank).tensors)
      if (tensor.role == TensorRole::kOutput) {
        MOEJIT_TRY_ASSIGN(HostTensor host, session->read(rank, tensor.name));
        own.emplace(tensor.name, std::move(host));
      }
  }
  return results;
}

std::string text_of(const Layer& layer, const GroupReport& report, int32_t width) {
  std::string text =
      fmt::format("layer \"{}\" on {}, {} tokens each{}\n", layer.name, report.target,
                  report.tokens.front(), trial::routing_text(report.routing));
  if (!report.checks.empty()) {
    Table table({{"tensor"}, {"against the reference"}});
    for (const check::TensorCheck& check : report.checks) table.add({check.tensor, check.verdict});
    const auto passed = std::ranges::count_if(report.checks, &check::TensorCheck::has_passed);
    text += fmt::format("\n{}\ncheck {}: {} of {} tensors agree\n", table.text(width),
                        passed == std::ssize(report.checks) ? "passed" : "FAILED", passed,
                        report.checks.size());
  }
  return text + trial::counters_text(report.counters) + "\n";
}

std::string json_of(const Layer& layer, const GroupReport& report) {
  nlohmann::ordered_json json = {{"layer", layer.name},
                                 {"device", report.target},
                                 {"ranks", report.tokens.size()},
                                 {"tokens", report.tokens},
                                 {"routing", to_string(report.routing)},
                                 {"status", report.status},
                                 {"check", nullptr}};
  if (!report.checks.empty()) {
    nlohmann::ordered_json tensors = nlohmann::ordered_json::array();
    for (const check::TensorCheck& check : report.checks)
      tensors.push_back({{"tensor", check.tensor},
                         {"passed", check.has_passed},
                         {"verdict", check.verdict},
                         {"compared", check.compared},
                         {"differing", check.differing}});
    json["check"] = {
        {"passed", std::ranges::all_of(report.checks, &check::TensorCheck::has_passed)},
        {"tensors", tensors}};
  }
  add_tuning(json, report.tuning);
  json["compiled"] = report.counters.compiled;
  json["from_cache"] = report.counters.from_cache;
  return json_output(json);
}

Result<void> judge(const RunCommand& command, const GroupReport& report, Terminal& terminal) {
  for (std::size_t rank = 0; rank < report.status.size(); ++rank) {
    const uint32_t word = report.status[rank];
    if (word == 0) continue;
    const std::string silent = runtime::silent_ranks(word);
    const std::string text =
        fmt::format("rank {}: {}", rank,
                    silent.empty() ? status_text(word)
                                   : fmt::format("rank {} was not heard of in time", silent));
    if (command.is_strict || !silent.empty())
      return fail(Stage::kLaunch, ErrorCode::kDeviceStatus, text);
    terminal.warn(text);
  }
  for (const check::TensorCheck& check : report.checks)
    if (!check.has_passed)
      return fail(Stage::kLaunch, ErrorCode::kCheckFailed,
                  fmt::format("tensor \"{}\" differs from the reference: {}", check.tensor,
                              check.message.empty() ? check.verdict : check.message));
  return {};
}

}  // namespace

Result<void> check_ranks(int32_t ranks, const Layer& layer, const std::string& path) {
  const auto usage = [](std::string message, std::string hint) {
    return fail(Stage::kCommand, ErrorCode::kUsage, std::move(message), std::move(hint));
  };
  if (!compiler::is_of_group(layer))
    return usage(
        fmt::format("--ranks is {}, and {} describes a layer without expert_parallel", ranks, path),
        "leave --ranks out, or add \"expert_parallel\": {\"ranks\": R} to the description");
  if (ranks == layer.expert_parallel.ranks) return {};
  return usage(fmt::format("--ranks is {}, wanted the {} ranks of {}", ranks,
                           layer.expert_parallel.ranks, path),
               fmt::format("--ranks {}", layer.expert_parallel.ranks));
}

Result<void> run_group(const RunCommand& command, const Layer& described, Terminal& terminal) {
  MOEJIT_TRY(check_options(command, described));
  Layer layer = described;
  layer.passes = {compiler::Pass::kForward};
  if (command.pass == "backward") layer.passes.push_back(compiler::Pass::kBackward);
  MOEJIT_TRY_ASSIGN(const GroupPlan plan, compiler::plan_group_layer(layer, {}));
  MOEJIT_TRY_ASSIGN(const int64_t tokens, trial::random_token_count(layer, command.inputs.tokens));
  MOEJIT_TRY_ASSIGN(const auto devices,
                    trial::GroupDevices::open(command.target, command.ranks, plan.memory.bytes,
                                              command.inputs.seed));
  GroupReport report{
      .target = devices->description(),
      .tokens = std::vector<int64_t>(static_cast<std::size_t>(command.ranks), tokens),
      .routing = command.inputs.routing};
  terminal.note("target " + report.target);
  MOEJIT_TRY_ASSIGN(const auto engine, trial::open_engine(command.cache, terminal.warner()));
  const Layer one = compiler::layer_of_one_rank(layer);
  const int64_t all = tokens * command.ranks;
  TensorMap inputs = trial::random_tokens(one, all, command.inputs.seed, command.inputs.routing);
  inputs.merge(trial::random_weights_of(one, one.local_experts, command.inputs.seed));
  if (has_backward(layer)) inputs.merge(trial::random_gradient(one, all, command.inputs.seed));
  MOEJIT_TRY_ASSIGN(const std::vector<TensorMap> results,
                    run_ranks(layer, *devices, *engine, inputs, command.tuning, report, terminal));
  if (command.check) {
    const bool is_simulated = devices->device(0).target().kind == compiler::TargetKind::kSim;
    MOEJIT_TRY_ASSIGN(const trial::OpenedTarget target,
                      trial::open_target(is_simulated ? "sim" : "cuda", command.inputs.seed, ""));
    MOEJIT_TRY_ASSIGN(const TensorMap of_one,
                      run_one_rank(layer, *target.device, *engine, inputs, report));
    for (check::TensorCheck& check :
         check::check_group(layer, {.inputs = inputs, .results = of_one}, results, report.tokens))
      report.checks.push_back(std::move(check));
  }
  report.counters = engine->counters();
  terminal.print(command.is_json ? json_of(layer, report)
                                 : text_of(layer, report, terminal.width()));
  return judge(command, report, terminal);
}

}  // namespace moejit::cli
