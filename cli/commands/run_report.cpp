// SPDX-License-Identifier: Apache-2.0
#include "cli/commands/run_report.h"

#include "cli/execution/open_engine.h"
#include "compiler/support/table.h"
#include "runtime/reference/route.h"

#include <algorithm>
#include <fmt/core.h>
#include <nlohmann/json.hpp>

namespace moejit::cli {
namespace {

using compiler::KernelPlan;
using compiler::LayerPlan;

bool has_bad_id(uint32_t status) { return (status & reference::kBadExpertId) != 0; }
bool has_overflow(uint32_t status) { return (status & reference::kRowOverflow) != 0; }

// Returns whether the kernel makes the tensor: it is the first that touches it other than as an
// input.
bool makes(const compiler::Plan& plan, size_t kernel, const std::string& tensor) {
  const compiler::TensorPlan* planned = compiler::find_tensor(plan, tensor);
  return planned != nullptr && planned->first_use == static_cast<int32_t>(kernel);
}

std::vector<const TensorCheck*> checks_of(const compiler::Plan& plan, const RunReport& report,
                                          size_t kernel) {
  std::vector<const TensorCheck*> checks;
  for (const TensorCheck& check : report.checks)
    if (makes(plan, kernel, check.tensor)) checks.push_back(&check);
  return checks;
}

// Returns for example "counts, offs, row_map exact": tensors of one verdict together.
std::string verdicts_text(const std::vector<const TensorCheck*>& checks) {
  std::vector<std::pair<std::string, std::string>> groups;  // verdict, tensors
  for (const TensorCheck* check : checks) {
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

bool is_simulated(const compiler::Plan& plan) {
  return plan.target.kind == compiler::TargetKind::kSim;
}

}  // namespace

std::string status_text(uint32_t status) {
  std::string text;
  if (has_bad_id(status)) text = "tensor \"topk_ids\" has expert ids out of range, not routed";
  if (has_overflow(status))
    text += std::string(text.empty() ? "" : "; ") +
            "more permuted rows than max_permuted_rows, the rest dropped";
  return text;
}

std::string text_of(const LayerPlan& plan, const RunReport& report, int32_t width) {
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
  const auto passed = std::ranges::count_if(report.checks, &TensorCheck::has_passed);
  std::string text =
      fmt::format("layer \"{}\", target {}, {} tokens, {} permuted rows\n\n{}", plan.layer.name,
                  report.target, report.tokens, report.rows, table.text(width));
  text += fmt::format("\ntotal {}", time_text(total));
  if (report.is_checked)
    text += fmt::format(", check {}: {} of {} tensors agree",
                        passed == std::ssize(report.checks) ? "passed" : "FAILED", passed,
                        report.checks.size());
  if (!report.output.empty()) text += fmt::format("\nwritten to {}", report.output);
  return text + fmt::format("\n{}\n", counters_text(report.counters));
}

std::string json_of(const LayerPlan& plan, const RunReport& report) {
  nlohmann::ordered_json json;
  json["layer"] = plan.layer.name;
  json["target"] = compiler::to_string(plan.target);
  json["device"] = report.target;
  json["tokens"] = report.tokens;
  json["rows"] = report.rows;
  json["status"] = {{"word", report.status},
                    {"bad_expert_id", has_bad_id(report.status)},
                    {"row_overflow", has_overflow(report.status)}};
  json["kernels"] = nlohmann::ordered_json::array();
  for (const measure::KernelTimer::Sample& sample : report.times)
    json["kernels"].push_back({{"operation", plan.kernels[sample.kernel_index].operation},
                               {"microseconds", sample.microseconds},
                               {"simulated", is_simulated(plan)}});
  json["check"] = nullptr;
  if (report.is_checked) {
    nlohmann::ordered_json tensors = nlohmann::ordered_json::array();
    for (const TensorCheck& check : report.checks)
      tensors.push_back({{"tensor", check.tensor},
                         {"passed", check.has_passed},
                         {"verdict", check.verdict},
                         {"compared", check.compared},
                         {"differing", check.differing}});
    json["check"] = {{"passed", std::ranges::all_of(report.checks, &TensorCheck::has_passed)},
                     {"tensors", tensors}};
  }
  json["output"] = nullptr;
  if (!report.output.empty()) json["output"] = report.output;
  json["corrupt"] = report.counters.corrupt;
  json["compiled"] = report.counters.compiled;
  json["from_cache"] = report.counters.from_cache;
  json["from_packs"] = report.counters.from_packs;
  return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace moejit::cli
