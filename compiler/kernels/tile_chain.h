// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/dtype.h"
#include "compiler/kernels/amax_columns.h"

#include <cstdint>
#include <string>

namespace moejit::compiler {

// Quantizes matrices in 128x128 tiles, one CTA per tile. Each matrix is `sections` stacked parts of
// `section_rows` rows; tiles restart at each part (gate and up of w1). `tiles_per_scale` neighbors
// in a row of tiles share their scale, and one CTA. With `writes_colwise` the same launch also
// writes bytes and scales transposed: the operand of dgrad, whose contraction runs along the rows.
// There zeros fill up each of several sections to a multiple of 128. With `is_interleaved` the rows
// of the sections alternate in the input, but not in the outputs. With `is_separate` each of two
// sections is an input of its own. With `has_expert_scale` a matrix
// has one scale, which is known beforehand.
struct TileChainSpec {
  int32_t sections = 1;
  int32_t section_rows = 0;
  int32_t columns = 0;
  int32_t tiles_per_scale = 1;
  float epsilon = 0.0f;
  bool writes_rows = true;  // or, with writes_colwise, the transposes alone
  bool writes_colwise = false;
  bool is_interleaved = false;
  bool is_separate = false;
  bool has_expert_scale = false;
  AmaxColumns amax = {};  // of has_expert_scale: the columns that record largest magnitudes
  int32_t threads = 256;  // with writes_colwise: 256 for each tile that shares a scale
  bool operator==(const TileChainSpec&) const = default;
};

std::string to_string(const TileChainSpec& spec);

// Returns how many CTAs have work for `matrices` matrices.
int64_t busy_ctas(const TileChainSpec& spec, int64_t matrices);

}  // namespace moejit::compiler
