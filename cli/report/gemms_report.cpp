// SPDX-License-Identifier: Apache-2.0
#include "cli/report/gemms_report.h"

#include "compiler/support/table.h"
#include "runtime/measure/sm_clock.h"
#include "runtime/trial/open_engine.h"

#include <fmt/core.h>
#include <nlohmann/json.hpp>
#include <tuple>

namespace moejit::cli {
namespace {

BenchLine line_of(const GemmResult& result, const BenchRun& run) {
  return {.kernel = &result.kernel,
          .cool = result.cool,
          .hot = result.hot,
          .work = count_work(result.kernel, result.rows),
          .sm_count = run.sm_count};
}

double hot_bytes_per_second(const BenchLine& line) {
  return static_cast<double>(line.work.min_bytes) / line.hot.microseconds * 1e6;
}

nlohmann::ordered_json json_of(const measure::GemmCase& gemm) {
  if (!is_row_grouped(gemm))
    return {{"name", gemm.name},
            {"operation", to_string(gemm.operation)},
            {"groups", gemm.groups},
            {"columns_per_group", gemm.columns_per_group},
            {"ragged", gemm.is_ragged},
            {"rows", gemm.rows},
            {"n", gemm.n},
            {"scales", to_string(gemm.gradient_scales)},
            {"output", to_string(gemm.output)}};
  return {{"name", gemm.name},
          {"operation", to_string(gemm.operation)},
          {"groups", gemm.groups},
          {"rows_per_group", gemm.rows_per_group},
          {"ragged", gemm.is_ragged},
          {"splits_alignment", gemm.splits_alignment},
          {"n", gemm.n},
          {"k", gemm.k},
          {"sections", gemm.sections},
          {"scales", to_string(gemm.scales)},
          {"accumulation", to_string(gemm.accumulation)},
          {"scale_sharing_k", gemm.scale_sharing_k}};
}

nlohmann::ordered_json json_of(const GemmResult& result, const BenchRun& run) {
  const BenchLine line = line_of(result, run);
  const auto [cool, hot] = std::tie(line.cool, line.hot);
  nlohmann::ordered_json json = json_of(result.gemm);
  json["spec"] = to_string(result.kernel.spec);
  const bool has_rows = is_row_grouped(result.gemm);
  json[has_rows ? "real_rows" : "real_columns"] = result.rows.routed;
  json[has_rows ? "padded_rows" : "padded_columns"] = result.rows.padded;
  json["equal_elements"] = result.compared;
  json["multiply_adds"] = line.work.multiply_adds;
  json["min_bytes"] = line.work.min_bytes;
  json["peak_multiply_adds_per_sm_and_cycle"] = measure::peak_multiply_adds(result.kernel);
  json["cool_us"] = cool.microseconds;
  json["cool_mhz"] = cool.megahertz;
  json["flops_cool"] = line.flops(cool.microseconds);
  json["util_cool"] = line.util_cool();
  json["bytes_per_second_cool"] = line.bytes_per_second();
  json["hot_us"] = hot.microseconds;
  json["hot_mhz"] = hot.megahertz;
  json["hot_launches"] = hot.launches;
  json["hot_seconds"] = hot.seconds;
  json["flops_hot"] = line.flops(hot.microseconds);
  json["util_hot"] = line.util_hot();
  json["bytes_per_second_hot"] = hot_bytes_per_second(line);
  add_samples(json, hot.gpu);
  return json;
}

}  // namespace

std::string gemms_table(const std::vector<GemmResult>& results, const BenchRun& run) {
  constexpr auto kRight = Table::Align::kRight;
  Table table({{"case"},
               {"rows", kRight},
               {"equal", kRight},
               {"cool", kRight},
               {"MHz", kRight},
               {"TFLOP/s", kRight},
               {"util", kRight},
               {"hot", kRight},
               {"MHz", kRight},
               {"W", kRight},
               {"TFLOP/s", kRight},
               {"util", kRight},
               {"GB/s", kRight}});
  for (const GemmResult& result : results) {
    const BenchLine line = line_of(result, run);
    const auto [cool, hot] = std::tie(line.cool, line.hot);
    table.add({result.gemm.name, fmt::format("{}", result.rows.routed),
               fmt::format("{}", result.compared), time_text(cool.microseconds),
               fmt::format("{:.0f}", cool.megahertz),
               fmt::format("{:.0f}", line.flops(cool.microseconds) * 1e-12),
               fmt::format("{:.3f}", line.util_cool()), time_text(hot.microseconds),
               fmt::format("{:.0f}", hot.megahertz), watts_text(hot.gpu),
               fmt::format("{:.0f}", line.flops(hot.microseconds) * 1e-12),
               fmt::format("{:.3f}", line.util_hot()),
               fmt::format("{:.0f}", hot_bytes_per_second(line) * 1e-9)});
  }
  return fmt::format("target {}\n\n{}\n{}\n", run.target, table.text(),
                     trial::counters_text(run.counters));
}

nlohmann::ordered_json gemms_json(const std::vector<GemmResult>& results, const BenchRun& run) {
  nlohmann::ordered_json json;
  add_run(json, run);
  json["gemms"] = nlohmann::ordered_json::array();
  for (const GemmResult& result : results) json["gemms"].push_back(json_of(result, run));
  json["compiled"] = run.counters.compiled;
  json["from_cache"] = run.counters.from_cache;
  json["from_packs"] = run.counters.from_packs;
  return json;
}

}  // namespace moejit::cli
