// SPDX-License-Identifier: Apache-2.0
#include "cli/commands/run_group.h"

#include "cli/commands/layer_file.h"
#include "cli/commands/run_calls.h"
#include "cli/commands/run_report.h"
#include "cli/commands/tuning_records.h"
#include "cli/terminal/output.h"
#include "compiler/group_plan.h"
#include "compiler/support/table.h"
#include "runtime/check/check_group.h"
#include "runtime/check/check_plan.h"
#include "runtime/checkpoint/safetensors_file.h"
#include "runtime/trial/group_inputs.h"
#include "runtime/trial/open_target.h"
#include "runtime/trial/random_layer_inputs.h"
#include "runtime/trial/trial.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>
#include <utility>

namespace moejit::cli {
namespace {

using runtime::TensorMap;

using compiler::Layer;
using compiler::Plan;

// The results of a run.
struct GroupReport {
  std::string target;
  std::vector<int64_t> tokens;                  // of each rank
  std::optional<trial::RandomRouting> routing;  // of random data
  std::vector<std::string> calls;               // those made, if the user chose a call
  std::vector<uint32_t> status;
  std::vector<check::TensorCheck>
      checks;  // of the ranks, and of the one rank with the CPU reference
  runtime::EngineCounters counters;
  std::optional<TuningUse> tuning;  // of each rank, if there were records
  std::string output;               // file, may be empty
};

// Runs the layer on one rank with all tokens, and compares each of its kernels with the CPU
// reference. The ranks' results are compared with the results of this run.
Result<TensorMap> run_one_rank(const RunCommand& command, const Layer& layer,
                               runtime::Device& device, runtime::Engine& engine,
                               const TensorMap& inputs, GroupReport& report) {
  MOEJIT_TRY_ASSIGN(const compiler::Plan plan,
                    compiler::plan_layer(compiler::layer_of_one_rank(layer), device.target(),
                                         {.keep_intermediates = true}));
  MOEJIT_TRY_ASSIGN(const auto trial, trial::Trial::create(plan, engine, device, inputs));
  MOEJIT_TRY_ASSIGN(const RunCalls calls, choose_calls(plan, command, command.pass));
  MOEJIT_TRY(make_calls(*trial, calls.passes));
  MOEJIT_TRY_ASSIGN(TensorMap results, trial->results(0, true));
  std::vector<check::TensorCheck> checks =
      check::check_plan(plan, names_of(plan, calls.passes), inputs, results);
  if (calls.asked_for != nullptr && !calls.scales.empty()) {
    MOEJIT_TRY(make_calls(*trial, calls.scales));
    MOEJIT_TRY_ASSIGN(const TensorMap states, read_states(*trial, 0));
    for (check::TensorCheck& check :
         check::check_plan(plan, names_of(plan, calls.scales), results, states)) {
      check.tensor += kOfNextStep;
      checks.push_back(std::move(check));
    }
  }
  for (check::TensorCheck& check : checks) {
    check.tensor += " of one rank";
    report.checks.push_back(std::move(check));
  }
  return results;
}

// Makes the calls of a step on all ranks. Returns the results of each rank, on request with its
// intermediates. States are as the next step finds them.
Result<std::vector<TensorMap>> run_ranks(const RunCalls& calls, trial::Trial& trial,
                                         bool with_intermediates, GroupReport& report) {
  MOEJIT_TRY(make_calls(trial, calls.passes));
  MOEJIT_TRY_ASSIGN(report.status, trial.status());
  std::vector<TensorMap> results;
  for (int32_t rank = 0; rank < trial.ranks(); ++rank) {
    report.tokens.push_back(trial.tokens(rank));
    MOEJIT_TRY_ASSIGN(TensorMap own, read_results(trial, calls, rank, with_intermediates));
    results.push_back(std::move(own));
  }
  if (calls.scales.empty()) return results;
  MOEJIT_TRY(make_calls(trial, calls.scales));
  for (int32_t rank = 0; rank < trial.ranks(); ++rank) {
    MOEJIT_TRY_ASSIGN(TensorMap states, read_states(trial, rank));
    for (auto& [name, state] : states)
      results[static_cast<std::size_t>(rank)][name] = std::move(state);
  }
  return results;
}

// Writes the tensors of rank 1 as "rank1.y", ...
Result<void> write_results(const std::string& path, std::span<const Plan> plans,
                           const RunCalls& calls, std::vector<TensorMap> results,
                           bool with_intermediates) {
  TensorMap all;
  for (std::size_t rank = 0; rank < plans.size(); ++rank)
    for (auto& [name, tensor] :
         tensors_for_file(plans[rank], calls, std::move(results[rank]), with_intermediates))
      all.emplace(trial::rank_prefix(rank) + name, std::move(tensor));
  return checkpoint::write_safetensors(path, all);
}

// Returns "5 tokens each", or "5, 3 tokens" where ranks have different numbers.
std::string tokens_text(const std::vector<int64_t>& tokens) {
  const bool are_equal = std::ranges::count(tokens, tokens.front()) == std::ssize(tokens);
  return are_equal ? fmt::format("{} tokens each", tokens.front())
                   : fmt::format("{} tokens", fmt::join(tokens, ", "));
}

std::string text_of(const Layer& layer, const GroupReport& report, int32_t width) {
  std::string text = fmt::format("layer \"{}\" on {}, {}{}\n", layer.name, report.target,
                                 tokens_text(report.tokens), trial::routing_text(report.routing));
  text += calls_text(report.calls);
  if (!report.checks.empty()) {
    Table table({{"tensor"}, {"against the reference"}});
    for (const check::TensorCheck& check : report.checks) table.add({check.tensor, check.verdict});
    const auto passed = std::ranges::count_if(report.checks, &check::TensorCheck::has_passed);
    text += fmt::format("\n{}\ncheck {}: {} of {} tensors agree\n", table.text(width),
                        passed == std::ssize(report.checks) ? "passed" : "FAILED", passed,
                        report.checks.size());
  }
  if (!report.output.empty()) text += fmt::format("written to {}\n", report.output);
  return text + trial::counters_text(report.counters) + "\n";
}

std::string json_of(const Layer& layer, const GroupReport& report) {
  nlohmann::ordered_json json = {{"layer", layer.name},
                                 {"device", report.target},
                                 {"ranks", report.tokens.size()},
                                 {"tokens", report.tokens}};
  if (report.routing) json["routing"] = to_string(*report.routing);
  if (!report.calls.empty()) json["calls"] = report.calls;
  json["status"] = report.status;
  json["check"] = nullptr;
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
  if (!report.output.empty()) json["output"] = report.output;
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
  MOEJIT_TRY(check_ranks(command.ranks, described, command.layer));
  Layer layer = described;
  choose_passes(layer, passes_of(command));
  MOEJIT_TRY_ASSIGN(const Plan any, compiler::plan_layer(layer, {}));
  MOEJIT_TRY(choose_calls(any, command, command.pass));
  if (command.inputs.input_path.empty())
    MOEJIT_TRY(trial::random_token_count(layer, command.inputs.tokens));
  MOEJIT_TRY_ASSIGN(const auto devices,
                    trial::GroupDevices::open(command.target, command.ranks,
                                              any.group->memory.bytes, command.inputs.seed));
  GroupReport report{.target = devices->description(), .output = command.output};
  if (command.inputs.input_path.empty()) report.routing = command.inputs.routing;
  terminal.note("target " + report.target);
  const compiler::Target& target = devices->device(0).target();
  MOEJIT_TRY_ASSIGN(const auto engine, trial::open_engine(command.cache, terminal.warner()));
  MOEJIT_TRY_ASSIGN(const auto tuning, read_tuning_records(command.tuning, &devices->device(0)));
  MOEJIT_TRY_ASSIGN(const std::vector<Plan> plans,
                    trial::plan_ranks(layer, target,
                                      {.keep_intermediates = command.dump_intermediates,
                                       .tuning = tuning.get()}));
  MOEJIT_TRY_ASSIGN(const RunCalls calls, choose_calls(plans.front(), command, command.pass));
  tell_calls(plans.front(), calls, terminal);
  report.calls = calls.names(plans.front());
  trial::InputOptions input_options = command.inputs;
  input_options.calls = report.calls;
  MOEJIT_TRY_ASSIGN(const auto inputs, trial::load_group_inputs(plans, input_options));
  MOEJIT_TRY_ASSIGN(const auto trial, trial::Trial::create(plans, *engine, *devices, inputs));
  report.tuning = tuning_use(plans.front(), tuning.get());
  tell_tuning(report.tuning, terminal);
  MOEJIT_TRY_ASSIGN(std::vector<TensorMap> results,
                    run_ranks(calls, *trial, command.dump_intermediates, report));
  if (command.check) {
    const TensorMap whole = trial::join_inputs(inputs);
    const bool is_simulated = target.kind == compiler::TargetKind::kSim;
    MOEJIT_TRY_ASSIGN(const trial::OpenedTarget one,
                      trial::open_target(is_simulated ? "sim" : "cuda", command.inputs.seed, ""));
    MOEJIT_TRY_ASSIGN(const TensorMap of_one,
                      run_one_rank(command, layer, *one.device, *engine, whole, report));
    for (check::TensorCheck& check :
         check::check_group(layer, {.inputs = whole, .results = of_one}, results, report.tokens))
      report.checks.push_back(std::move(check));
  }
  if (!command.output.empty())
    MOEJIT_TRY(write_results(command.output, plans, calls, std::move(results),
                             command.dump_intermediates));
  report.counters = engine->counters();
  terminal.print(command.is_json ? json_of(layer, report)
                                 : text_of(layer, report, terminal.width()));
  return judge(command, report, terminal);
}

}  // namespace moejit::cli
