// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/activation.h"
#include "compiler/dtype.h"

#include <cstdint>
#include <variant>

namespace moejit::compiler {

// A spec holds every compile-time choice of one kernel: it alone decides the emitted text. Device
// skeletons and stages of the same names live in templates/moejit_device.

struct RouteSpec {
  int32_t local_experts = 0;
  int32_t top_k = 0;
  int32_t splits_alignment = 0;
  bool has_colwise_offs = false;  // also where groups of columns start, multiples of 128
  int32_t warps = 0;              // of a CTA
  bool operator==(const RouteSpec&) const = default;
};

enum class LoadStage {
  kRows,               // bf16 rows
  kQuantizedRows,      // e4m3 rows with their compact scales
  kGatedRows,          // bf16 rows of gate and up halves, and the row's probability
  kGatedGradientRows,  // those, and bf16 rows of the activation's gradient
  kUpRows,             // bf16 rows of up alone, and the row's probability
  kUpGradientRows,     // those, and bf16 rows of the activation's gradient
  kCombinedRows,       // fp32 sum of the permuted rows of a token, descending row order
};
enum class TransformStage {
  kIdentity,
  kActivationProbability,  // the activation of what was loaded, times probability
  kActivationBackward,     // from its gradient those of gate, if any, up and probability
};
enum class QuantizeStage {
  kNone,        // one rounding to bf16
  kKeep,        // as it was loaded: bytes and scales, or bf16
  k1x128,       // e4m3, one power-of-two scale per row and 128 columns
  k1x128Pairs,  // likewise, where columns 256i to 256i + 255 share a scale
};
enum class StoreStage {
  kRows,              // row r to row r
  kGroupedRows,       // row r to row r; rows past a group's count get data 0 and scale 0
  kGroupedGatedRows,  // likewise rows of gate and up halves, and a part of a sum of each segment
  kGroupedUpRows,     // likewise rows of up alone
  kPermuted,          // row t to every destination in row_map, and the pad rows
  kRowsAndPermuted,   // both: rows kept un-permuted too
  kRowsAndProbs,      // row r to row r, and the sums of the blocks of their dprobs
};

// A memory-bound chain over rows: load -> transform -> quantize -> store, 8 lanes per 128 columns.
struct RowChainSpec {
  LoadStage load = LoadStage::kRows;
  TransformStage transform = TransformStage::kIdentity;
  QuantizeStage quantize = QuantizeStage::k1x128;
  StoreStage store = StoreStage::kRows;
  int32_t columns = 0;        // of the output row, or of each half of a gated one
  int32_t local_experts = 0;  // where a stage needs groups
  int32_t top_k = 0;          // where a stage needs row_map
  float epsilon = 0.0f;       // smallest amax of the quantize stage
  bool moves_probs = true;    // a permuting store moves probabilities, and zeros rows without one
  bool tells_tokens = false;  // and writes down whose row each permuted one is
  int32_t threads = 128;
  int32_t segments_in_flight = 1;  // 128-column segments that a lane loads before it uses the first
  int32_t dprobs_columns = 0;      // kRowsAndProbs: blocks of a row's dprobs
  bool adds_bias_dprobs = false;   // kRowsAndProbs: and what the biases add to them
  int32_t pitch = 0;               // kGroupedGatedRows: of a half of an output row, if not columns
  bool is_interleaved = false;     // gate and up alternate in bf16 rows that have both
  Activation activation = {};      // of the transform stage
  bool operator==(const RowChainSpec&) const = default;
};

// Whether the transform stage computes an activation or its gradients.
bool has_activation(const RowChainSpec& spec);

// Whether its rows leave in bf16, without scales.
bool stores_bf16(const RowChainSpec& spec);

// Quantises matrices in 128x128 tiles, one CTA per tile. Each matrix is `sections` stacked parts
// of `section_rows` rows; tiles restart at each part (gate and up of w1). `tiles_per_scale`
// neighbours in a row of tiles share their scale. With `writes_colwise` the same launch writes
// bytes and scales transposed too: the operand of dgrad, whose contraction runs along the rows.
// There each of several sections is filled up with zeros to a multiple of 128. Interleaved, the
// rows of the sections alternate in the input, and there alone.
struct TileChainSpec {
  int32_t sections = 1;
  int32_t section_rows = 0;
  int32_t columns = 0;
  int32_t tiles_per_scale = 1;
  float epsilon = 0.0f;
  bool writes_colwise = false;
  bool is_interleaved = false;
  int32_t threads = 256;  // 256 for each tile that shares a scale, where colwise is written
  bool operator==(const TileChainSpec&) const = default;
};

// What the scales of a grouped GEMM belong to. Those of blocks change along the contraction, so
// partial sums are multiplied with them; the others are applied once, at the end.
enum class GemmScales {
  kRowBlock,   // 1x128 scales of A, 128x128 of B whose blocks restart at each section
  kTensor,     // one of A, one of each group's B
  kRowColumn,  // one of each row of A, one of each column of D
  kNone,       // bf16 operands have none
};
// And those of a contraction-grouped one, whose contraction runs along the tokens.
enum class GradientScales {
  kTile,  // 128x128 scales of both operands, as the scaling-aware transpose leaves them
  kRow,   // 1x128 scales of the rows of both, as quantising each on its own leaves them
  kNone,  // bf16 operands have none, and are read as they lie: MN-major, a token a row
};
// Which dimension of an operand is contiguous: the contraction, or the other one.
enum class Major { kK, kMn };
// What becomes of a weight gradient.
enum class GradientOutput {
  kBf16,    // one rounding to bf16
  kF32,     // overwrites
  kF32Add,  // one fp32 addition to what is there
};
// How products are added up along the contraction.
enum class GemmAccumulation {
  kFp32,  // in fp32; of e4m3 products, which the tensor cores add with about 14 bits, partial sums
  kFast,  // e4m3 products by the tensor cores alone, over all of the contraction
};
// What is added to complete sums, before they are rounded or activated.
enum class GemmBias {
  kNone,
  kColumns,          // bias [E, N]: its group's, to every row
  kColumnsTimesProb  // that, times the row's probability
};
enum class GemmEpilogue {
  kStoreBf16,                   // one rounding to bf16
  kActivationQuantize,          // that, then activation * probability to e4m3, 1x128 scales
  kStoreAndActivationQuantize,  // both are stored
};

// D[P, sections * section_n] = A[P, k] * B[e][sections * section_n, k]^T over groups of rows. A CTA
// computes `tile_rows` rows and, of the columns of a section, first `wide_tiles` times
// `wide_columns`, then `narrow_tiles` times `narrow_columns`. Swapped, for groups of few rows: rows
// of B are the m side of WGMMA, and all tiles are narrow. Gated, where the epilogue joins gate and
// up: a tile has the same columns of both sections, and all tiles are narrow.
struct GroupedGemmSpec {
  DType operands = DType::kF8E4M3;  // A and B
  GemmScales scales = GemmScales::kRowBlock;
  GemmAccumulation accumulation = GemmAccumulation::kFp32;
  GemmEpilogue epilogue = GemmEpilogue::kStoreBf16;
  Major b_major = Major::kK;  // kMn, of bf16 alone: B[e] is [k, section_n]
  int32_t local_experts = 0;
  int32_t sections = 1;
  int32_t section_n = 0;
  int32_t k = 0;
  int32_t wide_columns = 192, wide_tiles = 0;
  int32_t narrow_columns = 128, narrow_tiles = 0;
  bool is_swapped = false;
  int32_t tile_rows = 128;           // 16, 32 or 64 where swapped
  float epsilon = 0.0f;              // smallest amax of an epilogue that quantises
  int32_t stages = 4;                // of the shared-memory pipeline, 128 bytes of k each
  int32_t blocks_per_promotion = 1;  // stages that are one partial sum; 1 where gated
  Activation activation = {};        // of an epilogue that activates
  GemmBias bias = GemmBias::kNone;
  bool has_interleaved_bias = false;  // of gate and up, which are apart in D
  bool operator==(const GroupedGemmSpec&) const = default;
};

// Whether all products of an element of D are one sum of the tensor cores, so that nothing is
// promoted: of bf16 operands, and with fast accumulation.
bool is_one_chain(const GroupedGemmSpec& spec);

// What the epilogue stores: D, its activation Q [P, section_n], or both.
bool stores_result(const GroupedGemmSpec& spec);
bool stores_activation(const GroupedGemmSpec& spec);

// Sections of D whose same columns are in one tile: 2 where gated, else 1.
int32_t tile_sections(const GroupedGemmSpec& spec);

// D[e][rows, n] = A[rows, columns of e] * B[n, columns of e]^T over groups of columns: wgrad. Tiles
// as in GroupedGemmSpec, all of 128 rows. A tile leaves in panels of 128 bytes a row,
// `panels_staged` at a time; to add, `panels_loaded` of them bring their old values and L2 adds the
// others.
struct ContractionGroupedGemmSpec {
  GradientScales scales = GradientScales::kTile;
  GradientOutput output = GradientOutput::kF32;
  int32_t local_experts = 0;
  int32_t rows = 0;      // of A, in sections of whole tiles
  int32_t sections = 1;  // whose first section_rows rows are D's, where there are several
  int32_t section_rows = 0;
  bool is_interleaved = false;  // rows of the sections alternate in D
  int32_t n = 0;
  int32_t wide_columns = 192, wide_tiles = 0;
  int32_t narrow_columns = 128, narrow_tiles = 0;
  int32_t stages = 4;
  int32_t panels_staged = 3;
  int32_t panels_loaded = 0;
  bool operator==(const ContractionGroupedGemmSpec&) const = default;
};

DType operands_of(const ContractionGroupedGemmSpec& spec);

// Rows of D in each section.
int32_t result_rows(const ContractionGroupedGemmSpec& spec);

// How the scaling-aware transpose picks the scale of a tile and moves bytes to it.
enum class TransposeRule {
  kIdeal,       // the largest scale of a row that is not all zeros; rounds to nearest even
  kForkCompat,  // the largest of all; drops subnormals and keeps the mantissa of what underflows
};

// Where the rows come from that are transposed.
enum class RowSource {
  kInOrder,      // permuted, with their scales
  kGathered,     // those of tokens, by the permuted rows' row_tokens, which tell zeros too
  kGatheredAll,  // likewise, of a gradient: no row is made zeros
};

// q [P, columns] with compact power-of-two scales to [columns, Pc], each group's rows becoming
// columns that start at a multiple of 128, with one scale for each 128x128 tile: an operand of
// wgrad. No value is quantised twice: bytes are multiplied by powers of two.
struct TransposeSpec {
  DType format = DType::kF8E4M3;  // or kF8E5M2
  TransposeRule rule = TransposeRule::kIdeal;
  RowSource source = RowSource::kInOrder;
  int32_t local_experts = 0;
  int32_t columns = 0;          // of q, a multiple of 16
  bool counts_flushed = false;  // values that were not 0 and became 0
  int32_t threads = 128;        // 64 for each tile that a CTA holds
  bool operator==(const TransposeSpec&) const = default;
};

// The gradient of a gated activation by rows, as a row chain stores it, and it and the activation
// transposed, as TransposeSpec does: from one read of gate, up and the activation's gradient.
struct GatedGradientSpec {
  int32_t local_experts = 0;
  int32_t columns = 0;  // of gate and of up; halves of what is stored are multiples of 128
  float epsilon = 0.0f;
  int32_t threads = 256;
  Activation activation = {};
  bool operator==(const GatedGradientSpec&) const = default;
};

// D[e][columns] = sums over the rows of group e of its columns: gradients of biases. Rows are bf16,
// or e4m3 with compact scales, and come in sections of `pitch` columns, of which D has the first
// `section_columns`. A CTA adds up 128 columns of a group in a fixed tree.
struct ColumnSumsSpec {
  DType input = DType::kF8E4M3;  // or kBF16
  int32_t local_experts = 0;
  int32_t sections = 1;
  int32_t section_columns = 0;
  int32_t pitch = 0;
  bool is_interleaved = false;  // columns of the sections alternate in D
  bool times_prob = false;      // each row counts with its probability
  bool adds = false;            // to what D holds
  int32_t threads = 256;
  bool operator==(const ColumnSumsSpec&) const = default;
};

// d[r] = row r times the bias of its group: what a bias that is multiplied with a probability adds
// to the probability's gradient. Rows as above; a warp adds up each in a fixed tree.
struct RowDotsSpec {
  DType input = DType::kF8E4M3;  // or kBF16
  int32_t local_experts = 0;
  int32_t columns = 0;
  int32_t threads = 256;
  bool operator==(const RowDotsSpec&) const = default;
};

// A list of tensors [rows, columns], each with a scale known beforehand, to FP8 and to its
// transpose, and their largest magnitudes: delayed scaling. One 128x128 tile a CTA, of any tensor
// of the list.
struct MultiCastTransposeSpec {
  DType input = DType::kBF16;     // or kF32
  DType output = DType::kF8E4M3;  // or kF8E5M2
  int32_t threads = 256;
  bool operator==(const MultiCastTransposeSpec&) const = default;
};

using KernelSpec = std::variant<RouteSpec, RowChainSpec, TileChainSpec, GroupedGemmSpec,
                                ContractionGroupedGemmSpec, TransposeSpec, GatedGradientSpec,
                                MultiCastTransposeSpec, ColumnSumsSpec, RowDotsSpec>;

}  // namespace moejit::compiler
