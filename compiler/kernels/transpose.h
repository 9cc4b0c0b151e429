// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/dtype.h"

#include <cstdint>
#include <string>
#include <string_view>

namespace moejit::compiler {

struct ParamRecord;

// How the scaling-aware transpose chooses the scale of a tile and adapts bytes to it.
enum class TransposeRule {
  kIdeal,       // the largest scale of a row that is not all zeros; rounds to nearest even
  kForkCompat,  // the largest scale of all rows; drops subnormals, keeps the mantissa of values
                // that underflow
  kKeepBytes,   // none: rows of a group have one scale, which the operand keeps
};

// Where the transposed rows come from.
enum class RowSource {
  kInOrder,      // permuted rows, with their scales
  kGathered,     // tokens' rows, by row_tokens of the permuted rows, which also marks rows of zeros
  kGatheredAll,  // as kGathered, for a gradient: no row is made zeros
};

// Turns q [P, columns] with compact power-of-two scales into [columns, C], an operand of wgrad with
// one scale for each 128x128 tile. The rows of each group become columns that start at a multiple
// of 128. No value is quantized twice: bytes are multiplied by powers of two.
struct TransposeSpec {
  DType format = DType::kF8E4M3;  // or kF8E5M2
  TransposeRule rule = TransposeRule::kIdeal;
  RowSource source = RowSource::kInOrder;
  int32_t local_experts = 0;
  int32_t columns = 0;          // of q, a multiple of 16
  bool counts_flushed = false;  // whether it counts values that were not 0 and became 0
  int32_t threads = 128;        // 64 for each tile that a CTA holds
  int32_t threads_per_sm = 0;   // that the compiler leaves registers for; 0: the skeleton says
  bool operator==(const TransposeSpec&) const = default;
};

std::string_view to_string(TransposeRule rule);
std::string_view to_string(RowSource source);
// Returns the template type of a source, such as GatheredRows<kColumns> for "Rows" and "kColumns".
std::string source_type(RowSource source, std::string_view rows, std::string_view width);

std::string to_string(const TransposeSpec& spec);

// Returns how many CTAs have work in a transpose into `output_columns` columns, a multiple of 128.
int64_t busy_ctas(const TransposeSpec& spec, int64_t output_columns);

// Returns the record of params/transpose_params.h, which transposes and casts by columns share.
const ParamRecord& transpose_record();

// Turns bf16 rows [P, columns] into [columns, C], an operand of wgrad in e4m3 with a power-of-two
// scale for 128 tokens of each column. The rows of each group become columns that start at a
// multiple of 128, where its blocks start too.
struct ColumnCastSpec {
  RowSource source = RowSource::kInOrder;
  int32_t local_experts = 0;
  int32_t columns = 0;         // of a row, a multiple of 16
  float epsilon = 0.0f;        // smallest amax that a scale is computed for
  int32_t threads = 128;       // 64 for each half of a tile that a CTA holds
  int32_t threads_per_sm = 0;  // that the compiler leaves registers for; 0: the skeleton says
  bool operator==(const ColumnCastSpec&) const = default;
};

std::string to_string(const ColumnCastSpec& spec);

// Returns how many CTAs have work in a cast into `output_columns` columns, a multiple of 128.
int64_t busy_ctas(const ColumnCastSpec& spec, int64_t output_columns);

}  // namespace moejit::compiler
