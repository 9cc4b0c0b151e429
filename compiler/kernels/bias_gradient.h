// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/dtype.h"

#include <cstdint>
#include <string>

namespace moejit::compiler {

// Sums the rows of each group e into D[e][columns], for the gradients of biases. Rows are bf16, or
// e4m3 with compact scales. A row has sections of `pitch` columns each; D has the first
// `section_columns` of each section. A CTA adds up 128 columns of a group in a fixed tree.
struct ColumnSumsSpec {
  DType input = DType::kF8E4M3;  // or kBF16
  int32_t local_experts = 0;
  int32_t sections = 1;
  int32_t section_columns = 0;
  int32_t pitch = 0;
  bool is_interleaved = false;  // whether columns of the sections alternate in D
  bool times_prob = false;      // whether each row is multiplied by its probability
  bool adds = false;            // whether sums are added to D's old values
  int32_t threads = 256;
  bool operator==(const ColumnSumsSpec&) const = default;
};

std::string to_string(const ColumnSumsSpec& spec);

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
