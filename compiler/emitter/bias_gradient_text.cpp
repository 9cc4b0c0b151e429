// SPDX-License-Identifier: Apache-2.0
#include "compiler/emitter/kernel_text.h"

#include <fmt/core.h>

namespace moejit::compiler {
namespace {

std::string_view element_name(DType input) { return input == DType::kBF16 ? "bf16" : "e4m3"; }

// Rows of `pitch` columns a section.
std::string rows_type(DType input) {
  return input == DType::kBF16 ? "Bf16GradientRows<kPitch>" : "E4m3GradientRows<kPitch>";
}

}  // namespace

KernelText describe(const ColumnSumsSpec& spec) {
  return {
      .types = fmt::format("{}_f32", element_name(spec.input)),
      .tile = "1x128",
      .summary =
          fmt::format("{} sums of the {} columns of {} rows of each expert{}",
                      spec.adds ? "adds" : "writes", spec.sections * spec.section_columns,
                      element_name(spec.input), spec.times_prob ? ", times probability" : ""),
      .includes = {"bias/column_sums.cuh"},
      .params = "BiasGradientParams",
      .constants =
          {
              integer_constant("kGroups", spec.local_experts, "groups of rows"),
              integer_constant("kSections", spec.sections, "parts of a row"),
              integer_constant("kSectionColumns", spec.section_columns,
                               "of each that are added up"),
              integer_constant("kPitch", spec.sections * spec.pitch, "columns of a row"),
              bool_constant("kInterleaved", spec.is_interleaved,
                            "columns of the parts alternate in the sums"),
              bool_constant("kTimesProb", spec.times_prob, "rows count with their probabilities"),
              bool_constant("kAdds", spec.adds, "to what is there"),
              integer_constant("kThreads", spec.threads, "per CTA"),
          },
      .types_used = {{"Kernel",
                      "ColumnSums",
                      {rows_type(spec.input), "kGroups", "kSections", "kSectionColumns",
                       "kInterleaved", "kTimesProb", "kAdds", "kThreads"}}},
  };
}

KernelText describe(const RowDotsSpec& spec) {
  return {
      .types = fmt::format("{}_f32", element_name(spec.input)),
      .tile = "1x128",
      .summary = fmt::format("{} rows [P, {}] times the bias of their experts",
                             element_name(spec.input), spec.columns),
      .includes = {"bias/row_dots.cuh"},
      .params = "BiasGradientParams",
      .constants =
          {
              integer_constant("kGroups", spec.local_experts, "groups of rows"),
              integer_constant("kPitch", spec.columns, "columns of a row"),
              integer_constant("kThreads", spec.threads, "per CTA, 32 for each row"),
          },
      .types_used = {{"Kernel", "RowDots", {rows_type(spec.input), "kGroups", "kThreads"}}},
  };
}

}  // namespace moejit::compiler
