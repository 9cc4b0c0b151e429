// SPDX-License-Identifier: Apache-2.0
#include "compiler/kernels/column_sums.h"

#include "compiler/call_dims.h"
#include "compiler/kernels/gradient_rows.h"
#include "compiler/kernels/kernel_kind.h"
#include "compiler/support/integer.h"

#include <algorithm>
#include <array>
#include <fmt/core.h>

namespace moejit::compiler {

std::string to_string(const ColumnSumsSpec& s) {
  return fmt::format(
      "column_sums input={} local_experts={} sections={} section_columns={} pitch={}{}{}{} "
      "threads={}",
      to_string(s.input), s.local_experts, s.sections, s.section_columns, s.pitch,
      s.is_interleaved ? " interleaved" : "", s.times_prob ? " times_prob" : "",
      s.adds ? " adds" : "", s.threads);
}

template <>
LaunchShape KernelKind<ColumnSumsSpec>::shape(const ColumnSumsSpec& spec) {
  constexpr int32_t kSegmentBytes = 128 * 4;  // bytes of a partial sum
  return {.threads = spec.threads, .shared_bytes = spec.threads / 8 * kSegmentBytes};
}

template <>
int64_t KernelKind<ColumnSumsSpec>::busy(const ColumnSumsSpec& spec, const CallBounds&, int64_t) {
  return int64_t{spec.local_experts} * spec.sections * ceil_div(spec.section_columns, 128);
}

template <>
std::vector<KernelNumber> KernelKind<ColumnSumsSpec>::numbers(const ColumnSumsSpec&,
                                                              const CallBounds&) {
  return {{.role = "rows", .dim = CallDim::kRows}, kCallTokens};
}

template <>
Work KernelKind<ColumnSumsSpec>::work(const ColumnSumsSpec& spec, const CallBounds&,
                                      const CallRows& rows) {
  const int64_t sums = int64_t{spec.sections} * spec.section_columns;
  const int64_t probs = spec.times_prob ? 4 * rows.routed : 0;
  return {.min_bytes = rows.routed * gradient_row_bytes(spec.input, sums) + probs +
                       4 * (spec.adds ? 2 : 1) * spec.local_experts * sums};
}

template <>
const ParamRecord& KernelKind<ColumnSumsSpec>::record(const ColumnSumsSpec& spec) {
  return spec.adds ? adding_bias_gradient_record() : bias_gradient_record();
}

template <>
KernelText KernelKind<ColumnSumsSpec>::text(const ColumnSumsSpec& spec) {
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

}  // namespace moejit::compiler
