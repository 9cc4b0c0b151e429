// SPDX-License-Identifier: Apache-2.0
#include "compiler/planner/grouped_gemm.h"

#include "compiler/compiler.h"
#include "compiler/launch.h"
#include "compiler/planner/candidates.h"
#include "compiler/planner/planner_steps.h"
#include "compiler/support/integer.h"

#include <algorithm>
#include <fmt/core.h>
#include <tuple>
#include <utility>

namespace moejit::compiler {
namespace {

constexpr int32_t kScaleBlock = 128;
constexpr int64_t kCopiedBytes = 128;  // of a row of A and B in one step of the contraction

bool has_blocks(const GroupedGemmSpec& spec) { return spec.scales == GemmScales::kRowBlock; }

// A contraction of at most this many steps is short: the fixed cost of a tile counts most.
constexpr int64_t kShortSteps = 8;
// Clusters are the usual choice from this length of the contraction and this mean of rows. The
// matrix of an expert must also take about half of an H100's L2 or more.
constexpr int64_t kLeastClusterBytes = int64_t{24} << 20;
constexpr int64_t kLeastClusterK = 4096;
constexpr int64_t kLeastClusterRows = 2048;

// Returns whether one width of tiles is better than two. A short contraction takes 4.7 % less time
// then (N 2048, K 768, on an H100 and an H200; docs/performance.md). With over a sixteenth of the
// columns to spare it does not.
bool wants_one_width(const GroupedGemmSpec& spec, const ColumnTiles& tiles) {
  if (!has_blocks(spec) || tiles.wide == 0 || tiles.narrow == 0) return false;
  const int64_t wide = ceil_div(spec.section_n, spec.wide_columns);
  return spec.k <= kShortSteps * kScaleBlock &&
         wide * spec.wide_columns - spec.section_n <= spec.section_n / 16;
}

// Returns whether two CTAs share B by default. Clusters then take 0 to 19 % less time on an H100, 2
// to 6 % less on an H200. Smaller matrices and shorter contractions gain -2 to 2 %; groups of 512
// rows lose 5 %. (Measured with scales of blocks: docs/performance.md.) The gain comes from fewer
// reads of B. It holds for scales at the end too, which do not change these reads.
bool wants_cluster(const GroupedGemmSpec& spec, const GroupRows& rows) {
  const int64_t matrix_bytes =
      int64_t{spec.sections} * spec.section_n * spec.k * size_bytes(spec.operands);
  return spec.operands == DType::kF8E4M3 && gains_by_clusters(spec) && spec.k >= kLeastClusterK &&
         matrix_bytes >= kLeastClusterBytes &&
         rows_class(std::max<int64_t>(rows.mean, 1)) >= kLeastClusterRows;
}

// The widest tiles are the usual choice from this length of the contraction and this mean of rows.
constexpr int64_t kLeastWidestK = 7168;
constexpr int64_t kLeastWidestRows = 1024;

// Returns whether the widest tiles are the usual choice. They read A and B from L2 once for more
// products, and take longer to start and to end. They take 1 to 7 % less time with contractions of
// 7168 and 14336, -5 to 0 % with 4096, -7 to -2 % with 2048. (Measured on an H100:
// docs/performance.md.)
bool wants_widest(const GroupedGemmSpec& spec, const GroupRows& rows) {
  return may_be_widest(spec) && has_blocks(spec) && spec.section_n % kWidestColumns == 0 &&
         spec.k >= kLeastWidestK && rows_class(std::max<int64_t>(rows.mean, 1)) >= kLeastWidestRows;
}

GroupedGemmSpec choose_gated_tiles(GroupedGemmSpec spec) {
  spec.narrow_columns = kScaleBlock;
  spec.narrow_tiles = (spec.section_n + kScaleBlock - 1) / kScaleBlock;
  return with_stages(spec, spec.stages);
}

std::string gated_tiles_reason(const GroupedGemmSpec& spec) {
  return fmt::format(
      "{} column tiles, each of {} columns of gate and the same of up; {} columns of the last one "
      "are unused; gate and up of an element end in the same thread, so the activation needs no "
      "exchange, and the {} activations that share a scale end in one warp",
      spec.narrow_tiles, spec.narrow_columns,
      spec.narrow_tiles * spec.narrow_columns - spec.section_n, kScaleBlock);
}

std::string column_tiles_reason(const GroupedGemmSpec& spec) {
  const int64_t covered = int64_t{spec.wide_tiles} * spec.wide_columns +
                          int64_t{spec.narrow_tiles} * spec.narrow_columns;
  return fmt::format(
      "{} column tiles of {} and {} of {} for {} columns leave {} unused: wide tiles read the "
      "fewest "
      "bytes for each product, narrow ones leave fewer columns unused at the end; the tiles are "
      "the "
      "same for any number of tokens",
      spec.wide_tiles, spec.wide_columns, spec.narrow_tiles, spec.narrow_columns, spec.section_n,
      covered - spec.section_n);
}

std::string swapped_tiles_reason(const GroupedGemmSpec& spec) {
  return fmt::format(
      "reading the weights is what takes the time, so their rows are the m side of WGMMA, {} to a "
      "tile, and up to {} tokens the n side: {} stages of {} KiB of weights are on their way to "
      "each SM; a token's result does not depend on the n of its tile",
      tile_sections(spec) * spec.narrow_columns, spec.tile_rows, spec.stages * spec.ctas_per_sm,
      tile_sections(spec) * spec.narrow_columns * kCopiedBytes / 1024);
}

std::string swapped_gate_reason(const GroupedGemmSpec& spec) {
  return fmt::format(
      "a tile has {} columns of gate and the same of up, 8 rows of w1 in turn: both of an element "
      "end in one thread, which activates them",
      spec.narrow_columns);
}

std::string packed_reason(const PackedTile& tile) {
  return fmt::format(
      "the weights stay {} in memory, {} bits each; warps that multiply make {} codes of them on "
      "the way to the tensor cores, which is exact",
      tile.title, tile.bytes * 8 / (128.0 * tile.columns), tile.values);
}

std::string accumulation_reason(const GroupedGemmSpec& spec) {
  if (spec.scales == GemmScales::kSection && !is_one_chain(spec))
    return "partial sums of 128 of k, whose weights share a scale in each row, are scaled and "
           "added "
           "in fp32";
  if (spec.operands == DType::kBF16)
    return "the tensor cores add bf16 products in fp32: one chain of them over all of k";
  if (is_one_chain(spec))
    return "one chain of products over all of k: nothing interrupts the tensor cores, which add "
           "e4m3 products with about 14 bits; \"fp32\" accumulation keeps more of them";
  const int32_t length = spec.blocks_per_promotion * kScaleBlock;
  if (!has_blocks(spec))
    return fmt::format(
        "partial sums of {} of k are added in fp32, since the tensor cores add e4m3 products with "
        "about 14 bits",
        length);
  return fmt::format(
      "partial sums of {} of k are scaled and added in fp32, since the tensor cores add e4m3 "
      "products with about 14 bits{}",
      length,
      spec.blocks_per_promotion > 1 ? "; blocks that share their scales are one partial sum" : "");
}

}  // namespace

GroupedGemmSpec begin_spec(GroupedGemmSpec problem) {
  const bool may_join = tile_sections(problem) == 1 && !is_separate(problem) &&
                        problem.scales != GemmScales::kSection;
  if (may_join && (!has_blocks(problem) || problem.section_n % kScaleBlock == 0)) {
    problem.section_n *= problem.sections;
    problem.sections = 1;
  }
  // cuBLASLt and CUTLASS have the same length.
  if (!has_blocks(problem)) problem.blocks_per_promotion = 1;
  return problem;
}

GroupedGemmSpec with_stages(GroupedGemmSpec spec, int32_t most) {
  // Each CTA of an SM takes this much more than it asks for.
  constexpr int32_t kReserved = 1024;
  const int64_t of_cta = (kHopperSharedBytes + kReserved) / spec.ctas_per_sm - kReserved;
  spec.stages = most;
  while (launch_shape(spec).shared_bytes > of_cta) --spec.stages;
  return spec;
}

ColumnTiles choose_column_tiles(int64_t columns) {
  const GroupedGemmSpec kWidths;
  ColumnTiles best;
  auto best_cost = std::tuple(INT64_MAX, INT64_MAX);
  // At most two narrow tiles are tried: three are as wide as two wide ones.
  for (int64_t narrow = 0; narrow < 3; ++narrow) {
    const int64_t left = std::max<int64_t>(0, columns - narrow * kWidths.narrow_columns);
    const int64_t wide = (left + kWidths.wide_columns - 1) / kWidths.wide_columns;
    const int64_t covered = wide * kWidths.wide_columns + narrow * kWidths.narrow_columns;
    const auto cost = std::tuple(covered, wide + narrow);
    if (cost >= best_cost) continue;
    best_cost = cost;
    best = {.wide = static_cast<int32_t>(wide), .narrow = static_cast<int32_t>(narrow)};
  }
  return best;
}

GroupedGemmSpec choose_tiles(GroupedGemmSpec problem) {
  if (tile_sections(problem) > 1) return choose_gated_tiles(problem);
  GroupedGemmSpec spec = begin_spec(std::move(problem));
  const ColumnTiles tiles = choose_column_tiles(spec.section_n);
  spec.wide_tiles = tiles.wide;
  spec.narrow_tiles = tiles.narrow;
  if (wants_one_width(spec, tiles)) {
    spec.wide_tiles = static_cast<int32_t>(ceil_div(spec.section_n, spec.wide_columns));
    spec.narrow_tiles = 0;
  }
  return spec;
}

bool may_be_widest(const GroupedGemmSpec& spec) {
  return !spec.is_swapped && spec.b_major == Major::kK && tile_sections(spec) == 1 &&
         spec.blocks_per_promotion == 1 && spec.section_n >= kWidestColumns;
}

GroupedGemmSpec with_widest_tiles(GroupedGemmSpec spec) {
  const int32_t rest = spec.section_n % kWidestColumns;
  spec.wide_columns = kWidestColumns;
  spec.wide_tiles = spec.section_n / kWidestColumns;
  spec.narrow_tiles = static_cast<int32_t>(ceil_div(rest, spec.narrow_columns));
  return spec;
}

GroupedGemmSpec with_shared_a(GroupedGemmSpec spec) {
  spec.cluster_ctas = 2;
  spec.shares_a = true;
  return spec;
}

bool gains_by_clusters(const GroupedGemmSpec& spec) {
  return may_be_clustered(spec) && (spec.wide_tiles > 0 || tile_sections(spec) > 1);
}

GroupedGemmSpec choose_spec(const GroupedGemmSpec& problem, const GroupRows& rows) {
  if (are_swapped(problem, rows, kMostSwappedRows)) return choose_swapped_spec(problem, rows);
  GroupedGemmSpec spec = choose_tiles(problem);
  if (wants_widest(spec, rows)) spec = with_widest_tiles(spec);
  if (wants_cluster(spec, rows)) spec.cluster_ctas = 2;
  return spec;
}

std::vector<std::string> tile_reasons(const GroupedGemmSpec& problem, const GroupedGemmSpec& spec) {
  std::vector<std::string> reasons;
  if (problem.sections != spec.sections) {
    reasons.push_back(
        fmt::format("the {} sections are one of {} columns: no scale block lies in two of them",
                    problem.sections, spec.section_n));
  }
  reasons.push_back(spec.is_swapped           ? swapped_tiles_reason(spec)
                    : tile_sections(spec) > 1 ? gated_tiles_reason(spec)
                                              : column_tiles_reason(spec));
  if (spec.is_swapped && tile_sections(spec) > 1) reasons.push_back(swapped_gate_reason(spec));
  if (spec.ctas_per_sm > 1)
    reasons.emplace_back(
        "two CTAs share an SM, since tiles are few: smaller ones are divided among SMs more "
        "evenly");
  if (is_halved(spec))
    reasons.emplace_back(
        "a tile's columns are multiplied in two halves, one after the other: beside the sums of "
        "all "
        "columns there are registers for the partial sums of one half");
  if (is_b_packed(spec)) reasons.push_back(packed_reason(packed_tile(spec.b_packed)));
  if (is_separate(spec))
    reasons.emplace_back(
        "gate and up are tensors of their own: each copy of B's rows comes out of one of them");
  if (spec.cluster_ctas > 1) reasons.emplace_back(spec.shares_a ? kSharedAReason : kClusterReason);
  if (spec.b_major == Major::kMn)
    reasons.emplace_back(
        "the contraction runs along B's rows, and WGMMA takes bf16 from columns too: nothing is "
        "transposed");
  reasons.push_back(accumulation_reason(spec));
  if (!has_blocks(spec) && spec.scales != GemmScales::kNone)
    reasons.emplace_back("scales do not change along k, so complete sums meet them, once");
  return reasons;
}

KernelPlan grouped_gemm_kernel(const GroupedGemmSpec& problem, int64_t rows,
                               const GroupRows& groups, const GemmTensors& tensors,
                               const Target& target, const PlanOptions& options) {
  KernelPlan kernel{.problem = problem_name(problem, groups)};
  const GroupedGemmSpec spec = choose_candidate(
      kernel, target, options, [&] { return choose_spec(problem, groups); },
      [&] { return grouped_gemm_candidates(problem, groups); });
  kernel.spec = spec;
  kernel.tensor_maps = grouped_gemm_tensor_maps(spec, rows, tensors, groups.mean);
  kernel.reasons = tile_reasons(problem, spec);
  if (spec.scales == GemmScales::kSection)
    kernel.arguments = {{"b_scale_inv", tensors.b_scale_inv}};
  else if (spec.scales != GemmScales::kNone)
    kernel.arguments = {{"a_scale_inv", tensors.a_scale_inv}, {"b_scale_inv", tensors.b_scale_inv}};
  if (stores_result(spec)) kernel.arguments.push_back({"d", tensors.d});
  if (stores_activation(spec)) {
    kernel.arguments.push_back({"probs", tensors.probs});
    kernel.arguments.push_back({"q", tensors.q});
    if (quantizes_activation(spec))
      kernel.arguments.push_back({"q_scale_inv", tensors.q_scale_inv});
  }
  if (spec.bias != GemmBias::kNone) kernel.arguments.push_back({"bias", tensors.bias});
  if (spec.bias == GemmBias::kColumnsTimesProb)
    kernel.arguments.push_back({"probs", tensors.probs});
  kernel.arguments.push_back({"counts", tensors.counts});
  kernel.arguments.push_back({"offs", tensors.offs});
  if (spec.bias != GemmBias::kNone)
    kernel.reasons.push_back(fmt::format(
        "{} is added to complete sums{}, before they are rounded", tensors.bias,
        spec.bias == GemmBias::kColumnsTimesProb ? ", times the routing probability" : ""));
  kernel.reasons.push_back("group sizes are read on the device; the host never waits for them");
  return kernel;
}

Result<KernelPlan> plan_grouped_gemm(const GroupedGemmSpec& problem, int64_t rows,
                                     const Target& target, const PlanOptions& options) {
  MOEJIT_TRY(check_grouped_gemm(problem));
  const GroupRows groups{
      .mean = ceil_div(rows, problem.local_experts), .most = rows, .total = rows};
  KernelPlan kernel = grouped_gemm_kernel(problem, rows, groups,
                                          {.a = "a",
                                           .b = "b",
                                           .d = "d",
                                           .a_scale_inv = "a_scale_inv",
                                           .b_scale_inv = "b_scale_inv",
                                           .probs = "probs",
                                           .bias = "bias"},
                                          target, options);
  kernel.operation = "grouped_gemm";
  kernel.arguments.push_back({"elapsed", "elapsed"});
  complete_kernel(kernel, bounds_of_rows(rows, problem.local_experts));
  return kernel;
}

}  // namespace moejit::compiler
