// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/reference/number_formats.h"
#include "runtime/reference/quantize.h"

#include <cstdint>
#include <span>
#include <vector>

namespace moejit::reference {

// kIdeal: the tile's scale is the largest of the rows whose segment is not all zeros (of all rows
// if every segment is). Values are rounded to nearest even. kForkCompat: the tile's scale is the
// largest of all rows. A value's exponent field is lowered and its mantissa field kept, whatever
// value results.
enum class TransposeRule { kIdeal, kForkCompat };

// Returns the byte for a value whose scale gets 2^shift times larger, shift >= 0.
std::uint8_t shifted_byte(std::uint8_t byte, int shift, Fp8Format format, TransposeRule rule);

// Group e has the rows offs[e] to offs[e] + counts[e] - 1, and the output columns from
// output_offs[e] on.
struct TransposeGroups {
  std::vector<std::int32_t> counts, offs, output_offs;
};

// A transposed matrix: bytes [cols, output_cols], scale_inv [ceil(cols / 128), output_cols / 128].
struct Transposed {
  std::vector<std::uint8_t> bytes;
  std::vector<float> scale_inv;
  std::uint64_t flushed = 0;  // number of values that became 0
};
// Transposes `input`, whose codes are of `format` and whose scales are powers of two. Output that
// belongs to no group consists of bytes `untouched`.
Transposed transpose(const QuantizedRows& input, const TransposeGroups& groups,
                     std::int64_t output_cols, Fp8Format format, TransposeRule rule,
                     std::uint8_t untouched);

}  // namespace moejit::reference
