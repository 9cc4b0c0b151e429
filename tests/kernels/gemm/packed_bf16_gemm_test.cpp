// SPDX-License-Identifier: Apache-2.0
// GEMMs of bf16 rows with packed NVFP4 and INT4 weights, against the formats' definitions.

#include "compiler/planner/candidates.h"
#include "compiler/planner/grouped_gemm.h"
#include "runtime/reference/number_formats.h"
#include "runtime/reference/packed_bf16_weights.h"
#include "runtime/reference/random_inputs.h"
#include "runtime/reference/two_level.h"
#include "templates/moejit_device/params/grouped_gemm_params.h"
#include "tests/kernels/gemm/gemm_runner.h"

#include <cmath>

namespace moejit::testing {
namespace {

using compiler::GroupedGemmSpec;
using compiler::PackedFormat;
using reference::FourBitFormat;
using reference::FourBitWeights;

struct Format {
  PackedFormat packed;
  FourBitFormat four_bit;
};
constexpr Format kNvfp4{PackedFormat::kNvfp4, FourBitFormat::kNvfp4};
constexpr Format kInt4{PackedFormat::kInt4, FourBitFormat::kInt4};

// bf16 [rows, k] with a 1 in column `row % k` of each row: sums are weights.
std::vector<uint16_t> unit_rows(int64_t rows, int64_t k) {
  std::vector<uint16_t> values(static_cast<size_t>(rows * k));
  for (int64_t row = 0; row < rows; ++row)
    values[static_cast<size_t>(row * k + row % k)] = reference::bf16_from_float(1.0F);
  return values;
}

class PackedBf16Gemm : public GemmTest {
 protected:
  static GroupedGemmSpec packed(Format format, int32_t experts, int32_t sections, int32_t section_n,
                                int32_t k) {
    return {.operands = compiler::DType::kBF16,
            .b_packed = format.packed,
            .scales = compiler::GemmScales::kSection,
            .local_experts = experts,
            .sections = sections,
            .section_n = section_n,
            .k = k};
  }

  std::vector<uint16_t> multiply(const GroupedGemmSpec& spec, const reference::Route& route,
                                 const std::vector<uint16_t>& rows,
                                 const std::vector<uint8_t>& tiles,
                                 const std::vector<float>& factors) {
    const int64_t columns = int64_t{spec.sections} * spec.section_n;
    const DeviceBuffer a = input("a", rows), b = input("b", tiles);
    const DeviceBuffer b_scale_inv = input("b_scale_inv", factors);
    const DeviceBuffer counts = input("counts", route.counts), offs = input("offs", route.offs);
    const DeviceBuffer d = output<uint16_t>("d", route.rows() * columns);
    const auto maps = compiler::grouped_gemm_tensor_maps(spec, route.rows(), {});
    const device::GroupedGemmParams params{.a_map = map_of(maps, "a_map", a),
                                           .b_map = map_of(maps, "b_map", b),
                                           .b_scale_inv = b_scale_inv.as<const float>(),
                                           .d = d.as<device::Bf16>(),
                                           .counts = counts.as<const int32_t>(),
                                           .offs = offs.as<const int32_t>()};
    run(spec, 3, params, {&a, &b, &b_scale_inv, &counts, &offs, &d});
    return d.download<uint16_t>();
  }

  // Multiplies unit rows with a matrix [128, k] whose factor is 1.
  std::vector<uint16_t> values_of(Format format, const FourBitWeights& weights) {
    const auto k = static_cast<int32_t>(weights.cols);
    return multiply(compiler::choose_swapped_tiles(packed(format, 1, 1, 128, k), k), splits({k}, 1),
                    unit_rows(k, k), reference::pack_four_bit(weights).tiles, {1.0F});
  }

  void expect_exact(Format format, const GroupedGemmSpec& spec, const reference::Route& route,
                    uint64_t seed) {
    const int64_t columns = int64_t{spec.sections} * spec.section_n;
    const auto given =
        random_four_bit(format.four_bit, spec.local_experts * columns * spec.k, seed);
    const std::vector<uint8_t> tiles =
        reference::pack_four_bit(given.view(spec.local_experts, columns, spec.k, spec.sections))
            .tiles;
    const std::vector<float> factors = reference::random_section_factors(
        format.four_bit, int64_t{spec.local_experts} * spec.sections, seed);
    const std::vector<uint16_t> rows =
        reference::random_activations(route.rows(), spec.k, seed + 1);
    const auto codes = reference::unpack_four_bit(format.four_bit, tiles, spec.local_experts,
                                                  columns, spec.k, spec.sections);
    const auto wanted =
        reference::bf16_from_floats(reference::packed_gemm_sums(rows, codes, factors, route));
    EXPECT_TRUE(
        matches(compare_bf16({"d", columns}, multiply(spec, route, rows, tiles, factors), wanted)));
  }
};

// All 16 codes with all 254 scales, of which 14 are subnormal; the last groups repeat some.
TEST_F(PackedBf16Gemm, Nvfp4HasAllProductsOfCodesAndScales) {
  std::vector<uint8_t> codes, scales;
  for (int32_t group = 0; group < 128 * 4; ++group) {
    for (int32_t i = 0; i < 8; ++i)
      codes.push_back(static_cast<uint8_t>(0x10 * (2 * i + 1) + 2 * i));
    const int32_t scale = group % 256;
    scales.push_back(static_cast<uint8_t>(scale % 128 == 127 ? 1 : scale));
  }
  const auto got = values_of(kNvfp4, {.format = FourBitFormat::kNvfp4,
                                      .experts = 1,
                                      .rows = 128,
                                      .cols = 64,
                                      .codes = codes,
                                      .scales = scales,
                                      .row_scales = {}});
  std::vector<uint16_t> wanted;
  for (int64_t column = 0; column < 64; ++column)
    for (int64_t row = 0; row < 128; ++row) {
      const float value =
          reference::decode_e2m1(static_cast<uint8_t>(column % 16)) *
          reference::decode_e4m3(scales[static_cast<size_t>(row * 4 + column / 16)]);
      EXPECT_EQ(reference::float_from_bf16(reference::bf16_from_float(value)), value);
      wanted.push_back(reference::bf16_from_float(value + 0.0F));  // sums have no -0
    }
  EXPECT_TRUE(matches(compare_bf16({"d", 128}, got, wanted)));
}

// All 16 codes with all 17 zero points, and scales of bf16 and fp16 down to the smallest ones.
TEST_F(PackedBf16Gemm, Int4HasAllDifferencesOfCodesAndZeroPoints) {
  std::vector<uint8_t> codes, zeros;
  std::vector<float> scales;
  for (int32_t row = 0; row < 128; ++row) {
    for (int32_t i = 0; i < 64; ++i)
      codes.push_back(static_cast<uint8_t>(0x10 * (2 * i % 16 + 1) + 2 * i % 16));
    zeros.push_back(static_cast<uint8_t>(row % 17));
    scales.push_back(row % 3 == 0 ? 0x1p-24F : row % 3 == 1 ? 0x1.ffcp-7F : 0x1.fep-100F);
  }
  const FourBitWeights weights{.format = FourBitFormat::kInt4,
                               .experts = 1,
                               .rows = 128,
                               .cols = 128,
                               .codes = codes,
                               .scales = {},
                               .row_scales = scales,
                               .zeros = zeros};
  const auto got = values_of(kInt4, weights);
  std::vector<uint16_t> wanted;
  for (int64_t column = 0; column < 128; ++column)
    for (int64_t row = 0; row < 128; ++row)
      wanted.push_back(
          reference::bf16_from_float(reference::value_of(weights, row, column) + 0.0F));
  EXPECT_TRUE(matches(compare_bf16({"d", 128}, got, wanted)));
}

// Sections, rows and, of NVFP4, steps that end within a tile, and groups of every width of tiles.
TEST_F(PackedBf16Gemm, EqualTheReference) {
  const reference::Route route = splits({17, 0, 128, 65, 5}, 1);
  for (const int32_t tile_rows : compiler::kSwappedTileRows) {
    SCOPED_TRACE(tile_rows);
    const auto seed = static_cast<uint64_t>(tile_rows);
    expect_exact(kNvfp4, compiler::choose_swapped_tiles(packed(kNvfp4, 5, 2, 144, 336), tile_rows),
                 route, seed);
    expect_exact(kInt4, compiler::choose_swapped_tiles(packed(kInt4, 5, 2, 144, 256), tile_rows),
                 route, seed);
  }
}

// An odd and an even number of steps, one of them alone, and more than the ring has stages.
TEST_F(PackedBf16Gemm, GoRoundTheRing) {
  for (const int32_t k : {48, 128, 64 * 13, 64 * 26})
    expect_exact(kNvfp4, compiler::choose_swapped_tiles(packed(kNvfp4, 2, 2, 128, k), 16),
                 splits({9, 3}, 1), static_cast<uint64_t>(k));
  expect_exact(kInt4, compiler::choose_swapped_tiles(packed(kInt4, 2, 2, 128, 128 * 13), 16),
               splits({9, 3}, 1), 7);
}

// A factor that is a power of two may as well be in the weights: a chain of other products.
TEST_F(PackedBf16Gemm, Nvfp4HasTheBitsOfBf16WeightsOfTheSameValues) {
  constexpr float kFactor = 0x1p-9F;
  const GroupedGemmSpec spec = compiler::choose_swapped_tiles(packed(kNvfp4, 2, 1, 128, 320), 64);
  const auto given = random_four_bit(FourBitFormat::kNvfp4, int64_t{2} * 128 * 320, 11);
  const FourBitWeights weights = given.view(2, 128, 320);
  const reference::Route route = splits({20, 33}, 1);
  const std::vector<uint16_t> rows = reference::random_activations(route.rows(), 320, 12);
  std::vector<uint16_t> values;
  for (int64_t row = 0; row < 256; ++row)
    for (int64_t k = 0; k < 320; ++k)
      values.push_back(reference::bf16_from_float(reference::value_of(weights, row, k) * kFactor));
  const auto wanted =
      reference::bf16_grouped_gemm(rows, {.values = values, .columns = 128, .depth = 320}, route);
  EXPECT_TRUE(matches(compare_bf16(
      {"d", 128},
      multiply(spec, route, rows, reference::pack_four_bit(weights).tiles, {kFactor, kFactor}),
      wanted)));
}

TEST_F(PackedBf16Gemm, HaveNoOtherTilesThanSwappedOnes) {
  for (const Format format : {kNvfp4, kInt4})
    for (const int64_t mean : {1, 4096})
      for (const auto& candidate :
           compiler::grouped_gemm_candidates(packed(format, 2, 2, 256, 256), {mean, 8 * mean})) {
        EXPECT_TRUE(candidate.spec.is_swapped);
        EXPECT_EQ(candidate.spec.sections, 2);  // each has its factor
      }
}

}  // namespace
}  // namespace moejit::testing
