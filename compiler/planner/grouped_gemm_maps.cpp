// SPDX-License-Identifier: Apache-2.0
#include "compiler/kernels/threads_per_sm.h"
#include "compiler/planner/grouped_gemm.h"

namespace moejit::compiler {
namespace {

constexpr int32_t kActivationColumns = 128;  // of a panel of Q, one scale block wide
constexpr int32_t kSwappedBoxRows = 16;      // of A; a tile has as many boxes as its rows need
constexpr int32_t kPanelRows = 64;           // rows of a panel of D, which one copy stores
constexpr int32_t kPanelColumns = 64;

// Returns the box of a matrix of operands [rows, k]: `box_rows` rows by one step of the
// contraction.
TensorBox operand_box(DType operands, int64_t rows, int64_t k, int32_t box_rows) {
  const int64_t element = size_bytes(operands);
  return {.dtype = operands,
          .rank = 2,
          .dims = {k, rows, 1},
          .strides_bytes = {k * element, 0},
          .box = {static_cast<int32_t>(kStepBytes / element), box_rows, 1},
          .is_swizzled = true};
}

// Returns the box of B in which 8 rows of gate and 8 of up follow each other, for `columns` columns
// of both. The last dimension counts 8 columns, through all experts: the first two sections of a
// tile's box are gate and up. Where sections follow each other, boxes overlap.
TensorBox gated_box(const GroupedGemmSpec& spec, int32_t columns) {
  constexpr int32_t kBoxRows = 8;
  const int64_t row_bytes = spec.k * size_bytes(spec.operands);
  const int64_t rows = int64_t{spec.local_experts} * spec.sections * spec.section_n;
  const int64_t step = spec.is_interleaved ? spec.sections : 1;  // from a column's row to the next
  const int64_t to_up = spec.is_interleaved ? 1 : spec.section_n;
  const int64_t groups =
      spec.is_interleaved ? rows / (2 * kBoxRows) : (rows - spec.section_n) / kBoxRows;
  return {.dtype = spec.operands,
          .rank = 4,
          .dims = {spec.k, kBoxRows, 2, groups},
          .strides_bytes = {step * row_bytes, to_up * row_bytes, kBoxRows * step * row_bytes},
          .box = {static_cast<int32_t>(kStepBytes / size_bytes(spec.operands)), kBoxRows, 2,
                  columns / kBoxRows},
          .is_swizzled = true};
}

// Returns the box of packed tiles: lines of as many bytes as copies of other operands have, one
// tile at a time.
TensorBox packed_box(const GroupedGemmSpec& spec) {
  const int32_t lines = packed_tile(spec.b_packed).bytes / static_cast<int32_t>(kStepBytes);
  return {.dtype = DType::kU8,
          .rank = 2,
          .dims = {kStepBytes, spec.local_experts * packed_tiles(spec) * lines, 1},
          .strides_bytes = {kStepBytes, 0},
          .box = {kStepBytes, lines, 1}};
}

// Returns the box of D as [rows, sections, section_n], so that a box ends with its section.
TensorBox output_box(const GroupedGemmSpec& spec, int64_t rows) {
  const int64_t section_bytes = spec.section_n * size_bytes(DType::kBF16);
  return {.dtype = DType::kBF16,
          .rank = 3,
          .dims = {spec.section_n, spec.sections, rows},
          .strides_bytes = {section_bytes, spec.sections * section_bytes},
          .box = {kPanelColumns, 1, kPanelRows},
          .is_swizzled = true,
          .call_dim = 2};
}

// Returns the box of Q as [rows, section_n], one scale block wide.
TensorBox activation_box(const GroupedGemmSpec& spec, int64_t rows) {
  return {.dtype = DType::kF8E4M3,
          .rank = 2,
          .dims = {spec.section_n, rows, 1},
          .strides_bytes = {spec.section_n, 0},
          .box = {kActivationColumns, kPanelRows, 1},
          .is_swizzled = true,
          .call_dim = 1};
}

// Returns the box of B, or of gate and of up alike where these are tensors of their own.
TensorBox weights_box(const GroupedGemmSpec& spec) {
  constexpr int32_t kGatedRows = 8;  // of gate, before 8 of up
  const bool is_gated_swapped = spec.is_swapped && tile_sections(spec) > 1;
  const int32_t columns = spec.wide_tiles > 0 ? spec.wide_columns : spec.narrow_columns;
  if (is_b_packed(spec)) return packed_box(spec);
  if (spec.b_major == Major::kMn)
    return mn_major_box(spec.section_n, is_separate(spec) ? spec.separate_rows : spec.k,
                        spec.local_experts);
  if (is_gated_swapped && !is_separate(spec)) return gated_box(spec, columns);
  const int32_t sections = is_separate(spec) ? 1 : spec.sections;
  return operand_box(spec.operands, int64_t{spec.local_experts} * sections * spec.section_n, spec.k,
                     is_gated_swapped ? kGatedRows
                     : spec.shares_a  ? columns
                                      : columns / spec.cluster_ctas);
}

// Returns how many bytes a miss of B brings into L2. Swapped tiles stream B: misses of 128 bytes
// bring its boxes from memory at 4.5 TB/s, misses of 256 at 4.25. Calls of 32 and 64 tokens take 2
// to 4 % less time. Forward calls in bf16 whose groups have two tiles of rows take 0 to 7 % less.
// With one tile they take 1 % less to 2 % more. The one call in FP8 that was measured gained
// nothing (one H200; docs/performance/tried.md).
int32_t l2_promotion_of_b(const GroupedGemmSpec& spec, int64_t mean_rows) {
  constexpr int64_t kLeastRows = 96, kMostRows = 256;
  if (spec.is_swapped) return 128;
  const bool has_two_tiles = mean_rows >= kLeastRows && mean_rows <= kMostRows;
  const bool gains = spec.operands == DType::kBF16 && spec.b_major == Major::kK && has_two_tiles;
  return gains ? 128 : 256;
}

}  // namespace

TensorBox mn_major_box(int64_t elements, int64_t k, int64_t matrices) {
  constexpr int32_t kBoxElements = 64;
  const int64_t row_bytes = elements * size_bytes(DType::kBF16);
  return {.dtype = DType::kBF16,
          .rank = 3,
          .dims = {elements, k, matrices},
          .strides_bytes = {row_bytes, k * row_bytes},
          .box = {kBoxElements, kBoxElements, 1},
          .is_swizzled = true};
}

std::vector<TensorMapPlan> grouped_gemm_tensor_maps(const GroupedGemmSpec& spec, int64_t rows,
                                                    const GemmTensors& tensors, int64_t mean_rows) {
  const int32_t a_box_rows = spec.is_swapped ? kSwappedBoxRows
                             : spec.shares_a ? spec.tile_rows / 2 / spec.cluster_ctas
                                             : spec.tile_rows;
  TensorBox b_box = weights_box(spec);
  b_box.l2_promotion = l2_promotion_of_b(spec, mean_rows);
  std::vector<TensorMapPlan> maps = {
      {"a_map", tensors.a, operand_box(a_format(spec), rows, spec.k, a_box_rows)},
      {"b_map", tensors.b, b_box}};
  maps.front().box.call_dim = 1;  // rows of B are weights
  if (is_separate(spec)) maps.push_back({"b_up_map", tensors.b_up, b_box});
  if (stores_result(spec) && !spec.is_swapped)
    maps.push_back({"d_map", tensors.d, output_box(spec, rows)});
  if (quantizes_activation(spec) && !spec.is_swapped)
    maps.push_back({"q_map", tensors.q, activation_box(spec, rows)});
  return maps;
}

}  // namespace moejit::compiler
