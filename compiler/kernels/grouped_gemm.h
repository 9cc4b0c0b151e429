// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/activation.h"
#include "compiler/dtype.h"

#include <cstdint>
#include <string>
#include <string_view>

namespace moejit::compiler {

// What the scales of a grouped GEMM belong to. Those of blocks change along the contraction, so
// partial sums are multiplied with them; the others are applied once, at the end.
enum class GemmScales {
  kRowBlock,   // 1x128 scales of A, 128x128 of B whose blocks restart at each section
  kTensor,     // one of each group's A, one of its B
  kRowColumn,  // one of each row of A, one of each column of D
  kNone,       // bf16 operands have none
};
// Which dimension of an operand is contiguous: the contraction, or the other one.
enum class Major { kK, kMn };
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
  float epsilon = 0.0f;              // smallest amax of an epilogue that quantizes
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

std::string_view to_string(GemmScales scales);
std::string_view to_string(GemmAccumulation accumulation);
std::string_view to_string(GemmEpilogue epilogue);
std::string_view to_string(GemmBias bias);
std::string_view to_string(Major major);

std::string to_string(const GroupedGemmSpec& spec);

// Returns the CTAs that so many permuted rows, pad rows among them, in so many groups give work to.
int64_t busy_ctas(const GroupedGemmSpec& spec, int64_t rows, int64_t groups);

}  // namespace moejit::compiler
