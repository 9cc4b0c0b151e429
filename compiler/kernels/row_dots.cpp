// SPDX-License-Identifier: Apache-2.0
#include "compiler/kernels/row_dots.h"

#include "compiler/call_dims.h"
#include "compiler/kernels/gradient_rows.h"
#include "compiler/kernels/kernel_kind.h"
#include "compiler/support/integer.h"

#include <algorithm>
#include <array>
#include <fmt/core.h>

namespace moejit::compiler {

std::string to_string(const RowDotsSpec& s) {
  return fmt::format("row_dots input={} local_experts={} columns={} threads={}", to_string(s.input),
                     s.local_experts, s.columns, s.threads);
}

template <>
LaunchShape KernelKind<RowDotsSpec>::shape(const RowDotsSpec& spec) {
  return {.threads = spec.threads};
}

template <>
int64_t KernelKind<RowDotsSpec>::busy(const RowDotsSpec& spec, const CallBounds& bounds,
                                      int64_t tokens) {
  return ceil_div(most_permuted_rows(bounds, tokens), spec.threads / 32);
}

template <>
std::vector<KernelNumber> KernelKind<RowDotsSpec>::numbers(const RowDotsSpec&, const CallBounds&) {
  return {{.role = "rows", .dim = CallDim::kRows}, kCallTokens};
}

template <>
Work KernelKind<RowDotsSpec>::work(const RowDotsSpec& spec, const CallBounds&,
                                   const CallRows& rows) {
  return {.min_bytes = rows.routed * (gradient_row_bytes(spec.input, spec.columns) + 4) +
                       2 * int64_t{spec.local_experts} * spec.columns};
}

template <>
const ParamRecord& KernelKind<RowDotsSpec>::record(const RowDotsSpec&) {
  return bias_gradient_record();
}

template <>
KernelText KernelKind<RowDotsSpec>::text(const RowDotsSpec& spec) {
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
