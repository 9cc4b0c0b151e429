// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/dtype.h"

#include <array>
#include <cstdint>
#include <string_view>

namespace moejit::compiler {

// 4-bit formats of weights that stay so in memory, in packed tiles. Descriptions call them
// weight_format; kNone is "bf16".
enum class PackedFormat { kNone, kMxfp4, kNvfp4, kInt4 };

// What plans, kernels and their checks have to know of a format. A tile has 128 rows.
struct PackedTile {
  std::string_view name;    // in descriptions
  std::string_view title;   // in sentences
  DType operands{};         // what warps that multiply make of the codes
  std::string_view values;  // the same, in sentences
  int32_t columns = 0;      // of the contraction, one step of the GEMM
  int32_t bytes = 0;
  int32_t group = 0;             // neighbors of a row with one scale in the tile
  int32_t multiple_of = 16;      // what rows of the contraction are
  int32_t code_factor = 1;       // codes as the tensor cores get them are so many times smaller
  bool has_block_scale = false;  // whether a tile's scale meets partial sums, beside A's scales
  bool promotes = false;         // whether scales multiply partial sums of 128 of the contraction
  // The kernel's text.
  std::string_view multiply, mainloop, include, bytes_constant;
  std::string_view packer, packer_include;
};

inline constexpr std::array kPackedTilesOf = {
    PackedTile{.name = "bf16"},
    PackedTile{.name = "mxfp4",
               .title = "MXFP4",
               .operands = DType::kF8E4M3,
               .values = "e4m3",
               .columns = 128,
               .bytes = 8704,
               .group = 32,
               .has_block_scale = true,
               .promotes = true,
               .multiply = "MultiplyMxfp4<Problem>",
               .mainloop = "Mxfp4Mainloop",
               .include = "gemm/mxfp4_mainloop.cuh",
               .bytes_constant = "kPackedTileBytes"},
    PackedTile{.name = "nvfp4",
               .title = "NVFP4",
               .operands = DType::kBF16,
               .values = "bf16",
               .columns = 64,
               .bytes = 4608,
               .group = 16,
               .code_factor = 128,
               .multiply = "MultiplyPackedBf16<Problem>",
               .mainloop = "Nvfp4Mainloop",
               .include = "gemm/nvfp4_mainloop.cuh",
               .bytes_constant = "kPackedBf16TileBytes",
               .packer = "PackNvfp4",
               .packer_include = "cast/weight_pack_nvfp4.cuh"},
    PackedTile{.name = "int4",
               .title = "INT4",
               .operands = DType::kBF16,
               .values = "bf16",
               .columns = 64,
               .bytes = 4608,
               .group = 128,
               .multiple_of = 128,
               .promotes = true,
               .multiply = "MultiplyPackedBf16<Problem>",
               .mainloop = "Int4Mainloop",
               .include = "gemm/int4_mainloop.cuh",
               .bytes_constant = "kPackedBf16TileBytes",
               .packer = "PackInt4",
               .packer_include = "cast/weight_pack_int4.cuh"},
};

constexpr const PackedTile& packed_tile(PackedFormat format) {
  return kPackedTilesOf[static_cast<std::size_t>(format)];
}

constexpr std::string_view to_string(PackedFormat format) { return packed_tile(format).name; }

}  // namespace moejit::compiler
