// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/dtype.h"

#include <cstdint>
#include <string>
#include <string_view>

namespace moejit::compiler {

// What the scales of a contraction-grouped GEMM belong to; its contraction runs along the tokens.
enum class GradientScales {
  kTile,  // 128x128 scales of both operands, as the scaling-aware transpose leaves them
  kRow,   // 1x128 scales of the rows of both, as quantizing each on its own leaves them
  kNone,  // bf16 operands have none, and are read as they lie: MN-major, a token a row
};
// What becomes of a weight gradient.
enum class GradientOutput {
  kBf16,    // one rounding to bf16
  kF32,     // overwrites
  kF32Add,  // one fp32 addition to what is there
};

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

std::string_view to_string(GradientScales scales);
std::string_view to_string(GradientOutput output);

std::string to_string(const ContractionGroupedGemmSpec& spec);

// Returns the CTAs that have work, whatever the groups hold.
int64_t busy_ctas(const ContractionGroupedGemmSpec& spec);

}  // namespace moejit::compiler
