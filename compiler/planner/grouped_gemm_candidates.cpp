// SPDX-License-Identifier: Apache-2.0
#include "compiler/planner/grouped_gemm_candidates.h"

#include "compiler/planner/grouped_gemm.h"
#include "compiler/planner/problem_name.h"
#include "compiler/planner/tile_covers.h"
#include "compiler/support/integer.h"

#include <algorithm>
#include <array>

namespace moejit::compiler {
namespace {

constexpr std::array kStages = {3, 4, 5, 6};
constexpr std::array kBands = {4, 8, 16, 32};
constexpr std::array kSwappedRows = {16, 32, 64};
constexpr std::array kSwappedStages = {6, 8, 10, 12};

// A group with more rows than this many times the mean is not what tiles are chosen for.
constexpr int64_t kManyTimesMean = 4;

// Swapped and other tiles are both tried where the mean of a group's rows is at most this.
constexpr int64_t kMostRowsOfBothKinds = 2 * kMostSwappedRows;

// Returns the covers of a section's columns. Gated tiles have one cover.
std::vector<GroupedGemmSpec> section_covers(const GroupedGemmSpec& chosen) {
  if (tile_sections(chosen) > 1) return {chosen};
  return covers_of(chosen, chosen.section_n);
}

void add_tiles(const GroupedGemmSpec& problem, const GroupRows& rows,
               CandidateList<GroupedGemmSpec>& list) {
  const GroupedGemmSpec chosen = choose_tiles(problem);
  const int64_t many_rows = std::min(rows.most, kManyTimesMean * rows.mean);
  const int64_t most_tiles = ceil_div(many_rows, chosen.tile_rows);
  for (const int32_t stages : kStages)
    for (GroupedGemmSpec spec : section_covers(chosen))
      for (const int32_t band : kBands) {
        // Bands that hold all tiles of a group give one order. More stages than the usual are tried
        // in the usual order alone.
        const bool is_usual = band == kUsualBandTiles;
        if (!is_usual && (most_tiles <= std::min(band, kUsualBandTiles) || stages > chosen.stages))
          continue;
        spec.stages = stages;
        spec.band_tiles = band;
        list.add(spec);
      }
}

void add_swapped_tiles(const GroupedGemmSpec& problem, const GroupRows& rows,
                       CandidateList<GroupedGemmSpec>& list) {
  GroupedGemmSpec spec = choose_swapped_tiles(problem, rows.most);
  for (const int32_t tile_rows : kSwappedRows)
    for (const int32_t stages : kSwappedStages) {
      spec.tile_rows = tile_rows;
      spec.stages = stages;
      list.add(spec);
    }
}

}  // namespace

std::string problem_name(const GroupedGemmSpec& problem, const GroupRows& rows) {
  ProblemName name("grouped_gemm");
  name.add("operands", to_string(problem.operands));
  name.add("scales", to_string(problem.scales));
  name.add("epilogue", to_string(problem.epilogue));
  if (problem.accumulation != GemmAccumulation::kFp32)
    name.add("accumulation", to_string(problem.accumulation));
  if (problem.bias != GemmBias::kNone) name.add("bias", to_string(problem.bias));
  name.add_unless(false, "interleaved_bias", problem.has_interleaved_bias);
  if (stores_activation(problem)) name.add("activation", to_string(problem.activation));
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
  if (spec.is_swapped) return {{"tile_rows", spec.tile_rows}, {"stages", spec.stages}};
  return {{"wide_tiles", spec.wide_tiles},
          {"narrow_tiles", spec.narrow_tiles},
          {"stages", spec.stages},
          {"band_tiles", spec.band_tiles}};
}

std::vector<Candidate<GroupedGemmSpec>> grouped_gemm_candidates(const GroupedGemmSpec& problem,
                                                                const GroupRows& rows) {
  CandidateList<GroupedGemmSpec> list;
  list.add(choose_spec(problem, rows));
  const bool is_swapped = may_be_swapped(problem) && rows.mean <= kMostRowsOfBothKinds;
  if (is_swapped) add_swapped_tiles(problem, rows, list);
  if (!is_swapped || rows.mean > kMostSwappedRows / 2) add_tiles(problem, rows, list);
  return std::move(list).take();
}

}  // namespace moejit::compiler
