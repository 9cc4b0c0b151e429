// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/reference/scales.h"
#include "runtime/reference/transpose.h"

#include <cstdint>
#include <span>
#include <vector>

// NVFP4: numbers of E2M1 in blocks of 16 elements with scales of E4M3. Above these is one scale in
// fp32 of an expert's rows or of its matrix.
namespace moejit::reference {

inline constexpr std::int64_t kTwoLevelBlock = 16;  // elements of a line that share a scale

// Returns the code of the E2M1 number that is nearest to `value`; of two equally near it takes the
// even code. Numbers are 0, 0.5, 1, 1.5, 2, 3, 4 and 6, with the sign in bit 3. NaN gives the code
// of 6.
std::uint8_t encode_e2m1(float value);
float decode_e2m1(std::uint8_t code);

// Returns the scale above the blocks' scales, for the largest magnitude of all elements; 1 for 0
// and infinity. It is 2688 divided by the magnitude and rounded to fp32, at most the largest finite
// number.
ExpertScale two_level_expert_scale(float amax);

// Which elements share a scale.
enum class TwoLevelBlocks {
  kRows,     // 16 of a row
  kColumns,  // 16 of a column
  kTiles,    // 16 of each of 16 rows
};

// A matrix of rows [rows, cols] in blocks: for each element its code and the byte of its scale, in
// the order of the elements.
struct TwoLevelMatrix {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::vector<std::uint8_t> codes;
  std::vector<std::uint8_t> scales;
};

// Quantizes `values`, bf16 [rows, cols], in blocks that start with the first element; the last ones
// of a row or column may be shorter. For a block's largest magnitude, NaN apart, with each
// operation rounded to fp32:
//   byte = e4m3(amax * (expert_scale * (1 / 6)))         saturating
//   k    = 1 / (value of byte * (1 / expert_scale))      at most the largest finite number
//   code = e2m1(value * k)
TwoLevelMatrix quantize_two_levels(std::span<const std::uint16_t> values, std::int64_t rows,
                                   std::int64_t cols, float expert_scale, TwoLevelBlocks blocks);

// Returns the values of codes and scales of blocks in bf16, which is exact.
std::vector<std::uint16_t> two_level_values(const TwoLevelMatrix& matrix);

// Return codes and scales as a GEMM by rows reads them. Two codes are in a byte, the first one in
// its low half, [rows, cols / 2]. Scales are [rows, 8 * ceil(cols / 128)] with 0 behind the last
// block.
std::vector<std::uint8_t> packed_row_codes(const TwoLevelMatrix& matrix);
std::vector<std::uint8_t> row_scales(const TwoLevelMatrix& matrix);

// Return them as a GEMM by columns reads them, transposed: codes [cols, pitch / 2] and scales
// [cols, pitch / 16]. Rows behind the matrix are `untouched`.
std::vector<std::uint8_t> packed_column_codes(const TwoLevelMatrix& matrix, std::int64_t pitch,
                                              std::uint8_t untouched);
std::vector<std::uint8_t> column_scales(const TwoLevelMatrix& matrix, std::int64_t pitch,
                                        std::uint8_t untouched);

// Return the scales of the groups' rows in the order of Blackwell's GEMMs: tiles of 128 by 4 that
// restart at every group. The tiles of group e begin behind the tiles of output_offs[e] rows.
// Within them scale j of row i is at ((i / 128) * tiles + j / 4) * 512 + (i % 32) * 16 + (i % 128)
// / 32 * 4 + j % 4. By columns i is the column and j the block of 16 rows. `scales` come from
// row_scales() or column_scales(). Scales of no row of a group are 0. The output ends with the last
// group.
std::vector<std::uint8_t> swizzled_row_scales(std::span<const std::uint8_t> scales,
                                              std::int64_t cols, const TransposeGroups& groups);
std::vector<std::uint8_t> swizzled_column_scales(std::span<const std::uint8_t> scales,
                                                 std::int64_t cols, std::int64_t pitch,
                                                 const TransposeGroups& groups);

}  // namespace moejit::reference
