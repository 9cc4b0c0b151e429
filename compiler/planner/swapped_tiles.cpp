// SPDX-License-Identifier: Apache-2.0
// Tiles whose m side is rows of B, for groups of few rows.
#include "compiler/launch.h"
#include "compiler/planner/grouped_gemm.h"
#include "compiler/support/integer.h"

#include <algorithm>
#include <utility>

namespace moejit::compiler {
namespace {

constexpr int32_t kMostSwappedStages = 12;
constexpr int32_t kMostQuantizedRows = 96;

// Two CTAs of 128 rows have three stages each. With 96 rows and four stages, fc2 of Mixtral-8x7B in
// bf16 takes 18 % less time for 128 tokens (one H200; docs/performance/tried.md).
constexpr int64_t kMostSharedRows = 96;

// Other tiles multiply no packed weights, and have no such epilogue.
bool must_be_swapped(const GroupedGemmSpec& problem) {
  if (is_b_packed(problem)) return true;
  return stores_activation(problem) &&
         (!quantizes_activation(problem) || problem.bias != GemmBias::kNone ||
          problem.rounds_activation);
}

// Returns whether two CTAs an SM are better than one: where tiles of groups with rows are few. Many
// SMs have one more than others then, or none. One token of gpt-oss-120b in bf16 takes 8 % less
// time so, 8 tokens take 2 % less, one of Qwen3-30B-A3B 1 % less. With more tiles they cost up to
// 0.5 % (one H200; docs/performance/tried.md).
bool wants_shared_sm(const GroupedGemmSpec& spec, const GroupRows& rows) {
  constexpr int64_t kMostTiles = 6 * 132;  // of a whole H200
  const int64_t groups = std::min<int64_t>(spec.local_experts, rows.total);
  return may_share_sm(spec) && spec.operands == DType::kBF16 &&
         groups * spec.sections / tile_sections(spec) * spec.narrow_tiles <= kMostTiles;
}

// Returns the largest group that tiles hold where two CTAs share A. Rows then cost fewer reads, so
// tiles have more of them: with skewed routing fewer groups need a second tile.
int64_t largest_group_of_shared_a(const GroupedGemmSpec& problem, const GroupRows& rows) {
  constexpr int64_t kManyTimesMeanOfSharedA = 8, kLeast = 64;
  if (stores_activation(problem)) return rows.most;
  return std::min(rows.most, std::max(kLeast, kManyTimesMeanOfSharedA * rows.mean));
}

// Returns whether two CTAs share A by default. With 8 to 32 rows in the mean, forward calls in bf16
// then take up to 4 % less time, and 0.3 % more at worst. With fewer rows they take 0 to 2 % more.
// In FP8 it gains nothing. (Three layers, one H200; docs/performance/tried.md.)
bool wants_shared_a(const GroupedGemmSpec& spec, const GroupRows& rows) {
  constexpr int64_t kLeastMean = 8;
  return spec.operands == DType::kBF16 && may_share_a(spec) && rows.mean >= kLeastMean;
}

}  // namespace

bool may_be_swapped(const GroupedGemmSpec& problem) {
  return problem.b_major == Major::kK &&
         (!quantizes_activation(problem) || problem.blocks_per_promotion == 1);
}

bool are_swapped(const GroupedGemmSpec& problem, const GroupRows& rows, int64_t most_rows) {
  return must_be_swapped(problem) || (may_be_swapped(problem) && rows.mean <= most_rows);
}

GroupedGemmSpec with_shared_sm(GroupedGemmSpec spec) {
  spec.ctas_per_sm = 2;
  spec.narrow_columns = 64 / tile_sections(spec);
  spec.narrow_tiles = static_cast<int32_t>(ceil_div(spec.section_n, spec.narrow_columns));
  return with_stages(spec, kMostSwappedStages);
}

GroupedGemmSpec choose_swapped_tiles(GroupedGemmSpec problem, int64_t largest_group) {
  GroupedGemmSpec spec = begin_spec(std::move(problem));
  spec.is_swapped = true;
  const auto rows = std::ranges::lower_bound(kSwappedTileRows, largest_group);
  spec.tile_rows = rows == kSwappedTileRows.end() ? kSwappedTileRows.back() : *rows;
  if (quantizes_activation(spec)) {
    // 256 rows of B leave registers for the sums of no more rows of A.
    spec.tile_rows = std::min(spec.tile_rows, kMostQuantizedRows);
  } else {
    spec.narrow_columns /= tile_sections(spec);
  }
  spec.narrow_tiles = (spec.section_n + spec.narrow_columns - 1) / spec.narrow_columns;
  return with_stages(spec, kMostSwappedStages);
}

int64_t usual_largest_group(const GroupedGemmSpec& problem, const GroupRows& rows) {
  // 32 tokens of Qwen3-30B-A3B then take 1 % less time with uniform routing, and 4 % less with
  // skewed routing. Groups of more than two such tiles lose, and FP8 gains nothing (one H200;
  // docs/performance/tried.md).
  constexpr int64_t kFewRows = 16, kMostMean = 2;
  const bool are_few = rows.mean <= kMostMean && rows.most <= 2 * kFewRows;
  if (problem.operands == DType::kBF16 && are_few) return kFewRows;
  // Fewer than 64 rows save nothing. With skewed routing, 128 rows instead of 64 spare a rank of
  // DeepSeek-V3 5 % where the mean is 32; with uniform routing they cost nothing.
  constexpr int64_t kLeast = 64;
  return std::min(rows.most, std::max(kLeast, kManyTimesMean * rows.mean));
}

GroupedGemmSpec choose_swapped_spec(const GroupedGemmSpec& problem, const GroupRows& rows) {
  const GroupedGemmSpec shared =
      choose_swapped_tiles(problem, largest_group_of_shared_a(problem, rows));
  if (wants_shared_a(shared, rows)) return with_shared_a(shared);
  const int64_t largest_group = usual_largest_group(problem, rows);
  const GroupedGemmSpec spec = choose_swapped_tiles(problem, largest_group);
  if (!wants_shared_sm(spec, rows)) return spec;
  return with_shared_sm(choose_swapped_tiles(problem, std::min(largest_group, kMostSharedRows)));
}

}  // namespace moejit::compiler
