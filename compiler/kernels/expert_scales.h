// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/dtype.h"

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

// Finds one scale for each expert from the largest magnitudes of its rows, or of its matrix. It is
// the format's largest number over the largest magnitude (docs/recipes.md). A CTA takes an expert.
struct ExpertScalesSpec {
  DType format = DType::kF8E4M3;  // or kF8E5M2, or kF4E2M1x2 below scales of blocks
  int64_t magnitudes = 0;         // of a row, or of a matrix
  bool has_rows = true;           // whether counts and offs say which rows an expert has
  bool is_power_of_two = false;   // whether scales are rounded down to powers of two
  int32_t threads = 1024;
  bool operator==(const ExpertScalesSpec&) const = default;
};

std::string to_string(const ExpertScalesSpec& spec);

}  // namespace moejit::compiler
