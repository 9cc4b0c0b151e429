// SPDX-License-Identifier: Apache-2.0
// Experts in NVFP4 and INT4, as ModelOpt and compressed-tensors write them, are read into packed
// tiles.
#include "compiler/compiler.h"
#include "runtime/checkpoint/expert_weights.h"
#include "runtime/checkpoint/safetensors_file.h"
#include "runtime/reference/packed_bf16_weights.h"
#include "tests/support/matchers.h"

#include <cmath>
#include <cstring>
#include <fmt/core.h>
#include <gtest/gtest.h>

namespace moejit::checkpoint {
namespace {

using compiler::DType;
using reference::FourBitFormat;
using runtime::copy_elements;
using runtime::make_tensor;
using runtime::TensorMap;

constexpr int64_t kTwoExperts = 2, kWidth = 128, kInnerWidth = 256;

class PackedExperts : public ::testing::Test {
 protected:
  static compiler::Layer layer_of(const compiler::Format& weights) {
    compiler::Layer layer{.experts = kTwoExperts,
                          .local_experts = kTwoExperts,
                          .top_k = 1,
                          .hidden = kWidth,
                          .intermediate = kInnerWidth,
                          .activation = compiler::make_activation("swiglu").value(),
                          .recipe = compiler::Recipe::kBf16};
    layer.recipe.weights = weights;
    return layer;
  }

  Result<TensorMap> load(const compiler::Layer& layer) const {
    const std::string path = folder_ / "model.safetensors";
    EXPECT_TRUE(testing::succeeded(write_safetensors(path, file_)));
    return load_expert_weights(layer, {.shards = {path}});
  }

  // Adds a projection [rows, columns] of an expert, and its parts to those of all experts.
  void add(int64_t expert, const std::string& name, int64_t rows, int64_t columns, bool is_modelopt,
           reference::RandomFourBit& all, std::vector<float>& factors) {
    const auto seed = static_cast<uint64_t>(file_.size());
    const auto given = random_four_bit(all.format, rows * columns, seed);
    const std::string stem = fmt::format("model.layers.0.mlp.experts.{}.{}.", expert, name);
    const auto set = [&](const char* kind, DType dtype, std::vector<int64_t> shape,
                         const auto& values) {
      file_[stem + kind] = make_tensor(dtype, std::move(shape), values);
    };
    all.codes.insert(all.codes.end(), given.codes.begin(), given.codes.end());
    if (all.format == FourBitFormat::kNvfp4) {
      const float factor = 1.0F / static_cast<float>(int64_t{1} << (seed % 8));
      set(is_modelopt ? "weight" : "weight_packed", DType::kU8, {rows, columns / 2}, given.codes);
      set("weight_scale", DType::kF8E4M3, {rows, columns / 16}, given.scales);
      set(is_modelopt ? "weight_scale_2" : "weight_global_scale", DType::kF32,
          is_modelopt ? std::vector<int64_t>{} : std::vector<int64_t>{1},
          std::vector<float>{is_modelopt ? factor : 1.0F / factor});
      all.scales.insert(all.scales.end(), given.scales.begin(), given.scales.end());
      factors.push_back(factor);
      return;
    }
    std::vector<uint16_t> scales;  // fp16 has them: 1024 to 2047 times 2^-20
    for (const float scale : given.row_scales)
      scales.push_back(static_cast<uint16_t>(5 << 10 | (static_cast<int>(scale * 0x1p20F) - 1024)));
    std::vector<uint32_t> words(static_cast<size_t>(rows / 8 * (columns / 128)));
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t group = 0; group < columns / 128; ++group) {
        const uint32_t zero = given.zeros[static_cast<size_t>(row * (columns / 128) + group)] % 16u;
        words[static_cast<size_t>(row / 8 * (columns / 128) + group)] |= zero << (row % 8 * 4);
        all.zeros.push_back(static_cast<uint8_t>(zero));
      }
    std::vector<uint32_t> codes(given.codes.size() / 4);
    std::memcpy(codes.data(), given.codes.data(), given.codes.size());
    set("weight_packed", DType::kI32, {rows, columns / 8}, codes);
    set("weight_scale", DType::kF16, {rows, columns / 128}, scales);
    set("weight_zero_point", DType::kI32, {rows / 8, columns / 128}, words);
    all.row_scales.insert(all.row_scales.end(), given.row_scales.begin(), given.row_scales.end());
    factors.push_back(1.0F);
  }

  void expect_loaded(const compiler::Format& weights, FourBitFormat format, bool is_modelopt) {
    reference::RandomFourBit w1{.format = format}, w2{.format = format};
    std::vector<float> factors, w2_factors;
    for (int64_t e = 0; e < kTwoExperts; ++e) {
      add(e, "gate_proj", kInnerWidth, kWidth, is_modelopt, w1, factors);
      add(e, "up_proj", kInnerWidth, kWidth, is_modelopt, w1, factors);
      add(e, "down_proj", kWidth, kInnerWidth, is_modelopt, w2, w2_factors);
    }
    const auto loaded = load(layer_of(weights));
    ASSERT_TRUE(testing::succeeded(loaded));
    EXPECT_EQ(copy_elements<uint8_t>(loaded->at("w1_q")),
              pack_four_bit(w1.view(kTwoExperts, 2 * kInnerWidth, kWidth, 2)).tiles);
    EXPECT_EQ(copy_elements<uint8_t>(loaded->at("w2_q")),
              pack_four_bit(w2.view(kTwoExperts, kWidth, kInnerWidth)).tiles);
    EXPECT_EQ(loaded->at("w1_q").shape, (std::vector<int64_t>{kTwoExperts, 4, 2, 4608}));
    EXPECT_EQ(copy_elements<float>(loaded->at("w1_scale_inv")), factors);
    EXPECT_EQ(copy_elements<float>(loaded->at("w2_scale_inv")), w2_factors);
  }

  testing::TestDir folder_;
  TensorMap file_;
};

TEST_F(PackedExperts, AreReadFromModelOpt) {
  expect_loaded(compiler::kPackedNvfp4, FourBitFormat::kNvfp4, true);
  file_["model.layers.0.mlp.experts.1.up_proj.weight_scale_2"] =
      make_tensor(DType::kF32, {}, std::vector<float>{INFINITY});
  const auto bad = load(layer_of(compiler::kPackedNvfp4));
  ASSERT_FALSE(bad);
  EXPECT_NE(bad.error().message.find("have a scale of w1 that is NaN or infinite"),
            std::string::npos);
}

TEST_F(PackedExperts, AreReadFromCompressedTensors) {
  expect_loaded(compiler::kPackedNvfp4, FourBitFormat::kNvfp4, false);
  const auto other = load(layer_of(compiler::kPackedInt4));
  ASSERT_FALSE(other);
  EXPECT_NE(other.error().message.find("is U8 [256, 64], wanted I32 [256, 16]"), std::string::npos);
}

TEST_F(PackedExperts, AreReadInInt4) {
  expect_loaded(compiler::kPackedInt4, FourBitFormat::kInt4, false);
  const auto other = load(layer_of(compiler::kPackedNvfp4));
  ASSERT_FALSE(other);
  EXPECT_NE(other.error().message.find("wanted up_proj.weight, up_proj.weight_scale and"),
            std::string::npos);
}

}  // namespace
}  // namespace moejit::checkpoint
