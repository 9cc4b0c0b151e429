// SPDX-License-Identifier: Apache-2.0
// Packed tiles of 4-bit weights, against the reference.
#include "runtime/reference/packed_bf16_weights.h"
#include "runtime/reference/packed_weights.h"
#include "templates/moejit_device/params/status_bits.h"
#include "templates/moejit_device/params/weight_pack_bf16_params.h"
#include "templates/moejit_device/params/weight_pack_params.h"
#include "tests/kernels/chains/chain_runner.h"

namespace moejit::testing {
namespace {

using reference::Mxfp4Weights;
using reference::PackedWeights;

class PackWeights : public Chains {
 protected:
  // Compares all that the kernel writes, and returns what the reference says.
  PackedWeights expect_equal(const Mxfp4Weights& weights) {
    const PackedWeights wanted = reference::pack_weights(weights);
    const DeviceBuffer codes = input("codes", copy(weights.codes));
    const DeviceBuffer scales = input("scales", copy(weights.scales));
    const DeviceBuffer tiles = output<uint8_t>("tiles", std::ssize(wanted.tiles));
    const DeviceBuffer scale_inv = output<float>("scale_inv", std::ssize(wanted.scale_inv));
    const DeviceBuffer status = output<uint32_t>("status", 1);
    status.upload(0, std::vector<uint32_t>{0});
    const device::WeightPackParams params{.input = codes.as<const uint8_t>(),
                                          .input_scale_inv = scales.as<const uint8_t>(),
                                          .output = tiles.as<uint8_t>(),
                                          .output_scale_inv = scale_inv.as<float>(),
                                          .status = status.as<uint32_t>()};
    run(compiler::WeightPackSpec{.sections = static_cast<int32_t>(weights.sections),
                                 .section_rows =
                                     static_cast<int32_t>(weights.rows / weights.sections),
                                 .columns = static_cast<int32_t>(weights.cols),
                                 .is_interleaved = weights.is_interleaved},
        std::ssize(wanted.scale_inv), params, {&codes, &scales, &tiles, &scale_inv, &status});
    EXPECT_TRUE(matches(compare_bytes({"tiles", reference::kPackedTileBytes},
                                      tiles.download<uint8_t>(), wanted.tiles)));
    EXPECT_TRUE(
        matches(compare_f32({"scale_inv", 1}, scale_inv.download<float>(), wanted.scale_inv)));
    EXPECT_EQ(status.download<uint32_t>().front(), wanted.bad_group ? device::kStatusBadScale : 0U);
    return wanted;
  }

 private:
  static std::vector<uint8_t> copy(std::span<const uint8_t> bytes) {
    return {bytes.begin(), bytes.end()};
  }
};

// Sections and rows that end within a tile, one after the other and alternating.
TEST_F(PackWeights, EqualTheReference) {
  const reference::RandomMxfp4 given = reference::random_mxfp4(int64_t{3} * 288 * 5, 1);
  EXPECT_FALSE(expect_equal(given.view(3, 288, 160)).bad_group);
  EXPECT_FALSE(expect_equal(given.view(3, 288, 160, 2)).bad_group);
  EXPECT_FALSE(expect_equal(given.view(3, 288, 160, 2, true)).bad_group);
}

// Groups of zeros have no say, whatever their scale is.
TEST_F(PackWeights, TellOfScalesThatATileCannotExpress) {
  reference::RandomMxfp4 given = reference::random_mxfp4(int64_t{2} * 144 * 8, 2);
  const auto zero = [&](size_t group) {
    std::fill_n(given.codes.begin() + static_cast<int64_t>(16 * group), 16, uint8_t{0x08});
  };
  const Mxfp4Weights weights = given.view(2, 144, 256);
  zero(3), given.scales[3] = 0;
  zero(1200), given.scales[1200] = 254;
  for (size_t row = 128; row < 144; ++row)
    for (size_t group = 4; group < 8; ++group) zero(8 * row + group);  // a tile of zeros
  EXPECT_FALSE(expect_equal(weights).bad_group);
  zero(5), given.scales[5] = 255;
  EXPECT_EQ(expect_equal(weights).bad_group, 5);
  given.scales[5] = 120;
  given.scales[2001] = 112;  // 15 below its tile's largest
  EXPECT_EQ(expect_equal(weights).bad_group, 2001);
}

class PackFourBit : public Chains {
 protected:
  // Compares all that the kernel writes, and returns whether the reference finds a bad scale.
  bool expect_equal(const reference::FourBitWeights& weights) {
    const reference::PackedBf16Weights wanted = reference::pack_four_bit(weights);
    const bool is_int4 = weights.format == reference::FourBitFormat::kInt4;
    const DeviceBuffer codes = input("codes", copy(weights.codes));
    const DeviceBuffer scales =
        is_int4 ? input("scales",
                        std::vector<float>(weights.row_scales.begin(), weights.row_scales.end()))
                : input("scales", copy(weights.scales));
    const DeviceBuffer zeros = input("zeros", copy(is_int4 ? weights.zeros : weights.scales));
    const DeviceBuffer tiles = output<uint8_t>("tiles", std::ssize(wanted.tiles));
    const DeviceBuffer status = output<uint32_t>("status", 1);
    status.upload(0, std::vector<uint32_t>{0});
    const device::WeightPackBf16Params params{.input = codes.as<const uint8_t>(),
                                              .input_scale_inv = scales.as<const uint8_t>(),
                                              .input_zero = zeros.as<const uint8_t>(),
                                              .output = tiles.as<uint8_t>(),
                                              .status = status.as<uint32_t>()};
    run(
        compiler::WeightPackSpec{
            .sections = static_cast<int32_t>(weights.sections),
            .section_rows = static_cast<int32_t>(weights.rows / weights.sections),
            .columns = static_cast<int32_t>(weights.cols),
            .is_interleaved = weights.is_interleaved,
            .format = is_int4 ? compiler::PackedFormat::kInt4 : compiler::PackedFormat::kNvfp4},
        std::ssize(wanted.tiles) / reference::kPackedBf16TileBytes, params,
        {&codes, &scales, &zeros, &tiles, &status});
    EXPECT_TRUE(matches(compare_bytes({"tiles", reference::kPackedBf16TileBytes},
                                      tiles.download<uint8_t>(), wanted.tiles)));
    EXPECT_EQ(status.download<uint32_t>().front(), wanted.is_bad ? device::kStatusBadScale : 0U);
    return wanted.is_bad;
  }

 private:
  static std::vector<uint8_t> copy(std::span<const uint8_t> bytes) {
    return {bytes.begin(), bytes.end()};
  }
};

// Sections, rows and columns that end within a tile, one after the other and alternating.
TEST_F(PackFourBit, EqualTheReference) {
  const auto nvfp4 =
      reference::random_four_bit(reference::FourBitFormat::kNvfp4, int64_t{2} * 288 * 176, 1);
  const auto int4 =
      reference::random_four_bit(reference::FourBitFormat::kInt4, int64_t{2} * 288 * 256, 2);
  for (const bool is_interleaved : {false, true}) {
    EXPECT_FALSE(expect_equal(nvfp4.view(2, 288, 176, 2, is_interleaved)));
    EXPECT_FALSE(expect_equal(int4.view(2, 288, 256, 2, is_interleaved)));
  }
}

TEST_F(PackFourBit, TellOfScalesThatAreNone) {
  auto nvfp4 = reference::random_four_bit(reference::FourBitFormat::kNvfp4, 128 * 64, 3);
  for (const uint8_t scale : {0x7f, 0xff}) {
    nvfp4.scales[77] = scale;
    EXPECT_TRUE(expect_equal(nvfp4.view(1, 128, 64)));
  }
  const auto int4 = reference::random_four_bit(reference::FourBitFormat::kInt4, 128 * 128, 4);
  // Beyond fp16 and bf16, and no numbers at all.
  for (const float scale : {0x1.000002p0F, INFINITY, NAN}) {
    auto bad = int4;
    bad.row_scales[100] = scale;
    EXPECT_TRUE(expect_equal(bad.view(1, 128, 128)));
  }
  auto bad = int4;
  bad.zeros[5] = 17;
  EXPECT_TRUE(expect_equal(bad.view(1, 128, 128)));
}

}  // namespace
}  // namespace moejit::testing
