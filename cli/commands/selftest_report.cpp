// SPDX-License-Identifier: Apache-2.0
#include "cli/commands/selftest_report.h"

#include "compiler/support/table.h"

#include <algorithm>
#include <fmt/core.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

namespace moejit::cli {
namespace {

using check::TensorCheck;
using check::TensorCoreCheck;

constexpr auto kRight = Table::Align::kRight;

// The checks of all tensors of a layer, added up.
struct LayerSum {
  int64_t compared = 0, differing = 0;
  std::vector<std::string> failed;  // tensors
};
LayerSum sum_of(const SelftestLayer& layer) {
  LayerSum sum;
  for (const TensorCheck& check : layer.checks) {
    sum.compared += check.compared;
    if (check.has_passed) continue;
    sum.differing += check.differing;
    sum.failed.push_back(check.tensor);
  }
  return sum;
}

// Returns the questions in the same formats as one, their sums added up; in the order of formats.
std::vector<TensorCoreCheck> by_formats(const std::vector<TensorCoreCheck>& checks) {
  std::vector<TensorCoreCheck> sums;
  for (const TensorCoreCheck& check : checks) {
    if (sums.empty() || sums.back().formats != check.formats) {
      sums.push_back(check);
      continue;
    }
    sums.back().sums += check.sums;
    for (std::size_t rule = 0; rule < check.differing.size(); ++rule)
      sums.back().differing[rule] += check.differing[rule];
  }
  return sums;
}

std::string tensor_cores_table(const SelftestReport& report) {
  std::vector<Table::Column> columns = {{"products"}, {"sums", kRight}};
  for (const check::AdditionRule& rule : report.rules)
    columns.push_back({"not as " + rule.target, kRight});
  Table table(std::move(columns));
  for (const TensorCoreCheck& check : by_formats(report.tensor_cores)) {
    std::vector<std::string> cells = {std::string(check::formats_text(check.formats)),
                                      fmt::format("{}", check.sums)};
    for (const int64_t differing : check.differing) cells.push_back(fmt::format("{}", differing));
    table.add(std::move(cells));
  }
  return table.text();
}

std::string layers_table(const SelftestReport& report, int32_t width) {
  Table table({{"layer"},
               {"tensors", kRight},
               {"elements compared", kRight},
               {"wrong", kRight},
               {"against the reference"}});
  for (const SelftestLayer& layer : report.layers) {
    const LayerSum sum = sum_of(layer);
    const std::string text = layer.failure        ? layer.failure->message
                             : sum.failed.empty() ? "passed"
                                                  : fmt::format("{}", fmt::join(sum.failed, ", "));
    table.add({std::string(layer.recipe), fmt::format("{}", layer.checks.size()),
               fmt::format("{}", sum.compared), fmt::format("{}", sum.differing), text});
  }
  return table.text(width);
}

nlohmann::ordered_json error_json(const std::optional<Error>& error) {
  if (!error) return nullptr;
  return {{"code", to_string(error->code)}, {"message", error->message}};
}

nlohmann::ordered_json json_of(const SelftestLayer& layer) {
  const LayerSum sum = sum_of(layer);
  return {{"recipe", layer.recipe},   {"tensors", layer.checks.size()},
          {"compared", sum.compared}, {"differing", sum.differing},
          {"failed", sum.failed},     {"error", error_json(layer.failure)}};
}

nlohmann::ordered_json rules_json(const SelftestReport& report) {
  nlohmann::ordered_json rules = nlohmann::ordered_json::array();
  for (const check::AdditionRule& rule : report.rules)
    rules.push_back({{"target", rule.target},
                     {"fp8_in_f16", rule.rule.multiplies_in_f16},
                     {"products", rule.rule.products},
                     {"fraction", rule.rule.fraction}});
  return rules;
}

}  // namespace

std::vector<std::string> failures_of(const SelftestReport& report) {
  std::vector<std::string> failures;
  if (report.tensor_cores_error)
    failures.push_back("tensor cores were not asked: " + report.tensor_cores_error->message);
  for (const TensorCoreCheck& check : by_formats(report.tensor_cores))
    if (check.differing.front() > 0)
      failures.push_back(fmt::format("{} of {} sums of {} differ from the rule of {}",
                                     check.differing.front(), check.sums,
                                     check::formats_text(check.formats), report.target));
  for (const SelftestLayer& layer : report.layers) {
    if (layer.failure)
      failures.push_back(
          fmt::format("the layer of {} did not run: {}", layer.recipe, layer.failure->message));
    for (const TensorCheck& check : layer.checks)
      if (!check.has_passed)
        failures.push_back(fmt::format(
            "tensor \"{}\" of the layer of {} differs from the reference: {}", check.tensor,
            layer.recipe, check.message.empty() ? check.verdict : check.message));
  }
  if (report.gemms.failure)
    failures.push_back("not all GEMMs were measured: " + report.gemms.failure->message);
  return failures;
}

std::string selftest_table(const SelftestReport& report, int32_t width) {
  std::string text =
      fmt::format("target {} ({})\n\n{}\n{}\n", report.gemms.run.target, report.evidence,
                  tensor_cores_table(report), layers_table(report, width));
  if (!report.gemms.results.empty())
    text += gemms_table(report.gemms.results, report.gemms.run) + "\n";
  return text + (failures_of(report).empty() ? "selftest passed\n" : "selftest failed\n");
}

nlohmann::ordered_json selftest_json(const SelftestReport& report) {
  nlohmann::ordered_json json = gemms_json(report.gemms.results, report.gemms.run);
  json["target"] = report.target;
  json["evidence"] = report.evidence;
  json["compiler"] = report.compiler;
  json["rules"] = rules_json(report);
  json["tensor_cores"] = nlohmann::ordered_json::array();
  for (const TensorCoreCheck& check : report.tensor_cores)
    json["tensor_cores"].push_back({{"products", check::formats_text(check.formats)},
                                    {"question", check.question},
                                    {"sums", check.sums},
                                    {"differing", check.differing}});
  json["layers"] = nlohmann::ordered_json::array();
  for (const SelftestLayer& layer : report.layers) json["layers"].push_back(json_of(layer));
  json["failures"] = failures_of(report);
  json["passed"] = failures_of(report).empty();
  return json;
}

}  // namespace moejit::cli
