// SPDX-License-Identifier: Apache-2.0
#include "compiler/operation/operation_tensors.h"

#include "compiler/planner/planner_steps.h"

#include <fmt/core.h>

namespace moejit::compiler {

IntRange rows_of_sections(int64_t sections) {
  const int64_t step = 16 * sections;
  return {.lowest = step, .highest = 262144 / step * step, .multiple_of = step};
}

bool interleaves_sections(OperationDraft& draft, int32_t sections) {
  const bool is_interleaved =
      draft.choice("gate_up_layout", kGateUpLayouts) == GateUpLayout::kInterleaved;
  if (is_interleaved && sections == 1)
    draft.refuse("gate_up_layout", "with 1 section", "\"concat\"",
                 "rows alternate where there are two sections, gate and up");
  return is_interleaved;
}

int32_t blocks_per_scale(OperationDraft& draft, const Recipe& recipe) {
  const int32_t blocks = draft.int32("scale_sharing_k", kScaleSharingRange, 1);
  if (blocks > 1 && !recipe.shares_scales)
    draft.refuse("scale_sharing_k", fmt::format("with the recipe {}", recipe.name), "1",
                 "blocks share their scales in rows of fp8_flow");
  return blocks;
}

Dim fixed(int64_t size) { return {std::to_string(size), size}; }

Dim starts_of(const Dim& experts) { return {experts.symbol + "+1", experts.value + 1}; }

Dim blocks_of(const Dim& dim) {
  return {fmt::format("ceil({}/128)", dim.symbol), (dim.value + 127) / 128};
}

namespace {

// Returns the scales of so many parts of each block of 128 columns: "4*ceil(columns/128)".
Dim parts_of_blocks(int64_t parts, const Dim& columns) {
  const Dim blocks = blocks_of(columns);
  return {fmt::format("{}*{}", parts, blocks.symbol), parts * blocks.value};
}

// Returns the dimension of so many parts of another one, which they fill up.
Dim filled_parts(const Dim& dim, int64_t size) {
  return {fmt::format("{}/{}", dim.symbol, size), dim.value / size};
}

// Returns codes of a format without their last dimensions.
ScaledTensor scaled(std::string role, std::vector<Dim> dims, const Format& format) {
  const bool is_byte = format.rule == ScaleRule::kE8m0, has_levels = has_two_levels(format);
  return {.role = std::move(role),
          .shape = dims,
          .scales_shape = is_quantized(format) ? std::move(dims) : std::vector<Dim>{},
          .scales = is_byte || has_levels   ? Layout::kScalesGroups
                    : has_row_scale(format) ? Layout::kRowMajor
                                            : Layout::kScalesCompact,
          .dtype = format.dtype,
          .scales_dtype = has_levels ? DType::kF8E4M3
                          : is_byte  ? DType::kF8E8M0
                                     : DType::kF32};
}

}  // namespace

ScaledTensor scaled_rows(std::string role, std::vector<Dim> rows, const Dim& columns,
                         const Format& format) {
  ScaledTensor tensor = scaled(std::move(role), std::move(rows), format);
  tensor.shape.push_back(has_two_levels(format) ? filled_parts(columns, 2) : columns);
  if (is_quantized(format) && !has_row_scale(format))
    tensor.scales_shape.push_back(has_two_levels(format)            ? parts_of_blocks(8, columns)
                                  : format.rule == ScaleRule::kE8m0 ? parts_of_blocks(4, columns)
                                                                    : blocks_of(columns));
  return tensor;
}

ScaledTensor scaled_columns(std::string role, std::vector<Dim> before, const Dim& rows,
                            const Dim& columns, const Format& format) {
  ScaledTensor tensor = scaled(std::move(role), std::move(before), format);
  const auto append = [](std::vector<Dim>& shape, const Dim& first, const Dim& second) {
    shape.insert(shape.end(), {first, second});
  };
  // P of the description, for which the symbol P does not stand: columns lie as far apart in every
  // call.
  const bool are_of_calls = rows.symbol == "P";
  if (has_two_levels(format)) {
    const Dim filled{are_of_calls ? "P'" : rows.symbol, two_level_pitch(rows.value)};
    append(tensor.shape, columns, filled_parts(filled, 2));
    append(tensor.scales_shape, columns, filled_parts(filled, 16));
  } else {
    append(tensor.shape, rows, columns);
    if (!is_quantized(format)) return tensor;
    append(tensor.scales_shape,
           are_of_calls ? Dim{"ceil(P/32)", (rows.value + 31) / 32} : filled_parts(rows, 32),
           columns);
  }
  return tensor;
}

CallBounds ExpertRows::bounds(int32_t alignment) const {
  return bounds_of_rows(p.value, e.value, alignment);
}

Dim ExpertRows::column_blocks() const { return {"C/128", gradient_columns(bounds()) / 128}; }

ExpertRows expert_rows(OperationDraft& draft) {
  ExpertRows rows;
  rows.e = draft.dim("E", "local_experts", kExpertsRange);
  rows.p = draft.dim("P", "max_permuted_rows", kRowsRange);
  rows.columns = draft.dim("columns", "columns", kColumnsRange);
  return rows;
}

ColumnGroups ExpertMatrices::groups() const {
  return {
      .local_experts = int32_of(e), .columns = int32_of(columns), .section_rows = int32_of(rows)};
}

ExpertMatrices expert_matrices(OperationDraft& draft) {
  ExpertMatrices matrices;
  matrices.e = draft.dim("E", "local_experts", kExpertsRange);
  matrices.rows = draft.dim("rows", "rows", rows_of_sections(1));
  matrices.columns = draft.dim("columns", "columns", kColumnsRange);
  return matrices;
}

void read_groups(OperationDraft& draft, const Dim& experts) {
  draft.read("counts", DType::kI32, {experts});
  draft.read("offs", DType::kI32, {starts_of(experts)});
}

void read_column_groups(OperationDraft& draft, const Dim& experts) {
  read_groups(draft, experts);
  draft.read("output_offs", DType::kI32, {starts_of(experts)});
}

}  // namespace moejit::compiler
