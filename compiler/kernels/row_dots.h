// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/dtype.h"

#include <cstdint>
#include <string>

namespace moejit::compiler {

// d[r] = row r times the bias of its group: what a bias that is multiplied with a probability adds
// to the probability's gradient. Rows are those of ColumnSumsSpec; a warp adds up each in a fixed
// tree.
struct RowDotsSpec {
  DType input = DType::kF8E4M3;  // or kBF16
  int32_t local_experts = 0;
  int32_t columns = 0;
  int32_t threads = 256;
  bool operator==(const RowDotsSpec&) const = default;
};

std::string to_string(const RowDotsSpec& spec);

}  // namespace moejit::compiler
