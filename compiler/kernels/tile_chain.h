// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/dtype.h"

#include <cstdint>
#include <string>

namespace moejit::compiler {

// Quantizes matrices in 128x128 tiles, one CTA per tile. Each matrix is `sections` stacked parts
// of `section_rows` rows; tiles restart at each part (gate and up of w1). `tiles_per_scale`
// neighbors in a row of tiles share their scale. With `writes_colwise` the same launch writes
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

std::string to_string(const TileChainSpec& spec);

// Returns the CTAs that so many matrices give work to.
int64_t busy_ctas(const TileChainSpec& spec, int64_t matrices);

}  // namespace moejit::compiler
