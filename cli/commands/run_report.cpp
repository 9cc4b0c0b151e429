// SPDX-License-Identifier: Apache-2.0
#include "cli/commands/run_report.h"

#include "cli/commands/run_checks.h"
#include "cli/report/random_text.h"
#include "cli/terminal/output.h"
#include "compiler/support/table.h"
#include "runtime/group.h"
#include "runtime/trial/file_tensors.h"
#include "runtime/trial/open_engine.h"
#include "runtime/trial/trial.h"
#include "templates/moejit_device/params/router_params.h"
#include "templates/moejit_device/params/status_bits.h"

#include <algorithm>
#include <fmt/core.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

namespace moejit::cli {
namespace {

using compiler::KernelPlan;

struct StatusBit {
  uint32_t bit;
  const char* name;  // in JSON
  const char* meaning;
  const char* hint;
};
constexpr StatusBit kStatusBits[] = {
    {device::kStatusBadExpertId, "bad_expert_id",
     "tensor \"topk_ids\", or \"tokens_per_expert\", has numbers out of range, not routed",
     "correct topk_ids or tokens_per_expert"},
    {device::kStatusRowOverflow, "row_overflow",
     "more permuted rows than max_permuted_rows, or than x has, the rest dropped",
     "raise max_permuted_rows, or correct tokens_per_expert"},
    {device::kStatusBadScale, "bad_scale",
     "tensor \"input_scale_inv\" has scales that are neither powers of two nor 0, or too far apart "
     "to be packed",
     "correct input_scale_inv"},
    {device::kStatusBadLogit, "bad_logit",
     "tensor \"logits\" has NaN, or numbers that lead to probabilities that are not finite",
     "correct logits"}};

// Returns whether the kernel only finds the scales of the next step.
bool finds_scales(const KernelPlan& kernel) {
  return std::holds_alternative<compiler::UpdateScalesSpec>(kernel.spec);
}

// Returns whether the kernel makes the tensor: it is the first that uses it, and the tensor is no
// input. A tensor that the plan does not name belongs to a list, whose operation has one kernel.
bool makes(const compiler::Plan& plan, const RunReport& report, size_t kernel,
           const std::string& tensor) {
  if (tensor.ends_with(kOfNextStep))
    return finds_scales(plan.kernels[kernel]) &&
           writes(plan.kernels[kernel], tensor.substr(0, tensor.size() - kOfNextStep.size()));
  if (compiler::find_tensor(plan, tensor) == nullptr) return true;
  const auto uses = [&](size_t one) {
    return !finds_scales(plan.kernels[one]) && touches(plan.kernels[one], tensor);
  };
  const auto first = std::ranges::find_if(report.kernels, uses);
  return first != report.kernels.end() && *first == kernel;
}

std::vector<const check::TensorCheck*> checks_of(const compiler::Plan& plan,
                                                 const RunReport& report, size_t kernel) {
  std::vector<const check::TensorCheck*> checks;
  for (const check::TensorCheck& check : report.checks)
    if (makes(plan, report, kernel, check.tensor)) checks.push_back(&check);
  return checks;
}

// Returns for example "counts, offs, row_map exact": tensors of one verdict together.
std::string verdicts_text(const std::vector<const check::TensorCheck*>& checks) {
  std::vector<std::pair<std::string, std::string>> groups;  // verdict, tensors
  for (const check::TensorCheck* check : checks) {
    const auto same =
        std::ranges::find(groups, check->verdict, &std::pair<std::string, std::string>::first);
    if (same == groups.end())
      groups.emplace_back(check->verdict, check->tensor);
    else
      same->second += ", " + check->tensor;
  }
  std::string text;
  for (const auto& [verdict, tensors] : groups)
    text += (text.empty() ? "" : "; ") + fmt::format("{} {}", tensors, verdict);
  return text;
}

// Returns what to do about the bits of a status word; empty if nothing is known.
std::string status_hint(uint32_t status) {
  std::vector<std::string_view> parts;
  for (const StatusBit& bit : kStatusBits)
    if ((status & bit.bit) != 0) parts.emplace_back(bit.hint);
  return fmt::format("{}", fmt::join(parts, ", "));
}

// Returns what the bits of a status word mean, which is not 0.
std::string status_text(uint32_t status) {
  std::vector<std::string> parts;
  for (const StatusBit& bit : kStatusBits) {
    if ((status & bit.bit) != 0) parts.emplace_back(bit.meaning);
    status &= ~bit.bit;
  }
  if (status != 0) parts.push_back(fmt::format("the status word has bits {:#x}", status));
  return fmt::format("{}", fmt::join(parts, "; "));
}

// Returns for example ", 64 tokens, 176 permuted rows".
std::string sizes_text(const RunReport& report) {
  std::string text;
  if (!report.tokens.empty()) text += fmt::format(", {} tokens", report.tokens.front());
  if (report.rows) text += fmt::format(", {} permuted rows", *report.rows);
  if (report.columns) text += fmt::format(", {} columns", *report.columns);
  return text;
}

// Returns ", 5 tokens each", or ", 5, 3 tokens" where ranks have different numbers.
std::string tokens_text(const std::vector<int64_t>& tokens) {
  const bool are_equal = std::ranges::count(tokens, tokens.front()) == std::ssize(tokens);
  return are_equal ? fmt::format(", {} tokens each", tokens.front())
                   : fmt::format(", {} tokens", fmt::join(tokens, ", "));
}

bool is_simulated(const compiler::Plan& plan) {
  return plan.target.kind == compiler::TargetKind::kSim;
}

bool has_dim(const compiler::Plan& plan, compiler::CallDim wanted) {
  for (const compiler::TensorPlan& tensor : plan.tensors)
    if (compiler::call_dim(tensor) == wanted) return true;
  return false;
}

// Returns a table of the kernels and the total of their times.
std::string kernels_text(const compiler::Plan& plan, const RunReport& report, int32_t width) {
  std::vector<Table::Column> columns = {
      {"kernel"}, {is_simulated(plan) ? "time in the simulator" : "time", Table::Align::kRight}};
  if (report.is_checked) columns.push_back({"against the reference"});
  Table table(std::move(columns));
  double total = 0.0;
  for (const measure::KernelTimer::Sample& sample : report.times) {
    const KernelPlan& kernel = plan.kernels[sample.kernel_index];
    total += sample.microseconds;
    std::vector<std::string> cells = {kernel.operation, time_text(sample.microseconds)};
    if (report.is_checked)
      cells.push_back(verdicts_text(checks_of(plan, report, sample.kernel_index)));
    table.add(std::move(cells));
  }
  return fmt::format("\n{}\ntotal {}", table.text(width), time_text(total));
}

std::string checks_text(const RunReport& report, int32_t width) {
  Table table({{"tensor"}, {"against the reference"}});
  for (const check::TensorCheck& check : report.checks) table.add({check.tensor, check.verdict});
  return fmt::format("\n{}\n", table.text(width));
}

std::string passed_text(const RunReport& report) {
  const auto passed = std::ranges::count_if(report.checks, &check::TensorCheck::has_passed);
  return fmt::format("check {}: {} of {} tensors agree",
                     passed == std::ssize(report.checks) ? "passed" : "FAILED", passed,
                     report.checks.size());
}

std::string text_of(const compiler::Plan& plan, const RunReport& report, int32_t width) {
  std::string text = plan.group ? fmt::format("layer \"{}\" on {}{}", name_of(plan), report.target,
                                              tokens_text(report.tokens))
                                : fmt::format("{} \"{}\", target {}{}", kind_of(plan),
                                              name_of(plan), report.target, sizes_text(report));
  text += fmt::format("{}\n", random_text(report.random));
  if (!report.calls.empty()) text += fmt::format("\ncalls: {}\n", fmt::join(report.calls, ", "));
  if (!plan.group)
    text += kernels_text(plan, report, width) +
            (report.is_checked ? ", " + passed_text(report) : "") + "\n";
  else if (report.is_checked)
    text += checks_text(report, width) + passed_text(report) + "\n";
  if (!report.output.empty()) text += fmt::format("written to {}\n", report.output);
  return text + trial::counters_text(report.counters) + "\n";
}

nlohmann::ordered_json checks_json(const RunReport& report) {
  if (!report.is_checked) return nullptr;
  nlohmann::ordered_json tensors = nlohmann::ordered_json::array();
  for (const check::TensorCheck& check : report.checks)
    tensors.push_back({{"tensor", check.tensor},
                       {"passed", check.has_passed},
                       {"verdict", check.verdict},
                       {"compared", check.compared},
                       {"differing", check.differing}});
  return {{"passed", std::ranges::all_of(report.checks, &check::TensorCheck::has_passed)},
          {"tensors", tensors}};
}

nlohmann::ordered_json group_json(const compiler::Plan& plan, const RunReport& report) {
  nlohmann::ordered_json json = {{"layer", name_of(plan)},
                                 {"device", report.target},
                                 {"ranks", report.tokens.size()},
                                 {"tokens", report.tokens}};
  add_random(json, report.random);
  if (!report.calls.empty()) json["calls"] = report.calls;
  json["status"] = report.status;
  json["check"] = checks_json(report);
  add_tuning(json, report.tuning);
  if (!report.output.empty()) json["output"] = report.output;
  json["compiled"] = report.counters.compiled;
  json["from_cache"] = report.counters.from_cache;
  return json;
}

nlohmann::ordered_json device_json(const compiler::Plan& plan, const RunReport& report) {
  nlohmann::ordered_json json;
  json[std::string(kind_of(plan))] = name_of(plan);
  json["target"] = compiler::to_string(plan.target);
  json["device"] = report.target;
  if (!report.tokens.empty()) json["tokens"] = report.tokens.front();
  if (report.rows) json["rows"] = *report.rows;
  if (report.columns) json["columns"] = *report.columns;
  add_random(json, report.random);
  if (!report.calls.empty()) json["calls"] = report.calls;
  add_tuning(json, report.tuning);
  json["status"] = {{"word", report.status.front()}};
  for (const StatusBit& bit : kStatusBits)
    json["status"][bit.name] = (report.status.front() & bit.bit) != 0;
  json["kernels"] = nlohmann::ordered_json::array();
  for (const measure::KernelTimer::Sample& sample : report.times)
    json["kernels"].push_back({{"operation", plan.kernels[sample.kernel_index].operation},
                               {"microseconds", sample.microseconds},
                               {"simulated", is_simulated(plan)}});
  json["check"] = checks_json(report);
  json["output"] = nullptr;
  if (!report.output.empty()) json["output"] = report.output;
  json["corrupt"] = report.counters.corrupt;
  json["compiled"] = report.counters.compiled;
  json["from_cache"] = report.counters.from_cache;
  json["from_packs"] = report.counters.from_packs;
  return json;
}

// Returns the error of a rank's status word; warns of one that is no error.
Result<void> judge_status(const compiler::Plan& plan, uint32_t status, std::size_t rank,
                          bool is_strict, const Terminal& terminal) {
  if (status == 0) return {};
  const std::string silent = plan.group ? runtime::silent_ranks(status) : "";
  std::string text = silent.empty() ? status_text(status)
                                    : fmt::format("rank {} was not heard of in time", silent);
  if (plan.group) text = fmt::format("rank {}: {}", rank, text);
  if (is_strict || !silent.empty())
    return fail(Stage::kLaunch, ErrorCode::kDeviceStatus, text, status_hint(status));
  terminal.warn(text);
  return {};
}

}  // namespace

void describe_sizes(const compiler::Plan& plan, const trial::CallInputs& call, RunReport& report) {
  const bool has_columns =
      has_dim(plan, compiler::CallDim::kColumns) || has_dim(plan, compiler::CallDim::kColumnBlocks);
  if (has_dim(plan, compiler::CallDim::kTokens)) report.tokens = {call.dims.tokens};
  if (call.rows.padded > 0 || call.tensors.contains("offs"))
    report.rows = call.rows.padded;
  else if (has_dim(plan, compiler::CallDim::kRows))
    report.rows = call.dims.rows;
  if (has_columns) report.columns = call.dims.columns;
}

std::string json_of(const compiler::Plan& plan, const RunReport& report) {
  return json_output(plan.group ? group_json(plan, report) : device_json(plan, report));
}

Result<void> finish_run(const compiler::Plan& plan, const RunReport& report,
                        const RunCommand& command, Terminal& terminal) {
  terminal.print(command.is_json ? json_of(plan, report) : text_of(plan, report, terminal.width()));
  for (std::size_t rank = 0; rank < report.status.size(); ++rank)
    MOEJIT_TRY(judge_status(plan, report.status[rank], rank, command.is_strict, terminal));
  for (const check::TensorCheck& check : report.checks)
    if (!check.has_passed)
      return fail(Stage::kLaunch, ErrorCode::kCheckFailed,
                  fmt::format("tensor \"{}\" differs from the reference: {}", check.tensor,
                              check.message.empty() ? check.verdict : check.message));
  return {};
}

runtime::TensorMap tensors_for_file(const compiler::Plan& plan, const RunCalls& calls,
                                    runtime::TensorMap results, bool with_intermediates) {
  if (!with_intermediates)
    std::erase_if(results, [&](const auto& entry) {
      const compiler::TensorPlan* const tensor = compiler::find_tensor(plan, entry.first);
      return tensor == nullptr || !is_output(plan, calls, *tensor);
    });
  trial::slice_colwise(results);
  if (plan.layer->gate_up_layout == compiler::GateUpLayout::kInterleaved &&
      !compiler::has_scales(plan.layer->recipe.weights))
    trial::put_gate_first(results, plan.layer->intermediate);
  trial::drop_padding_of_halves(results, plan.layer->intermediate,
                                compiler::padded_intermediate(*plan.layer));
  return results;
}

}  // namespace moejit::cli
