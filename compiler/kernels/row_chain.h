// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/activation.h"
#include "compiler/dtype.h"
#include "compiler/kernels/amax_columns.h"

#include <cstdint>
#include <string>
#include <string_view>

namespace moejit::compiler {

enum class LoadStage {
  kRows,               // bf16 rows
  kQuantizedRows,      // e4m3 rows with their compact scales
  kTwoLevelRows,       // rows of e2m1 codes, two to a byte, with an e4m3 scale for 16 columns
  kMatrixRows,         // bf16 rows of matrices, whose sections' rows may alternate
  kGatedRows,          // bf16 rows with halves of gate and up, and the row's probability
  kGatedGradientRows,  // kGatedRows, and bf16 rows of the activation's gradient
  kUpRows,             // bf16 rows of up alone, and the row's probability
  kUpGradientRows,     // kUpRows, and bf16 rows of the activation's gradient
  kCombinedRows,       // fp32 sum of the permuted rows of a token, in descending row order
};
enum class TransformStage {
  kIdentity,
  kActivationProbability,  // the activation of what was loaded, times probability
  kActivationBackward,     // the activation's gradient to gradients of gate, up, probability
};
enum class QuantizeStage {
  kNone,          // one rounding to bf16
  kKeep,          // unchanged: bytes and scales, or bf16
  k1x128,         // e4m3, one power-of-two scale per row and 128 columns
  k1x128Pairs,    // as k1x128, but columns 256i to 256i + 255 share a scale
  k1x128Rounded,  // as k1x128, of values that are rounded to bf16 first
  kExpert,        // rounded to bf16, then cast with the scale of the row's expert, known beforehand
  kAmax,          // rounded to bf16, of which the largest magnitudes of 512 columns are kept
  k1x32,          // rounded to bf16; e4m3, one E8M0 scale per row and 32 columns
  k1x32Values,    // as k1x32, but the values that codes and scales give are stored, in bf16
  kRow,           // rounded to bf16, then e4m3, one power-of-two scale for the whole row
};
enum class StoreStage {
  kRows,              // row r to row r
  kGroupedRows,       // row r to row r; rows past a group's count get data 0 and scale 0
  kGroupedGatedRows,  // kGroupedRows with halves of gate and up, and a partial sum of each segment
  kGroupedUpRows,     // kGroupedRows of up alone, and a partial sum of each segment
  kGroupedDprobs,     // only the partial sum of each segment, of gated or up rows
  kPermuted,          // row t to every destination in row_map; writes the pad rows too
  kRowsAndPermuted,   // kRows and kPermuted
  kRowsAndProbs,      // row r to row r, and the sums of the blocks of its dprobs
};

// Returns whether the stage stores to the destinations in row_map.
constexpr bool is_permuted(StoreStage stage) {
  return stage == StoreStage::kPermuted || stage == StoreStage::kRowsAndPermuted;
}

// A memory-bound chain over rows: load -> transform -> quantize -> store, 8 lanes per 128 columns.
// With kRow some warps hold a whole row, each lane `segments_in_flight` segments of it.
struct RowChainSpec {
  LoadStage load = LoadStage::kRows;
  TransformStage transform = TransformStage::kIdentity;
  QuantizeStage quantize = QuantizeStage::k1x128;
  StoreStage store = StoreStage::kRows;
  int32_t columns = 0;        // of the output row, or of each half of a gated one
  int32_t local_experts = 0;  // if a stage needs groups
  int32_t top_k = 0;          // if a stage needs row_map
  float epsilon = 0.0f;       // smallest amax of the quantize stage
  bool moves_probs = true;    // permuting stores: move probabilities, zero rows without one
  bool tells_tokens = false;  // whether a permuting store writes the token of each permuted row
  int32_t threads = 128;
  int32_t segments_in_flight = 1;  // 128-column segments that a lane loads before it uses the first
  int32_t rows_per_burst = 0;      // permuting stores: rows requested from L2 at once; 0: none
  int32_t dprobs_columns = 0;      // kRowsAndProbs: blocks of a row's dprobs
  bool tells_dprobs = true;  // kGroupedGatedRows, kGroupedUpRows: whether partial sums are stored
  bool adds_bias_dprobs = false;  // kRowsAndProbs: whether the biases' part is added to dprobs
  int32_t sections = 1;           // kMatrixRows: equal parts of a matrix's rows
  int32_t section_rows = 0;       // kMatrixRows: rows of each
  int32_t pitch = 0;  // kGroupedGatedRows: columns of a half of an output row; 0: `columns`
  bool is_interleaved = false;    // whether gate and up alternate in bf16 rows that have both
  DType format = DType::kF8E4M3;  // of what kExpert casts: or kF8E5M2
  Activation activation = {};     // of the transform stage
  DType probs = DType::kF32;      // of the moved topk_probs, or of dprobs; kF32 or kBF16
  int32_t threads_per_sm = 0;     // that the compiler leaves registers for; 0: the load stage says
  AmaxColumns amax = {};          // kExpert: the columns of a state that record largest magnitudes
  bool overlaps = false;          // see LaunchShape
  bool operator==(const RowChainSpec&) const = default;
};

// Returns whether the transform stage computes an activation or its gradients.
bool has_activation(const RowChainSpec& spec);

// Returns whether the caller's probabilities, or their gradients, are bf16.
bool has_bf16_probs(const RowChainSpec& spec);

// Returns whether the input rows are permuted rows of the groups, at most P, rather than tokens.
bool walks_permuted_rows(const RowChainSpec& spec);

// Returns whether a row has one scale, so that some warps hold all of it.
bool has_row_scale(const RowChainSpec& spec);

// Returns how many warps hold a row of a chain in which it has one scale.
int32_t row_warps(const RowChainSpec& spec);

// Both return the chain with rows of one scale and the usual number of segments in flight, or at
// least `segments`. The number is raised until no row needs more warps than a CTA may have. CTAs
// hold as many rows as fit into 256 threads, or one. Other chains stay as they are.
RowChainSpec with_whole_rows(RowChainSpec spec);
RowChainSpec with_whole_rows(RowChainSpec spec, int32_t segments);

// Returns whether the stored rows are bf16, without scales.
bool stores_bf16(const RowChainSpec& spec);

// Returns the bytes of a row of elements that kRows, kQuantizedRows or kTwoLevelRows loads, without
// its scales.
int64_t input_row_bytes(const RowChainSpec& spec);

// Returns how many magnitudes a row of so many columns, or of halves of so many, has in kAmax.
int64_t magnitudes_of_row(int64_t columns);

std::string_view to_string(LoadStage stage);
std::string_view to_string(TransformStage stage);
std::string_view to_string(QuantizeStage stage);
std::string_view to_string(StoreStage stage);

std::string to_string(const RowChainSpec& spec);

// Returns how many CTAs have work in a chain over `rows` rows.
int64_t busy_ctas(const RowChainSpec& spec, int64_t rows);

// Returns a chain in words, for the first line of its text: what it loads, computes, casts to and
// stores.
std::string summary_of(const RowChainSpec& spec);

}  // namespace moejit::compiler
