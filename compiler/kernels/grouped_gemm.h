// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/activation.h"
#include "compiler/dtype.h"
#include "compiler/packed_format.h"

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace moejit::compiler {

// What the scales of a grouped GEMM belong to. Scales of blocks change along the contraction, so
// they multiply partial sums. Other scales are applied once, at the end.
enum class GemmScales {
  kRowBlock,   // blocks: 1x128 of A, 128x128 of B, whose blocks restart at each section
  kTensor,     // one scale for each group's A, one for its B
  kRowColumn,  // one scale for each row of A, one for each column of D
  kSection,    // one scale for each section of a group's B
  kNone,       // no scales: operands are bf16
};
// The contiguous dimension of an operand: the contraction, or the other one.
enum class Major { kK, kMn };
// How products are added up along the contraction.
enum class GemmAccumulation {
  kFp32,  // in fp32; the tensor cores add e4m3 products with about 14 bits, so in partial sums
  kFast,  // e4m3 products by the tensor cores alone, over the whole contraction
};
// The bias added to complete sums, before they are rounded or activated.
enum class GemmBias {
  kNone,
  kColumns,          // bias [E, N]: every row gets its group's bias
  kColumnsTimesProb  // bias [E, N] times the row's probability
};
enum class GemmEpilogue {
  kStoreBf16,                   // one rounding to bf16
  kActivationQuantize,          // stores activation * probability as e4m3 with 1x128 scales
  kStoreAndActivationQuantize,  // stores both
  kActivation,                  // stores activation * probability as bf16; only of swapped tiles
  kStoreAndActivation,          // stores both
};

// What a GEMM does ahead of the wait for the kernel before, if its launch overlaps (LaunchShape).
enum class GemmOverlap {
  kNone,         // it does not overlap
  kBarriers,     // initializes its mbarriers
  kLoadsB,       // and loads B of its first tile; only unclustered swapped tiles
  kFindsGroups,  // and before this finds in the ids of choices how many rows each group has
};

// The widths that wide tiles may have. Sums of the widest tile leave a math warpgroup registers for
// the partial sums of half of the columns. So the halves are multiplied one after the other.
inline constexpr int32_t kWideColumns = 192, kWidestColumns = 256;

// The rows that swapped tiles may have.
inline constexpr std::array<int32_t, 5> kSwappedTileRows = {16, 32, 64, 96, 128};

// Row tiles in a band unless something else is chosen. In a band, tiles go down the rows first.
inline constexpr int32_t kUsualBandTiles = 16;

// D[P, sections * section_n] = A[P, k] * B[e][sections * section_n, k]^T over groups of rows. A CTA
// computes a tile of `tile_rows` rows. The columns of a section are `wide_tiles` tiles of
// `wide_columns`, then `narrow_tiles` tiles of `narrow_columns`. Swapped tiles, for groups of few
// rows: rows of B are the m side of WGMMA, and all tiles are narrow. Gated tiles, if the epilogue
// joins gate and up: a tile has the same columns of both sections, and all tiles are narrow.
// Swapped tiles may be gated, too.
struct GroupedGemmSpec {
  DType operands = DType::kF8E4M3;  // B, and A unless that is e5m2
  bool is_a_e5m2 = false;           // whether A has gradients in e5m2, beside an e4m3 B
  // Whether B is in memory as packed tiles of 4-bit codes, of which operands are made on the way.
  // Only with swapped tiles, an epilogue that stores D alone, and the scales of the format: of
  // blocks beside e4m3, of sections beside bf16.
  PackedFormat b_packed = PackedFormat::kNone;
  // Rows of each of B's two tensors, where gate and up are tensors of their own [E, separate_rows,
  // k]; 0: B is one tensor. Only in bf16. If B is MN-major, each has half of the contraction, in
  // whole steps, of which there are so many rows.
  int32_t separate_rows = 0;
  GemmScales scales = GemmScales::kRowBlock;
  GemmAccumulation accumulation = GemmAccumulation::kFp32;
  GemmEpilogue epilogue = GemmEpilogue::kStoreBf16;
  Major b_major = Major::kK;  // kMn only with bf16: B[e] is [k, section_n]
  int32_t local_experts = 0;
  int32_t sections = 1;
  int32_t section_n = 0;
  int32_t k = 0;
  int32_t wide_columns = kWideColumns, wide_tiles = 0;
  int32_t narrow_columns = 128, narrow_tiles = 0;
  // Whether math warpgroups halve a tile's columns instead of its rows. Then a warp reads B once
  // for 32 rows, where no WGMMA reads it. Only with an epilogue that stores D alone, and narrow
  // tiles of whole 128 columns that are not swapped.
  bool has_column_halves = false;
  bool is_swapped = false;
  int32_t tile_rows = 128;  // one of kSwappedTileRows if swapped
  // CTAs that share an SM, 1 or 2. Two have one math warpgroup each, and tiles of 64 rows of B.
  // Only swapped tiles (may_share_sm()).
  int32_t ctas_per_sm = 1;
  float epsilon = 0.0f;  // smallest amax that a quantizing epilogue computes a scale for
  int32_t stages = 4;    // of the shared-memory pipeline, 128 bytes of k each
  int32_t band_tiles = kUsualBandTiles;
  // CTAs of a cluster, 1 or 2. Two take tiles below each other and read B from L2 once for both.
  // Only with tiles of 128 rows and K-major operands.
  int32_t cluster_ctas = 1;
  bool shares_a = false;  // two take tiles beside each other instead, and read A from L2 once
  int32_t blocks_per_promotion = 1;  // stages in one partial sum; 1 if tiles are halved
  Activation activation = {};        // of an epilogue that activates
  bool rounds_activation = false;    // whether it is rounded to bf16 before it is quantized
  GemmBias bias = GemmBias::kNone;
  bool has_interleaved_bias = false;  // whether gate and up alternate in the bias, but not in D
  // Whether gate and up alternate in B's rows, and in D; only where the epilogue joins them.
  bool is_interleaved = false;
  bool zeros_rest = false;  // whether rows of D behind the last group, up to T, become zeros
  GemmOverlap overlap = GemmOverlap::kNone;
  int32_t top_k = 0;                   // only if groups are found in ids [T, top_k]
  DType topk_ids_dtype = DType::kI32;  // of these
  bool operator==(const GroupedGemmSpec&) const = default;
};

// Returns whether B is two tensors.
bool is_separate(const GroupedGemmSpec& spec);
constexpr bool is_b_packed(const GroupedGemmSpec& spec) {
  return spec.b_packed != PackedFormat::kNone;
}

// Returns how many packed tiles a matrix of B has: row after row.
int64_t packed_tiles(const GroupedGemmSpec& spec);

// Returns the format of A.
DType a_format(const GroupedGemmSpec& spec);

// Returns whether the tensor cores add up all products of an element of D in one sum. With bf16
// operands and with fast accumulation they do, and nothing is promoted, unless packed tiles have
// scales that partial sums meet.
bool is_one_chain(const GroupedGemmSpec& spec);

// Return what the epilogue stores: D, its activation Q [P, section_n], or both; and whether Q has
// codes with scales.
bool stores_result(const GroupedGemmSpec& spec);
bool stores_activation(const GroupedGemmSpec& spec);
bool quantizes_activation(const GroupedGemmSpec& spec);

// Returns how many sections of D have the same columns in one tile: 2 if gated, else 1.
int32_t tile_sections(const GroupedGemmSpec& spec);

// Returns whether tiles are multiplied half after half: gated tiles, and the widest tiles whose
// partial sums are promoted.
bool is_halved(const GroupedGemmSpec& spec);

std::string_view to_string(GemmScales scales);
std::string_view to_string(GemmAccumulation accumulation);
std::string_view to_string(GemmEpilogue epilogue);
std::string_view to_string(GemmBias bias);
std::string_view to_string(GemmOverlap overlap);
std::string_view to_string(Major major);

std::string to_string(const GroupedGemmSpec& spec);

// Return whether CTAs may run in clusters of two that share B, or A. The column tiles of a section
// are even in number where CTAs share A.
bool may_be_clustered(const GroupedGemmSpec& spec);
bool may_share_a(const GroupedGemmSpec& spec);

// Returns whether two CTAs of swapped tiles may share an SM. They may not where B is packed in
// tiles of 128 rows, or where 128 columns of an activation share a scale.
bool may_share_sm(const GroupedGemmSpec& spec);

// Returns the most that the GEMM may do ahead of the wait for the kernel before. `writes_map` says
// whether that kernel writes counts or offs, `has_choices` whether ids tell the same.
GemmOverlap overlap_of(const GroupedGemmSpec& spec, bool writes_map, bool has_choices);

// Returns how many CTAs, in whole clusters, have work for `rows` permuted rows, pad rows included,
// in `groups` groups.
int64_t busy_ctas(const GroupedGemmSpec& spec, int64_t rows, int64_t groups);

}  // namespace moejit::compiler
