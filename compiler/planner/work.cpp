// SPDX-License-Identifier: Apache-2.0
#include "compiler/compiler.h"

#include <algorithm>

namespace moejit::compiler {
namespace {

int64_t ceil_div(int64_t value, int64_t divisor) { return (value + divisor - 1) / divisor; }

int64_t dprobs_bytes(const RowChainSpec& spec, int64_t routed, int64_t choices) {
  if (spec.store != StoreStage::kRowsAndProbs) return 0;
  const int64_t parts = spec.dprobs_columns + (spec.adds_bias_dprobs ? 1 : 0);
  return 4 * routed * parts + size_bytes(spec.probs) * choices;
}

// Returns the bytes of a stored row, or of each half of a gated one.
int64_t stored_row_bytes(const RowChainSpec& spec) {
  if (spec.store == StoreStage::kGroupedDprobs) return 0;
  return stores_bf16(spec) ? 2 * spec.columns
                           : int64_t{spec.columns} + 4 * ceil_div(spec.columns, 128);
}

Work work(const RouteSpec& spec, const Layer&, const CallRows& rows) {
  const int64_t choices = rows.tokens * spec.top_k;
  return {.min_bytes = (size_bytes(spec.topk_ids) + 4) * choices + 8 * spec.local_experts};
}

// Returns the bytes of a row's parts of the probability's gradient, one for each segment, where
// they are stored.
int64_t dprobs_row_bytes(const RowChainSpec& spec) {
  return spec.tells_dprobs ? 4 * ceil_div(spec.columns, 128) : 0;
}

// Returns the bytes of permuted rows, pad rows among them, and of what goes with them: the row map,
// probabilities in both orders, and whose row each one is.
int64_t permuted_bytes(const RowChainSpec& spec, const CallRows& rows, int64_t choices) {
  const int64_t probs = 4 * rows.padded + size_bytes(spec.probs) * choices;
  return rows.padded * stored_row_bytes(spec) + 4 * choices + (spec.moves_probs ? probs : 0) +
         (spec.tells_tokens ? 4 * rows.routed : 0);
}

Work work(const RowChainSpec& spec, const Layer& layer, const CallRows& rows) {
  const int64_t columns = spec.columns;
  const int64_t row_bytes = stored_row_bytes(spec);
  const int64_t choices = rows.tokens * layer.top_k;
  switch (spec.load) {
    case LoadStage::kCombinedRows:
      // Every routed row once, the map, and the sums; with gradients of probabilities, their
      // blocks and sums.
      return {.min_bytes = 2 * rows.routed * columns + 4 * choices + 2 * rows.tokens * columns +
                           dprobs_bytes(spec, rows.routed, choices)};
    case LoadStage::kGatedRows:
      return {.min_bytes = rows.routed * (2 * 2 * columns + 4) + rows.padded * row_bytes};
    case LoadStage::kGatedGradientRows:
      // Gate, up and the gradient once; both halves, and a partial sum of each segment.
      return {.min_bytes = rows.routed * (3 * 2 * columns + 4) +
                           rows.padded * (2 * row_bytes + dprobs_row_bytes(spec))};
    case LoadStage::kUpRows:
      return {.min_bytes = rows.routed * (2 * columns + 4) + rows.padded * row_bytes};
    case LoadStage::kUpGradientRows:
      return {.min_bytes = rows.routed * (2 * 2 * columns + 4) +
                           rows.padded * (row_bytes + dprobs_row_bytes(spec))};
    case LoadStage::kRows:
    case LoadStage::kQuantizedRows: break;
  }
  const int64_t input_row = spec.load == LoadStage::kRows ? 2 * columns : row_bytes;
  const int64_t permuted = permuted_bytes(spec, rows, choices);
  if (spec.store == StoreStage::kPermuted)
    return {.min_bytes = rows.routed_tokens * input_row + permuted};
  return {.min_bytes = rows.tokens * (input_row + row_bytes) +
                       (spec.store == StoreStage::kRowsAndPermuted ? permuted : 0)};
}

Work work(const TileChainSpec& spec, const Layer& layer, const CallRows&) {
  const int64_t elements =
      int64_t{layer.local_experts} * spec.sections * spec.section_rows * spec.columns;
  const int64_t scales = int64_t{layer.local_experts} * spec.sections *
                         ceil_div(spec.section_rows, 128) * ceil_div(spec.columns, 128);
  const int64_t copies = spec.writes_colwise ? 2 : 1;  // of bytes and scales
  return {.min_bytes = 2 * elements + copies * (elements + 4 * scales)};
}

// How many scales there are of each of A's rows, and of a group's A and B.
struct GemmScaleCounts {
  int64_t of_row = 0;
  int64_t of_group = 0;
};

GemmScaleCounts scale_counts(const GroupedGemmSpec& spec) {
  const int64_t k_blocks = ceil_div(spec.k, 128);
  switch (spec.scales) {
    case GemmScales::kRowBlock:
      return {.of_row = k_blocks,
              .of_group = spec.sections * ceil_div(spec.section_n, 128) * k_blocks};
    case GemmScales::kTensor: return {.of_group = 2};
    case GemmScales::kRowColumn:
      return {.of_row = 1, .of_group = int64_t{spec.sections} * spec.section_n};
    case GemmScales::kNone: break;
  }
  return {};
}

Work work(const GroupedGemmSpec& spec, const Layer&, const CallRows& rows) {
  return count_work(spec, rows);
}

Work work(const ContractionGroupedGemmSpec& spec, const Layer&, const CallRows& rows) {
  return count_work(spec, rows);
}

// Counts every real row in and out, its scales, and a scale for each tile. Gathered, a token that
// has rows is read once.
Work work(const TransposeSpec& spec, const Layer&, const CallRows& rows) {
  const int64_t columns = spec.columns;
  const bool gathers = spec.source != RowSource::kInOrder;
  const int64_t read = gathers ? rows.routed_tokens : rows.routed;
  const int64_t scales = ceil_div(columns, 128) * (read + ceil_div(rows.routed, 128));
  return {.min_bytes =
              (read + rows.routed) * columns + 4 * scales + (gathers ? 4 * rows.routed : 0)};
}

// Counts gate, up and the activation's gradient once; gradients by rows and a partial sum of each
// segment, where they are wanted, and operands with a scale for each tile: three, or the activation
// alone.
Work work(const GatedGradientSpec& spec, const Layer&, const CallRows& rows) {
  const int64_t columns = spec.columns, blocks = ceil_div(columns, 128);
  const int64_t row_bytes =
      (spec.stores_rows ? 2 * (columns + 4 * blocks) : 0) + (spec.tells_dprobs ? 4 * blocks : 0);
  return {.min_bytes = rows.routed * (3 * 2 * columns + 4) + rows.padded * row_bytes +
                       (spec.transposes_gradient ? 3 : 1) *
                           (rows.routed * columns + 4 * blocks * ceil_div(rows.routed, 128))};
}

// Returns the bytes of a row with its scales.
int64_t row_bytes(DType dtype, int64_t columns) {
  return dtype == DType::kBF16 ? 2 * columns : columns + 4 * ceil_div(columns, 128);
}

Work work(const ColumnSumsSpec& spec, const Layer&, const CallRows& rows) {
  const int64_t sums = int64_t{spec.sections} * spec.section_columns;
  const int64_t probs = spec.times_prob ? 4 * rows.routed : 0;
  return {.min_bytes = rows.routed * row_bytes(spec.input, sums) + probs +
                       4 * (spec.adds ? 2 : 1) * spec.local_experts * sums};
}

Work work(const RowDotsSpec& spec, const Layer&, const CallRows& rows) {
  return {.min_bytes = rows.routed * (row_bytes(spec.input, spec.columns) + 4) +
                       2 * int64_t{spec.local_experts} * spec.columns};
}

Work work(const UnpermuteDprobsSpec& spec, const Layer&, const CallRows& rows) {
  const int64_t parts = spec.dprobs_columns + (spec.adds_bias_dprobs ? 1 : 0);
  return {.min_bytes =
              4 * rows.routed * parts + (4 + size_bytes(spec.probs)) * rows.tokens * spec.top_k};
}

// The list of a layer is that of its weights.
Work work(const MultiCastTransposeSpec& spec, const Layer& layer, const CallRows&) {
  const MatrixSize both{(w1_sections(layer) + 1) * int64_t{layer.intermediate}, layer.hidden};
  Work total = count_work(spec, {&both, 1});
  total.min_bytes *= layer.local_experts;
  return total;
}

}  // namespace

Work count_work(const GroupedGemmSpec& spec, const CallRows& rows) {
  const int64_t n = int64_t{spec.sections} * spec.section_n;
  const int64_t k = spec.k;
  const int64_t element = size_bytes(spec.operands);
  const GemmScaleCounts scales = scale_counts(spec);
  // Few rows cannot reach all experts.
  const int64_t experts = std::min<int64_t>(spec.local_experts, rows.routed);
  const int64_t weights = experts * (n * k * element + 4 * scales.of_group);
  Work total{.min_bytes = rows.routed * (k * element + 4 * scales.of_row) + weights,
             .multiply_adds = rows.routed * n * k};
  if (stores_result(spec)) total.min_bytes += 2 * rows.padded * n;
  if (stores_activation(spec)) {
    const int64_t quantized_row = spec.section_n + 4 * ceil_div(spec.section_n, 128);
    total.min_bytes += 4 * rows.routed + rows.padded * quantized_row;
  }
  return total;
}

// Counts operands and their scales once, and D once or, to add, twice.
Work count_work(const ContractionGroupedGemmSpec& spec, const CallRows& rows) {
  const int64_t elements = int64_t{spec.sections} * result_rows(spec) * spec.n;
  const int64_t element_bytes = spec.output == GradientOutput::kBf16 ? 2 : 4;
  const int64_t passes = spec.output == GradientOutput::kF32Add ? 2 : 1;
  const int64_t block_rows = spec.scales == GradientScales::kTile ? 128 : 1;
  const int64_t scale_rows = spec.scales == GradientScales::kNone
                                 ? 0
                                 : ceil_div(spec.rows, block_rows) + ceil_div(spec.n, block_rows);
  return {.min_bytes = rows.routed * (spec.rows + spec.n) * size_bytes(operands_of(spec)) +
                       4 * scale_rows * ceil_div(rows.routed, 128) +
                       spec.local_experts * elements * element_bytes * passes,
          .multiply_adds = rows.routed * elements};
}

// Counts every element once, and its byte in both orientations.
Work count_work(const MultiCastTransposeSpec& spec, std::span<const MatrixSize> sizes) {
  Work total;
  for (const MatrixSize& size : sizes)
    total.min_bytes += size.rows * size.columns * (size_bytes(spec.input) + 2);
  return total;
}

Work count_work(const KernelPlan& kernel, const Layer& layer, const CallRows& rows) {
  return std::visit([&](const auto& spec) { return work(spec, layer, rows); }, kernel.spec);
}

}  // namespace moejit::compiler
