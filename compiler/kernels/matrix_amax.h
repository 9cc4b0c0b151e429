// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace moejit::compiler {

// Finds the largest magnitudes of bf16 matrices, of each in pieces that a CTA reads at once.
struct MatrixAmaxSpec {
  int32_t rows = 0;
  int32_t columns = 0;  // a multiple of 16
  int32_t threads = 256;
  bool operator==(const MatrixAmaxSpec&) const = default;
};

// Returns how many pieces a matrix has, and so magnitudes.
int64_t pieces_of(const MatrixAmaxSpec& spec);

std::string to_string(const MatrixAmaxSpec& spec);

}  // namespace moejit::compiler
