// SPDX-License-Identifier: Apache-2.0
#include "cli/commands/run_report.h"

#include "cli/terminal/output.h"
#include "compiler/support/table.h"
#include "runtime/trial/file_tensors.h"
#include "runtime/trial/open_target.h"
#include "runtime/trial/trial.h"
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
     "tensor \"input_scale_inv\" has scales that are neither powers of two nor 0",
     "correct input_scale_inv"}};

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

std::string status_hint(uint32_t status) {
  std::string text;
  for (const StatusBit& bit : kStatusBits)
    if ((status & bit.bit) != 0) text += (text.empty() ? "" : ", ") + std::string(bit.hint);
  return text;
}

// Returns for example ", 64 tokens, 176 permuted rows".
std::string sizes_text(const RunReport& report) {
  std::string text;
  if (report.tokens) text += fmt::format(", {} tokens", *report.tokens);
  if (report.rows) text += fmt::format(", {} permuted rows", *report.rows);
  if (report.columns) text += fmt::format(", {} columns", *report.columns);
  return text += trial::routing_text(report.routing);
}

bool is_simulated(const compiler::Plan& plan) {
  return plan.target.kind == compiler::TargetKind::kSim;
}

bool has_dim(const compiler::Plan& plan, compiler::CallDim wanted) {
  for (const compiler::TensorPlan& tensor : plan.tensors)
    if (compiler::call_dim(tensor) == wanted) return true;
  return false;
}

}  // namespace

void describe_sizes(const compiler::Plan& plan, const trial::OperationCall& call,
                    RunReport& report) {
  const bool has_columns =
      has_dim(plan, compiler::CallDim::kColumns) || has_dim(plan, compiler::CallDim::kColumnBlocks);
  if (has_dim(plan, compiler::CallDim::kTokens)) report.tokens = call.dims.tokens;
  if (call.rows.padded > 0 || call.inputs.contains("offs"))
    report.rows = call.rows.padded;
  else if (has_dim(plan, compiler::CallDim::kRows))
    report.rows = call.dims.rows;
  if (has_columns) report.columns = call.dims.columns;
}

std::string calls_text(const std::vector<std::string>& calls) {
  if (calls.empty()) return "";
  return fmt::format("\ncalls: {}\n", fmt::join(calls, ", "));
}

std::string status_text(uint32_t status) {
  std::string text;
  for (const StatusBit& bit : kStatusBits)
    if ((status & bit.bit) != 0) text += (text.empty() ? "" : "; ") + std::string(bit.meaning);
  return text;
}

std::string text_of(const compiler::Plan& plan, const RunReport& report, int32_t width) {
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
  const auto passed = std::ranges::count_if(report.checks, &check::TensorCheck::has_passed);
  std::string text =
      fmt::format("{} \"{}\", target {}{}\n{}\n{}", kind_of(plan), name_of(plan), report.target,
                  sizes_text(report), calls_text(report.calls), table.text(width));
  text += fmt::format("\ntotal {}", time_text(total));
  if (report.is_checked)
    text += fmt::format(", check {}: {} of {} tensors agree",
                        passed == std::ssize(report.checks) ? "passed" : "FAILED", passed,
                        report.checks.size());
  if (!report.output.empty()) text += fmt::format("\nwritten to {}", report.output);
  return text + fmt::format("\n{}\n", trial::counters_text(report.counters));
}

std::string json_of(const compiler::Plan& plan, const RunReport& report) {
  nlohmann::ordered_json json;
  json[std::string(kind_of(plan))] = name_of(plan);
  json["target"] = compiler::to_string(plan.target);
  json["device"] = report.target;
  if (report.tokens) json["tokens"] = *report.tokens;
  if (report.rows) json["rows"] = *report.rows;
  if (report.columns) json["columns"] = *report.columns;
  if (report.routing) json["routing"] = to_string(*report.routing);
  if (!report.calls.empty()) json["calls"] = report.calls;
  add_tuning(json, report.tuning);
  json["status"] = {{"word", report.status}};
  for (const StatusBit& bit : kStatusBits)
    json["status"][bit.name] = (report.status & bit.bit) != 0;
  json["kernels"] = nlohmann::ordered_json::array();
  for (const measure::KernelTimer::Sample& sample : report.times)
    json["kernels"].push_back({{"operation", plan.kernels[sample.kernel_index].operation},
                               {"microseconds", sample.microseconds},
                               {"simulated", is_simulated(plan)}});
  json["check"] = nullptr;
  if (report.is_checked) {
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
  json["output"] = nullptr;
  if (!report.output.empty()) json["output"] = report.output;
  json["corrupt"] = report.counters.corrupt;
  json["compiled"] = report.counters.compiled;
  json["from_cache"] = report.counters.from_cache;
  json["from_packs"] = report.counters.from_packs;
  return json_output(json);
}

Result<void> finish_run(const compiler::Plan& plan, const RunReport& report,
                        const RunCommand& command, Terminal& terminal) {
  terminal.print(command.is_json ? json_of(plan, report) : text_of(plan, report, terminal.width()));
  if (const std::string status = status_text(report.status); !status.empty()) {
    if (command.is_strict)
      return fail(Stage::kLaunch, ErrorCode::kDeviceStatus, status, status_hint(report.status));
    terminal.warn(status);
  }
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
