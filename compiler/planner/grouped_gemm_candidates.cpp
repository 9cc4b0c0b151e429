// SPDX-License-Identifier: Apache-2.0
#include "compiler/planner/candidates.h"
#include "compiler/planner/grouped_gemm.h"
#include "compiler/support/integer.h"

#include <algorithm>
#include <array>
#include <fmt/core.h>

namespace moejit::compiler {
namespace {

constexpr std::array kRowBands = {4, 8, 16, 32};
constexpr std::array kFewerSwappedStages = {10, 8, 6};
constexpr int32_t kFewerSharingStages = 4;  // of two CTAs that share an SM

// Clusters are tried where a group has so many rows in the mean, by the class that names a problem.
constexpr int64_t kLeastTriedClusterRows = 512;

// Swapped and other tiles are both tried where the mean of a group's rows is at most this.
constexpr int64_t kMostRowsOfBothKinds = 4 * kMostSwappedRows;

// Returns the covers of a section's columns. Gated tiles have one cover.
std::vector<GroupedGemmSpec> section_covers(const GroupedGemmSpec& chosen) {
  if (tile_sections(chosen) > 1) return {chosen};
  return covers_of(chosen, chosen.section_n);
}

// Returns whether a band is worth a try: bands that hold all tiles of a group give one order.
bool is_order(int32_t band, int64_t most_tiles) {
  return band == kUsualBandTiles || most_tiles > std::min(band, kUsualBandTiles);
}

// Adds the tiles of a section in all orders.
void add_orders(GroupedGemmSpec spec, int64_t most_tiles, CandidateList<GroupedGemmSpec>& list) {
  for (const int32_t band : kRowBands) {
    if (!is_order(band, most_tiles)) continue;
    spec.band_tiles = band;
    list.add(spec);
  }
}

// Adds the widest tiles, single and in clusters; in all orders if they are the usual choice.
void add_widest(const GroupedGemmSpec& chosen, const GroupedGemmSpec& usual, const GroupRows& rows,
                int64_t most_tiles, CandidateList<GroupedGemmSpec>& list) {
  if (!may_be_widest(chosen)) return;
  if (usual.wide_columns == kWidestColumns) add_orders(usual, most_tiles, list);
  GroupedGemmSpec spec = with_widest_tiles(chosen);
  list.add(spec);
  if (rows_class(std::max<int64_t>(rows.mean, 1)) < kLeastTriedClusterRows) return;
  if (!gains_by_clusters(spec)) return;
  spec.cluster_ctas = 2;
  list.add(spec);
}

// Adds clusters of two CTAs where most groups have several row tiles. With an odd number of them,
// one CTA has nothing to do in the last step. Fewer stages are tried only in the usual order.
void add_clusters(const GroupedGemmSpec& chosen, const GroupRows& rows, int64_t most_tiles,
                  CandidateList<GroupedGemmSpec>& list) {
  if (rows_class(std::max<int64_t>(rows.mean, 1)) < kLeastTriedClusterRows) return;
  for (GroupedGemmSpec spec : section_covers(chosen)) {
    if (!gains_by_clusters(spec)) continue;
    spec.cluster_ctas = 2;
    add_orders(spec, most_tiles, list);
  }
  if (!gains_by_clusters(chosen)) return;
  GroupedGemmSpec fewer_stages = chosen;
  fewer_stages.cluster_ctas = 2;
  fewer_stages.stages = chosen.stages - 1;
  list.add(fewer_stages);
}

// Adds clusters of two CTAs that share A where most groups have few row tiles: nobody shares B.
void add_shared_a(const GroupedGemmSpec& chosen, const GroupRows& rows,
                  CandidateList<GroupedGemmSpec>& list) {
  if (rows_class(std::max<int64_t>(rows.mean, 1)) >= kLeastTriedClusterRows) return;
  for (const GroupedGemmSpec& spec : section_covers(chosen))
    if (may_share_a(spec)) list.add(with_shared_a(spec));
}

void add_tiles(const GroupedGemmSpec& problem, const GroupRows& rows,
               CandidateList<GroupedGemmSpec>& list) {
  const GroupedGemmSpec chosen = choose_tiles(problem);
  const int64_t many_rows = std::min(rows.most, kManyTimesMean * rows.mean);
  const int64_t most_tiles = ceil_div(many_rows, chosen.tile_rows);
  GroupedGemmSpec fewer_stages = chosen;
  fewer_stages.stages = chosen.stages - 1;
  add_orders(fewer_stages, most_tiles, list);
  for (const GroupedGemmSpec& cover : section_covers(chosen)) add_orders(cover, most_tiles, list);
  add_clusters(chosen, rows, most_tiles, list);
  add_shared_a(chosen, rows, list);
  add_widest(chosen, choose_spec(problem, rows), rows, most_tiles, list);
  // Only narrow tiles leave room for more stages. These are tried only in the usual order.
  for (const int32_t more : {1, 2})
    for (GroupedGemmSpec cover : section_covers(chosen)) {
      cover.stages = chosen.stages + more;
      list.add(cover);
    }
}

void add_swapped_tiles(const GroupedGemmSpec& problem, CandidateList<GroupedGemmSpec>& list) {
  for (const int32_t tile_rows : kSwappedTileRows) {
    GroupedGemmSpec spec = choose_swapped_tiles(problem, tile_rows);
    list.add(spec);
    if (may_share_a(spec)) list.add(with_shared_a(spec));
    if (may_share_sm(spec)) {
      GroupedGemmSpec sharing = with_shared_sm(spec);
      list.add(sharing);
      sharing.stages = std::min(sharing.stages, kFewerSharingStages);
      list.add(sharing);
    }
    for (const int32_t stages : kFewerSwappedStages) {
      if (stages >= spec.stages) continue;
      spec.stages = stages;
      list.add(spec);
    }
  }
}

}  // namespace

std::string problem_name(const GroupedGemmSpec& problem, const GroupRows& rows) {
  ProblemName name("grouped_gemm");
  name.add("operands", to_string(problem.operands));
  if (problem.is_a_e5m2) name.add("a", to_string(a_format(problem)));
  if (is_b_packed(problem)) name.add("b", to_string(problem.b_packed));
  if (is_separate(problem)) name.add("separate_rows", problem.separate_rows);
  name.add("scales", to_string(problem.scales));
  name.add("epilogue", to_string(problem.epilogue));
  if (problem.accumulation != GemmAccumulation::kFp32)
    name.add("accumulation", to_string(problem.accumulation));
  if (problem.bias != GemmBias::kNone) name.add("bias", to_string(problem.bias));
  name.add_unless(false, "interleaved_bias", problem.has_interleaved_bias);
  name.add_unless(false, "interleaved", problem.is_interleaved);
  if (stores_activation(problem)) name.add("activation", to_string(problem.activation));
  name.add_unless(false, "rounds_activation", problem.rounds_activation);
  if (problem.b_major != Major::kK) name.add("b_major", to_string(problem.b_major));
  if (problem.scales == GemmScales::kRowBlock)
    name.add("blocks_per_promotion", problem.blocks_per_promotion);
  name.add("local_experts", problem.local_experts);
  name.add("sections", problem.sections);
  name.add("section_n", problem.section_n);
  name.add("k", problem.k);
  name.add("rows", rows_class(std::max<int64_t>(rows.mean, 1)));
  return std::move(name).take();
}

Choices choices_of(const GroupedGemmSpec& spec) {
  Choices choices = {{"stages", spec.stages}};
  if (spec.is_swapped) {
    choices["tile_rows"] = spec.tile_rows;
  } else {
    choices["wide_tiles"] = spec.wide_tiles;
    choices["narrow_tiles"] = spec.narrow_tiles;
    choices["band_tiles"] = spec.band_tiles;
  }
  if (spec.wide_columns != kWideColumns) choices["wide_columns"] = spec.wide_columns;
  if (spec.cluster_ctas > 1) choices["cluster_ctas"] = spec.cluster_ctas;
  if (spec.shares_a) choices["shares_a"] = 1;
  if (spec.ctas_per_sm > 1) choices["ctas_per_sm"] = spec.ctas_per_sm;
  return choices;
}

std::vector<Candidate<GroupedGemmSpec>> grouped_gemm_candidates(const GroupedGemmSpec& problem,
                                                                const GroupRows& rows) {
  CandidateList<GroupedGemmSpec> list;
  list.add(choose_spec(problem, rows));
  const bool is_swapped = are_swapped(problem, rows, kMostRowsOfBothKinds);
  if (is_swapped) add_swapped_tiles(problem, list);
  if (!are_swapped(problem, rows, kMostSwappedRows / 2)) add_tiles(problem, rows, list);
  return std::move(list).take();
}

namespace {

tl::unexpected<Error> refuse(std::string_view part, std::string_view got, std::string_view beside,
                             std::string_view hint) {
  return fail(Stage::kPlan, ErrorCode::kUnsupported,
              fmt::format("grouped GEMM: {} \"{}\" with {}", part, got, beside), std::string(hint));
}

}  // namespace

Result<void> check_grouped_gemm(const GroupedGemmSpec& problem) {
  const std::string_view scales = to_string(problem.scales);
  if (is_b_packed(problem)) return {};  // the format tells all
  if (problem.operands == DType::kBF16 && problem.scales != GemmScales::kNone &&
      problem.scales != GemmScales::kTensor)
    return refuse("scales", scales, "operands in BF16",
                  "bf16 operands have none, or one for each expert: tensor; other scales belong to "
                  "e4m3 operands");
  if (problem.operands != DType::kBF16 && problem.scales == GemmScales::kNone)
    return refuse("scales", scales, fmt::format("operands in {}", to_string(problem.operands)),
                  "without scales operands are bf16");
  const bool has_end_scales =
      problem.scales == GemmScales::kTensor || problem.scales == GemmScales::kRowColumn;
  if (problem.is_a_e5m2 && (problem.operands != DType::kF8E4M3 || !has_end_scales))
    return refuse("a", to_string(a_format(problem)),
                  fmt::format("B in {} and the scales {}", to_string(problem.operands), scales),
                  "gradients in e5m2 are multiplied with e4m3, with the scales tensor or "
                  "row_column");
  if (quantizes_activation(problem) && problem.scales != GemmScales::kRowBlock)
    return refuse(
        "epilogue", to_string(problem.epilogue), fmt::format("the scales {}", scales),
        "it makes an activation with scales of blocks from operands with such; with other "
        "scales D is stored, and the activation is a kernel of its own");
  if (problem.b_major == Major::kMn && problem.operands != DType::kBF16)
    return refuse("b_major", to_string(problem.b_major),
                  fmt::format("operands in {}", to_string(problem.operands)),
                  "WGMMA takes e4m3 along the contraction alone; b_major \"mn\" is for bf16");
  if (problem.accumulation != GemmAccumulation::kFast) return {};
  const std::string_view fast = to_string(problem.accumulation);
  if (problem.scales == GemmScales::kRowBlock)
    return refuse("accumulation", fast, "the scales row_block",
                  "these change along the contraction, so partial sums meet them in fp32");
  if (problem.operands == DType::kBF16)
    return refuse("accumulation", fast, "operands in BF16",
                  "the tensor cores add bf16 products in fp32 at full speed");
  return {};
}

}  // namespace moejit::compiler
