// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/dtype.h"

#include <cstdint>
#include <string>

namespace moejit::compiler {

// d[r] is the product of row r with the bias of its group. It is the part of the probability's
// gradient that comes from a bias multiplied by the probability. Rows are as in ColumnSumsSpec; a
// warp adds up each row in a fixed tree.
struct RowDotsSpec {
  DType input = DType::kF8E4M3;  // or kBF16
  int32_t local_experts = 0;
  int32_t columns = 0;
  int32_t threads = 256;
  bool operator==(const RowDotsSpec&) const = default;
};

std::string to_string(const RowDotsSpec& spec);

}  // namespace moejit::compiler
