// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/expert_weights.h"
#include "runtime/checkpoint/safetensors_file.h"
#include "runtime/reference/number_formats.h"
#include "tests/support/matchers.h"

#include <cmath>
#include <fmt/core.h>
#include <gtest/gtest.h>

namespace moejit::checkpoint {
namespace {

using runtime::copy_elements;
using runtime::element_count;
using runtime::elements;
using runtime::make_tensor;
using runtime::TensorMap;

using compiler::DType;

constexpr const char* kSplitStem = "model.layers.3.mlp.experts.";

// A layer whose experts are quantized as DeepSeek publishes them; scales of up begin a new block.
TEST(QuantizedExperts, BecomeBf16WhereTheLayerWantsThat) {
  const testing::TestDir folder;
  TensorMap file;
  const auto add = [&](const char* name, std::vector<int64_t> shape, uint8_t code, DType dtype) {
    const std::string full = fmt::format("layers.0.ffn.experts.0.{}.weight", name);
    const std::vector<uint8_t> codes(static_cast<size_t>(element_count(shape)), code);
    file[full] = make_tensor(DType::kF8E4M3, shape, codes);
    const int64_t blocks = (shape[0] + 127) / 128 * ((shape[1] + 127) / 128);
    std::vector<float> scales;
    for (int64_t b = 0; b < blocks; ++b) scales.push_back(static_cast<float>(b + 1) * 0.5F);
    std::vector<uint16_t> narrow;
    for (const float scale : scales) narrow.push_back(reference::bf16_from_float(scale));
    shape = {(shape[0] + 127) / 128, (shape[1] + 127) / 128};
    file[full + "_scale_inv"] = dtype == DType::kF32 ? make_tensor(dtype, shape, scales)
                                                     : make_tensor(dtype, shape, narrow);
  };
  add("w1", {144, 256}, 0x38, DType::kF32);   // 1.0
  add("w3", {144, 256}, 0x40, DType::kF32);   // 2.0
  add("w2", {256, 144}, 0xB8, DType::kBF16);  // -1.0; scales as Qwen3 has them
  const std::string path = folder / "model.safetensors";
  ASSERT_TRUE(testing::succeeded(write_safetensors(path, file)));
  compiler::Layer layer{.experts = 1,
                        .local_experts = 1,
                        .top_k = 1,
                        .hidden = 256,
                        .intermediate = 144,
                        .recipe = compiler::Recipe::kFp8Flow};
  const CheckpointOptions options{.shards = {path}, .layer_number = 0};
  const auto kept = load_expert_weights(layer, options);
  ASSERT_TRUE(testing::succeeded(kept));
  EXPECT_TRUE(kept->contains("w1_q"));
  EXPECT_EQ(copy_elements<float>(kept->at("w2_scale_inv")),
            (std::vector<float>{0.5F, 1.0F, 1.5F, 2.0F}));
  layer.passes.push_back(compiler::Pass::kBackward);
  const auto with_backward = load_expert_weights(layer, options);
  ASSERT_TRUE(testing::succeeded(with_backward));
  EXPECT_TRUE(with_backward->contains("w1_q"));
  layer.recipe = compiler::Recipe::kBf16;
  const auto loaded = load_expert_weights(layer, options);
  ASSERT_TRUE(testing::succeeded(loaded));
  EXPECT_FALSE(loaded->contains("w1_q"));
  const auto at = [&](const char* name, int64_t row, int64_t column, int64_t columns) {
    return reference::float_from_bf16(
        elements<uint16_t>(loaded->at(name))[static_cast<size_t>(row * columns + column)]);
  };
  EXPECT_EQ(at("w1", 0, 0, 256), 0.5F);
  EXPECT_EQ(at("w1", 0, 128, 256), 1.0F);
  EXPECT_EQ(at("w1", 128, 0, 256), 1.5F);
  EXPECT_EQ(at("w1", 144, 128, 256), 2.0F);  // the first row of up
  EXPECT_EQ(at("w1", 287, 255, 256), 4.0F);
  EXPECT_EQ(at("w2", 127, 128, 144), -1.0F);
  EXPECT_EQ(at("w2", 128, 0, 144), -1.5F);
  layer.passes.pop_back();
  for (const auto& other : {compiler::Recipe::kFp8Rowwise, compiler::Recipe::kFp8Current}) {
    layer.recipe = other;  // its scales are not those of blocks
    const auto expanded = load_expert_weights(layer, options);
    ASSERT_TRUE(testing::succeeded(expanded));
    EXPECT_FALSE(expanded->contains("w1_q"));
    EXPECT_TRUE(expanded->contains("w1"));
  }
}

// A layer of one expert with a scale for each row, as compressed-tensors writes them.
class Channels : public ::testing::Test {
 protected:
  static constexpr int64_t kHidden = 32, kInner = 16;

  Channels() {
    add("gate_proj", {kInner, kHidden}, 0x38, DType::kF32);   // 1.0
    add("up_proj", {kInner, kHidden}, 0x40, DType::kF32);     // 2.0
    add("down_proj", {kHidden, kInner}, 0xB8, DType::kBF16);  // -1.0
    layer_ = {.experts = 1,
              .local_experts = 1,
              .top_k = 1,
              .hidden = kHidden,
              .intermediate = kInner,
              .recipe = compiler::Recipe::kFp8Rowwise};
  }

  static std::string name_of(const char* projection) {
    return fmt::format("{}0.{}.weight", kSplitStem, projection);
  }

  // Row r has the scale (r + 1) / 2.
  void add(const char* projection, std::vector<int64_t> shape, uint8_t code, DType dtype) {
    const std::vector<uint8_t> codes(static_cast<size_t>(element_count(shape)), code);
    file_[name_of(projection)] = make_tensor(DType::kF8E4M3, shape, codes);
    std::vector<float> scales;
    std::vector<uint16_t> narrow;
    for (int64_t row = 0; row < shape[0]; ++row) {
      scales.push_back(static_cast<float>(row + 1) * 0.5F);
      narrow.push_back(reference::bf16_from_float(scales.back()));
    }
    file_[name_of(projection) + "_scale"] = dtype == DType::kF32
                                                ? make_tensor(dtype, {shape[0], 1}, scales)
                                                : make_tensor(dtype, {shape[0], 1}, narrow);
  }

  Result<TensorMap> load() const {
    const std::string path = folder_ / "model.safetensors";
    EXPECT_TRUE(testing::succeeded(write_safetensors(path, file_)));
    return load_expert_weights(layer_, {.shards = {path}});
  }

  void expect_refused(ErrorCode code, std::string_view words) const {
    const Result<TensorMap> loaded = load();
    ASSERT_FALSE(loaded);
    EXPECT_EQ(loaded.error().code, code);
    EXPECT_NE(to_string(loaded.error()).find(words), std::string::npos)
        << to_string(loaded.error());
  }

  testing::TestDir folder_;
  TensorMap file_;
  compiler::Layer layer_;
};

TEST_F(Channels, AreKeptWhereTheLayerHasSuchScales) {
  const auto kept = load();
  ASSERT_TRUE(testing::succeeded(kept));
  EXPECT_EQ(kept->at("w1_q").shape, (std::vector<int64_t>{1, 2 * kInner, kHidden}));
  EXPECT_EQ(kept->at("w1_scale_inv").shape, (std::vector<int64_t>{1, 2 * kInner}));
  EXPECT_EQ(kept->at("w2_scale_inv").shape, (std::vector<int64_t>{1, kHidden}));
  const auto first = copy_elements<float>(kept->at("w1_scale_inv"));
  const auto second = copy_elements<float>(kept->at("w2_scale_inv"));
  for (size_t row = 0; row < 16; ++row) {
    EXPECT_EQ(first[row], static_cast<float>(row + 1) * 0.5F);
    EXPECT_EQ(first[16 + row], first[row]);  // up begins anew
    EXPECT_EQ(second[row], first[row]);
  }
  EXPECT_EQ(elements<uint8_t>(kept->at("w1_q"))[16 * 32], 0x40);
}

TEST_F(Channels, BecomeBf16ElsewhereAndForBackwardPasses) {
  layer_.passes.push_back(compiler::Pass::kBackward);
  for (const auto& recipe :
       {compiler::Recipe::kFp8Rowwise, compiler::Recipe::kBf16, compiler::Recipe::kFp8Flow}) {
    layer_.recipe = recipe;
    const auto loaded = load();
    ASSERT_TRUE(testing::succeeded(loaded));
    EXPECT_FALSE(loaded->contains("w1_q"));
    const auto at = [&](const char* name, int64_t row, int64_t column, int64_t columns) {
      return reference::float_from_bf16(
          elements<uint16_t>(loaded->at(name))[static_cast<size_t>(row * columns + column)]);
    };
    EXPECT_EQ(at("w1", 0, 31, kHidden), 0.5F);
    EXPECT_EQ(at("w1", 15, 0, kHidden), 8.0F);
    EXPECT_EQ(at("w1", 16, 5, kHidden), 1.0F);  // the first row of up
    EXPECT_EQ(at("w2", 31, 15, kInner), -16.0F);
    layer_.passes = {compiler::Pass::kForward};  // the others expand without a backward pass, too
  }
}

TEST_F(Channels, WithoutAScaleOrWithFixedScalesOfTokensAreRefused) {
  const TensorMap whole = file_;
  file_.erase(name_of("down_proj") + "_scale");
  expect_refused(ErrorCode::kMissingTensor, "down_proj.weight_scale\" is missing");
  file_ = whole;
  file_[name_of("gate_proj") + "_scale"] =
      make_tensor(DType::kF32, {kInner, 2}, std::vector<float>(2 * kInner, 1.0F));
  expect_refused(ErrorCode::kTensorMismatch, "is F32 [16, 2], wanted F32 [16, 1]");
  file_[name_of("gate_proj") + "_scale"] =
      make_tensor(DType::kF32, {kInner, 1}, std::vector<float>(kInner, std::nanf("")));
  expect_refused(ErrorCode::kInvalidFile, "has the scale nan at [0, 0], wanted a finite");
  file_ = whole;
  file_[std::string(kSplitStem) + "0.up_proj.input_scale"] =
      make_tensor(DType::kF32, {1}, std::vector<float>{1.0F});
  expect_refused(ErrorCode::kTensorMismatch, "have fixed scales of tokens");
}

}  // namespace
}  // namespace moejit::checkpoint
