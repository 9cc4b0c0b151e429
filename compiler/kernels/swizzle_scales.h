// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace moejit::compiler {

// Puts E8M0 scales of groups of 32 in the order in which Blackwell's GEMMs read them, expert by
// expert, filled up with zeros to tiles of 128 rows (or columns) by 4 scales.
struct SwizzleScalesSpec {
  bool of_columns = false;    // whether a scale belongs to 32 tokens of a column, not to 32 columns
  int32_t local_experts = 0;  // groups of rows
  int32_t columns = 0;        // of the rows that were cast, a multiple of 16
  bool operator==(const SwizzleScalesSpec&) const = default;
};

std::string to_string(const SwizzleScalesSpec& spec);

}  // namespace moejit::compiler
