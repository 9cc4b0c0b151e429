// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/activation.h"
#include "compiler/dtype.h"

#include <cstdint>
#include <string>
#include <string_view>

namespace moejit::compiler {

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
  kGroupedDprobs,     // of either the part of a sum of each segment alone
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
  int32_t rows_per_burst = 0;      // permuting stores: that L2 is asked for at once, ahead; 0: none
  int32_t dprobs_columns = 0;      // kRowsAndProbs: blocks of a row's dprobs
  bool tells_dprobs = true;        // kGroupedGatedRows, kGroupedUpRows: and a part of a sum
  bool adds_bias_dprobs = false;   // kRowsAndProbs: and what the biases add to them
  int32_t pitch = 0;               // kGroupedGatedRows: of a half of an output row, if not columns
  bool is_interleaved = false;     // gate and up alternate in bf16 rows that have both
  Activation activation = {};      // of the transform stage
  DType probs = DType::kF32;       // of topk_probs that a store moves, or dprobs; or kBF16
  bool operator==(const RowChainSpec&) const = default;
};

// Whether the transform stage computes an activation or its gradients.
bool has_activation(const RowChainSpec& spec);

// Whether its probabilities, or their gradients, are bf16 in the caller's memory.
bool has_bf16_probs(const RowChainSpec& spec);

// Returns whether its input rows are those of the groups, P at most, rather than tokens.
bool walks_permuted_rows(const RowChainSpec& spec);

// Whether its rows leave in bf16, without scales.
bool stores_bf16(const RowChainSpec& spec);

std::string_view to_string(LoadStage stage);
std::string_view to_string(TransformStage stage);
std::string_view to_string(QuantizeStage stage);
std::string_view to_string(StoreStage stage);

std::string to_string(const RowChainSpec& spec);

// Returns the CTAs that a chain over so many rows gives work to.
int64_t busy_ctas(const RowChainSpec& spec, int64_t rows);

}  // namespace moejit::compiler
