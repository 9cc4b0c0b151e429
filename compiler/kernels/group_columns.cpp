// SPDX-License-Identifier: Apache-2.0
#include "compiler/kernels/group_columns.h"

#include "compiler/call_dims.h"
#include "compiler/kernels/kernel_kind.h"
#include "compiler/kernels/threads_per_sm.h"
#include "compiler/kernels/transpose.h"
#include "compiler/support/integer.h"

#include <fmt/core.h>

namespace moejit::compiler {

std::string_view to_string(ColumnPass pass) {
  switch (pass) {
    case ColumnPass::kScales: return "scales";
    case ColumnPass::kCast: return "cast";
  }
  return "unknown";
}

std::string to_string(const GroupColumnsSpec& s) {
  const std::string matrices =
      has_matrices(s) ? fmt::format(" sections={} section_rows={}{}", s.sections, s.section_rows,
                                    s.is_interleaved ? " interleaved" : "")
                      : std::string();
  const std::string epsilon =
      s.pass == ColumnPass::kScales ? fmt::format(" epsilon={:g}", s.epsilon) : std::string();
  return fmt::format(
      "group_columns pass={} source={} local_experts={} columns={}{}{}{} threads={}{}",
      to_string(s.pass), to_string(s.source), s.local_experts, s.columns, matrices,
      s.has_amax_rows ? " amax_rows" : "", epsilon, s.threads, threads_per_sm_text(s));
}

namespace {

constexpr int32_t kStripColumns = 64;  // that a CTA of kScales, or two warps of kCast, have

int64_t matrix_rows(const GroupColumnsSpec& spec) {
  return int64_t{spec.sections} * spec.section_rows;
}

}  // namespace

template <>
LaunchShape KernelKind<GroupColumnsSpec>::shape(const GroupColumnsSpec& spec) {
  constexpr int32_t kSlotBytes = 2 * kStripColumns;  // a bf16 magnitude of each column
  return {.threads = spec.threads,
          .shared_bytes = spec.pass == ColumnPass::kScales ? kSlotBytes * (spec.threads / 32) : 0,
          .walking_threads_per_sm = has_matrices(spec) ? threads_per_sm(spec) : 0};
}

template <>
int64_t KernelKind<GroupColumnsSpec>::busy(const GroupColumnsSpec& spec, const CallBounds& bounds,
                                           int64_t tokens) {
  return busy_ctas(spec, has_matrices(spec) ? 0 : most_gradient_columns(bounds, tokens));
}

template <>
std::vector<KernelNumber> KernelKind<GroupColumnsSpec>::numbers(const GroupColumnsSpec& spec,
                                                                const CallBounds&) {
  if (has_matrices(spec))
    return {{.role = "rows", .dim = {}, .value = spec.local_experts * matrix_rows(spec)},
            {.role = "output_columns", .dim = {}, .value = 0},
            {.role = kCallTokens.role, .dim = {}, .value = 0}};
  return {{.role = "rows", .dim = CallDim::kRows},
          {.role = "output_columns", .dim = CallDim::kColumns},
          kCallTokens};
}

// Counts every real row once as input, in the cast once as output, and every scale. If rows are
// gathered, a token that has rows is read once.
template <>
Work KernelKind<GroupColumnsSpec>::work(const GroupColumnsSpec& spec, const CallBounds&,
                                        const CallRows& rows) {
  const bool gathers = spec.source != RowSource::kInOrder;
  const int64_t routed = has_matrices(spec) ? spec.local_experts * matrix_rows(spec) : rows.routed;
  const int64_t read = gathers              ? rows.routed_tokens
                       : spec.has_amax_rows ? ceil_div(routed, int64_t{128})
                                            : routed;
  const int64_t written = spec.pass == ColumnPass::kCast ? routed : 0;
  return {.min_bytes = spec.columns * (2 * read + written + 4 * int64_t{spec.local_experts}) +
                       (gathers ? 4 * rows.routed : 0)};
}

template <>
const ParamRecord& KernelKind<GroupColumnsSpec>::record(const GroupColumnsSpec&) {
  return transpose_record();
}

int64_t busy_ctas(const GroupColumnsSpec& spec, int64_t output_columns) {
  const int64_t strips = ceil_div(spec.columns, kStripColumns);
  if (spec.pass == ColumnPass::kScales) return spec.local_experts * strips;
  const int64_t tiles = has_matrices(spec)
                            ? spec.local_experts * ceil_div(matrix_rows(spec), int64_t{128})
                            : ceil_div(output_columns, 128);
  return ceil_div(tiles * strips, spec.threads / 64);
}

namespace {

std::string groups_type(const GroupColumnsSpec& spec) {
  if (spec.has_amax_rows) return "ExpertTiles<kGroups>";
  return has_matrices(spec) ? "MatrixRows<kGroups, kSections, kSectionRows>"
                            : "ExpertRows<kGroups>";
}

std::string source_type(const GroupColumnsSpec& spec) {
  if (spec.is_interleaved) return "AlternatingRows<kRowBytes, kSections, kSectionRows>";
  return source_type(spec.source, "Rows", "kRowBytes");
}

std::string summary_of(const GroupColumnsSpec& spec) {
  if (spec.has_amax_rows)
    return fmt::format(
        "largest magnitudes [C / 128, {}] of columns to one power-of-two scale for each of an "
        "expert",
        spec.columns);
  const std::string input =
      has_matrices(spec)
          ? fmt::format("matrices [{}, {}]", matrix_rows(spec), spec.columns)
          : fmt::format("rows [{}, {}]", spec.source == RowSource::kInOrder ? "P" : "T",
                        spec.columns);
  if (spec.pass == ColumnPass::kScales)
    return fmt::format("bf16 {} to one power-of-two scale for each column of a{}", input,
                       has_matrices(spec) ? " matrix" : "n expert's rows");
  return fmt::format("bf16 {} to e4m3 columns{}, with their known scales", input,
                     has_matrices(spec) ? "" : " of their experts");
}

}  // namespace

template <>
KernelText KernelKind<GroupColumnsSpec>::text(const GroupColumnsSpec& spec) {
  const bool finds_scales = spec.pass == ColumnPass::kScales;
  KernelText text{
      .types = finds_scales ? "bf16_f32" : "bf16_e4m3",
      .tile = finds_scales ? "64" : "128x64",
      .summary = summary_of(spec),
      .includes = {finds_scales ? "transpose/group_column_scales.cuh"
                                : "transpose/scaled_column_cast.cuh"},
      .params = "TransposeParams",
      .constants =
          {
              integer_constant("kGroups", spec.local_experts,
                               has_matrices(spec) ? "matrices" : "groups of rows"),
              integer_constant("kColumns", spec.columns, "of a row that is read"),
              integer_constant("kRowBytes", 2 * spec.columns, "of a row that is read"),
          },
      .types_used = {{"Kernel",
                      finds_scales ? "GroupColumnScales" : "ScaledColumnCast",
                      {groups_type(spec), "kColumns", source_type(spec)}}},
  };
  std::vector<std::string>& arguments = text.types_used.back().arguments;
  if (has_matrices(spec)) {
    text.constants.push_back(
        integer_constant("kSections", spec.sections,
                         spec.is_interleaved ? "parts, whose rows alternate" : "stacked parts"));
    text.constants.push_back(integer_constant("kSectionRows", spec.section_rows, "rows of each"));
  }
  if (finds_scales) {
    text.constants.push_back(
        float_bits_constant("kEpsilonBits", spec.epsilon, "the smallest amax of a scale"));
    arguments.emplace_back("kEpsilonBits");
  }
  text.constants.push_back(integer_constant(
      "kThreads", spec.threads, finds_scales ? "per CTA" : "per CTA, 64 for each half of a tile"));
  arguments.emplace_back("kThreads");
  set_threads_per_sm(text, spec.threads_per_sm);
  return text;
}

}  // namespace moejit::compiler
