// SPDX-License-Identifier: Apache-2.0
#include "runtime/reference/column_cast.h"

#include "runtime/reference/block_scale.h"
#include "runtime/reference/number_formats.h"
#include "runtime/reference/parallel_for.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace moejit::reference {
namespace {

// The rows of a block and the first of the 128 columns that they become.
struct RowBlock {
  std::int64_t first_row = 0;
  std::int64_t rows = 0;
  std::int64_t first_output = 0;
};

std::vector<RowBlock> blocks_of(const TransposeGroups& groups) {
  std::vector<RowBlock> blocks;
  for (std::size_t e = 0; e < groups.counts.size(); ++e)
    for (std::int64_t done = 0; done < groups.counts[e]; done += kBlock)
      blocks.push_back({groups.offs[e] + done,
                        std::min<std::int64_t>(kBlock, groups.counts[e] - done),
                        groups.output_offs[e] + done});
  return blocks;
}

}  // namespace

ColumnCast quantize_columns(std::span<const std::uint16_t> values, std::int64_t cols,
                            const TransposeGroups& groups, std::int64_t output_cols, float eps,
                            std::uint8_t untouched) {
  float untouched_scale = 0.0F;
  std::memset(&untouched_scale, untouched, sizeof(float));
  ColumnCast cast{
      .bytes = std::vector<std::uint8_t>(static_cast<std::size_t>(cols * output_cols), untouched),
      .scale_inv = std::vector<float>(static_cast<std::size_t>(output_cols / kBlock * cols),
                                      untouched_scale)};
  const std::vector<RowBlock> blocks = blocks_of(groups);
  parallel_for(cols, [&](std::int64_t col) {
    for (const RowBlock& block : blocks) {
      const auto value = [&](std::int64_t i) {
        return float_from_bf16(
            values[static_cast<std::size_t>((block.first_row + i) * cols + col)]);
      };
      float amax = 0.0F;
      for (std::int64_t i = 0; i < block.rows; ++i)
        if (std::fabs(value(i)) > amax) amax = std::fabs(value(i));  // false for NaN: passed over
      const BlockScale scale = scale_from_amax(amax, {.eps = eps});
      cast.scale_inv[static_cast<std::size_t>(block.first_output / kBlock * cols + col)] =
          scale.scale_inv;
      for (std::int64_t i = 0; i < kBlock; ++i)
        cast.bytes[static_cast<std::size_t>(col * output_cols + block.first_output + i)] =
            i < block.rows ? encode_e4m3(value(i) * scale.scale) : std::uint8_t{0};
    }
  });
  return cast;
}

}  // namespace moejit::reference
