// SPDX-License-Identifier: Apache-2.0
#include "compiler/kernels/bias_gradient.h"

#include "compiler/call_dims.h"
#include "compiler/kernels/kernel_kind.h"
#include "compiler/support/integer.h"
#include "moejit_device/params/bias_gradient_params.h"

#include <algorithm>
#include <array>
#include <fmt/core.h>

namespace moejit::compiler {

namespace {

using device::BiasGradientParams;
using enum Access;

// The kernels of biases read rows of gradients, in bf16, or in e4m3 with compact scales
// (templates/moejit_device/bias/gradient_rows.cuh).

std::string_view element_name(DType input) { return input == DType::kBF16 ? "bf16" : "e4m3"; }

// Returns the device type of rows with `pitch` columns a section.
std::string rows_type(DType input) {
  return input == DType::kBF16 ? "Bf16GradientRows<kPitch>" : "E4m3GradientRows<kPitch>";
}

// Returns the bytes of a row with its scales.
int64_t gradient_row_bytes(DType input, int64_t columns) {
  return input == DType::kBF16 ? 2 * columns : columns + 4 * ceil_div(columns, 128);
}

constexpr std::array kGradientRowsPointers = {
    MOEJIT_POINTER(BiasGradientParams, input, kRead),
    MOEJIT_POINTER(BiasGradientParams, input_scale_inv, kRead),
    MOEJIT_POINTER(BiasGradientParams, probs, kRead),
    MOEJIT_POINTER(BiasGradientParams, bias, kRead),
    MOEJIT_POINTER(BiasGradientParams, counts, kRead),
    MOEJIT_POINTER(BiasGradientParams, offs, kRead),
    MOEJIT_POINTER(BiasGradientParams, output, kWrite),
    MOEJIT_CALL_POINTERS(BiasGradientParams),
};

constexpr std::array kGradientRowsNumbers = {MOEJIT_NUMBER(BiasGradientParams, rows),
                                             MOEJIT_NUMBER(BiasGradientParams, call.tokens)};

// A result that is added to is also read.
constexpr auto kAddingPointers = [] {
  auto pointers = kGradientRowsPointers;
  std::ranges::find(pointers, "output", &RecordTensor::role)->access = kReadWrite;
  return pointers;
}();

constexpr ParamRecord kGradientRowsRecord{
    "bias_gradient", sizeof(BiasGradientParams), kGradientRowsPointers, {}, kGradientRowsNumbers};
static_assert(is_complete(kGradientRowsRecord));
constexpr ParamRecord kAddingGradientRowsRecord{
    kGradientRowsRecord.name, kGradientRowsRecord.bytes, kAddingPointers, {}, kGradientRowsNumbers};

}  // namespace

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
  return spec.adds ? kAddingGradientRowsRecord : kGradientRowsRecord;
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
  return kGradientRowsRecord;
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
