// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace moejit::compiler {

// Puts scales of groups of 32 or 16 in the order in which Blackwell's GEMMs read them, expert by
// expert. Zeros fill each up to tiles of 128 rows (or columns) by 4 scales.
struct SwizzleScalesSpec {
  bool of_columns = false;    // whether a scale belongs to tokens of a column, not to columns
  int32_t group = 32;         // elements that share a scale: 32 (E8M0) or 16 (E4M3)
  int32_t local_experts = 0;  // groups of rows
  int32_t columns = 0;        // of the rows that were cast, a multiple of 16
  bool operator==(const SwizzleScalesSpec&) const = default;
};

std::string to_string(const SwizzleScalesSpec& spec);

}  // namespace moejit::compiler
