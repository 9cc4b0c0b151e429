// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/dtype.h"
#include "compiler/kernels/grouped_gemm.h"

#include <cstdint>
#include <string>
#include <string_view>

namespace moejit::compiler {

// What the scales of a contraction-grouped GEMM belong to; its contraction runs along the tokens.
enum class GradientScales {
  kTile,       // 128x128 tiles of both operands, as the scaling-aware transpose writes them
  kRow,        // blocks of 1x128 of the rows of both operands, as quantizing each operand along the
               // tokens gives them. Scales of a block of columns follow each other
  kTensor,     // a group's A and B, one each; applied once, to complete sums
  kRowColumn,  // a group's rows of A and of B; applied once, to complete sums
  kNone,  // none: operands are bf16 and are read in their own order, MN-major, with one token a row
};
// What is done with a weight gradient.
enum class GradientOutput {
  kBf16,     // one rounding to bf16
  kBf16Add,  // is added to the old value in fp32, with one rounding of the sum
  kF32,      // overwrites the old value
  kF32Add,   // is added to the old value in fp32
};

bool adds(GradientOutput output);
DType dtype_of(GradientOutput output);

// D[e][rows, n] = A[rows, columns of e] * B[n, columns of e]^T over groups of columns: wgrad. Tiles
// are as in GroupedGemmSpec, all of 128 rows. A tile is stored in panels of 128 bytes a row, of
// which `panels_staged` are in shared memory at a time. To add to D, the kernel loads the old
// values of `panels_loaded` panels; L2 adds the other panels. In bf16 it loads all of them, since
// L2 would add a rounded value.
struct ContractionGroupedGemmSpec {
  GradientScales scales = GradientScales::kTile;
  GradientOutput output = GradientOutput::kF32;
  GemmAccumulation accumulation = GemmAccumulation::kFp32;  // kFast only with complete sums scaled
  bool is_a_e5m2 = false;          // whether A has gradients in e5m2, beside an e4m3 B
  bool has_bf16_operands = false;  // kTensor: read as with kNone, which has them anyway
  // With bf16 operands: whether groups start anywhere, so that a step of 64 columns may have
  // columns of the next group. They count as zeros then. Else groups are padded to whole steps.
  bool ends_groups = false;
  int32_t local_experts = 0;
  int32_t rows = 0;      // rows of A, in sections of whole tiles
  int32_t sections = 1;  // if more than 1, D has the first section_rows rows of each section
  int32_t section_rows = 0;
  bool is_interleaved = false;  // whether rows of the sections alternate in D
  bool is_separate = false;     // whether each of two sections has a D of its own
  int32_t n = 0;
  int32_t wide_columns = 192, wide_tiles = 0;
  int32_t narrow_columns = 128, narrow_tiles = 0;
  bool has_column_halves = false;  // as in GroupedGemmSpec; without scales of rows
  int32_t stages = 4;
  int32_t panels_staged = 3;
  int32_t panels_loaded = 0;
  int32_t band_tiles = kUsualBandTiles;
  // CTAs of a cluster, 1 or 2. Two take tiles below each other and read B from L2 once for both.
  int32_t cluster_ctas = 1;
  // Times at which CTAs start, spread over the time of a tile; 1: all start at once.
  int32_t start_times = 1;
  bool operator==(const ContractionGroupedGemmSpec&) const = default;
};

// Return the format of B, and of A, which may be another one.
DType operands_of(const ContractionGroupedGemmSpec& spec);
DType a_format(const ContractionGroupedGemmSpec& spec);

// Returns whether scales do not change along the contraction, so that they multiply complete sums.
bool has_end_scales(const ContractionGroupedGemmSpec& spec);

// Returns whether scales multiply complete sums of bf16 products, which are one chain.
bool has_bf16_end_scales(const ContractionGroupedGemmSpec& spec);

// Returns the rows of D in each section.
int32_t result_rows(const ContractionGroupedGemmSpec& spec);

// Returns whether CTAs may run in clusters of two, and each of them has rows.
bool may_be_clustered(const ContractionGroupedGemmSpec& spec);

std::string_view to_string(GradientScales scales);
std::string_view to_string(GradientOutput output);

std::string to_string(const ContractionGroupedGemmSpec& spec);

// Returns how many CTAs, in whole clusters, have work, whatever the groups contain.
int64_t busy_ctas(const ContractionGroupedGemmSpec& spec);

}  // namespace moejit::compiler
