// SPDX-License-Identifier: Apache-2.0
#include "compiler/emitter/kernel_text.h"

#include <fmt/core.h>

namespace moejit::compiler {
namespace {

std::string rescale_type(const TransposeSpec& spec) {
  const std::string_view format = spec.format == DType::kF8E5M2 ? "E5m2" : "E4m3";
  switch (spec.rule) {
    case TransposeRule::kIdeal: return fmt::format("IdealRescale<{}>", format);
    case TransposeRule::kForkCompat: return fmt::format("ForkCompatRescale<{}>", format);
  }
  return {};
}

std::string source_type(const TransposeSpec& spec) {
  switch (spec.source) {
    case RowSource::kInOrder: return "RowsInOrder<kColumns>";
    case RowSource::kGathered: return "GatheredRows<kColumns>";
    case RowSource::kGatheredAll: return "GatheredRowsOfAll<kColumns>";
  }
  return {};
}

}  // namespace

KernelText describe(const TransposeSpec& spec) {
  const std::string_view format = spec.format == DType::kF8E5M2 ? "e5m2" : "e4m3";
  return {
      .types = fmt::format("{}_{}", format, format),
      .tile = "128x128",
      .summary = fmt::format(
          "{} rows [{}, {}] with 1x128 scales to columns of their experts with "
          "128x128 scales, rounded {}",
          format, spec.source == RowSource::kInOrder ? "P" : "T", spec.columns,
          spec.rule == TransposeRule::kIdeal ? "to nearest even" : "as Transformer Engine's fork"),
      .includes = {"transpose/transpose.cuh"},
      .params = "TransposeParams",
      .constants =
          {
              integer_constant("kGroups", spec.local_experts, "groups of rows"),
              integer_constant("kColumns", spec.columns, "of a row that is read"),
              integer_constant("kThreads", spec.threads, "per CTA, 64 for each tile"),
          },
      .types_used = {{"Kernel",
                      "Transpose",
                      {"kGroups", "kColumns", source_type(spec), rescale_type(spec),
                       spec.counts_flushed ? "CountFlushed" : "IgnoreFlushed", "kThreads"}}},
  };
}

}  // namespace moejit::compiler
