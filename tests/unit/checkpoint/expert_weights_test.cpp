// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/expert_weights.h"

#include "compiler/support/file.h"
#include "runtime/checkpoint/safetensors_file.h"
#include "runtime/reference/layouts.h"
#include "runtime/reference/number_formats.h"
#include "runtime/reference/packed_weights.h"
#include "tests/support/matchers.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <limits>

namespace moejit::checkpoint {
namespace {

using runtime::copy_elements;
using runtime::element_count;
using runtime::elements;
using runtime::HostTensor;
using runtime::make_tensor;
using runtime::TensorMap;

using compiler::DType;
using compiler::GateUpLayout;

constexpr int64_t kExperts = 3, kIntermediate = 16;
constexpr const char* kStem = "model.layers.3.mlp.experts.";

enum class Order { kOutputFirst, kInputFirst };

// A number that no other place of any matrix has: place in w1 or w2, as bits of bf16.
uint16_t number_at(int64_t expert, int64_t row, int64_t column, int64_t columns) {
  return static_cast<uint16_t>(1 + (expert * 100 + row) * columns + column);
}

// Experts of a layer whose gate and up matrix is a square where `hidden` is 32.
class FusedExperts : public ::testing::Test {
 protected:
  explicit FusedExperts(int32_t hidden = 48) {
    layer_ = {.experts = kExperts,
              .local_experts = kExperts,
              .top_k = 1,
              .hidden = hidden,
              .intermediate = kIntermediate,
              .recipe = compiler::Recipe::kBf16};
  }

  // All experts' matrices [rows, columns]; of row r the numbers of row `row_of(r)`.
  static std::vector<uint16_t> matrices(int64_t rows, int64_t columns, Order order, auto row_of) {
    std::vector<uint16_t> values;
    const bool is_transposed = order == Order::kInputFirst;
    for (int64_t e = 0; e < kExperts; ++e)
      for (int64_t a = 0; a < (is_transposed ? columns : rows); ++a)
        for (int64_t b = 0; b < (is_transposed ? rows : columns); ++b)
          values.push_back(is_transposed ? number_at(e, row_of(b), a, columns)
                                         : number_at(e, row_of(a), b, columns));
    return values;
  }
  static int64_t same_row(int64_t row) { return row; }
  // Row 2i of interleaved matrices is row i of gate, row 2i + 1 that of up.
  static int64_t interleaved_row(int64_t row) { return row / 2 + row % 2 * kIntermediate; }

  static HostTensor tensor(int64_t rows, int64_t columns, Order order, auto row_of) {
    const bool is_transposed = order == Order::kInputFirst;
    return make_tensor(DType::kBF16,
                       {kExperts, is_transposed ? columns : rows, is_transposed ? rows : columns},
                       matrices(rows, columns, order, row_of));
  }

  TensorMap fused(Order order, bool is_interleaved = false, bool has_biases = false) const {
    const auto row_of = is_interleaved ? interleaved_row : same_row;
    const int64_t h = layer_.hidden;
    TensorMap map = {
        {std::string(kStem) + "gate_up_proj", tensor(2 * kIntermediate, h, order, row_of)},
        {std::string(kStem) + "down_proj", tensor(h, kIntermediate, order, same_row)}};
    if (!has_biases) return map;
    map[std::string(kStem) + "gate_up_proj_bias"] =
        make_tensor(DType::kBF16, {kExperts, 2 * kIntermediate},
                    matrices(2 * kIntermediate, 1, Order::kOutputFirst, row_of));
    map[std::string(kStem) + "down_proj_bias"] =
        make_tensor(DType::kBF16, {kExperts, h}, matrices(h, 1, Order::kOutputFirst, same_row));
    return map;
  }

  Result<TensorMap> load(const TensorMap& file, CheckpointOptions options = {}) const {
    const std::string path = folder_ / "model.safetensors";
    EXPECT_TRUE(testing::succeeded(write_safetensors(path, file)));
    if (options.shards.empty()) options.shards = {path};
    return load_expert_weights(layer_, options);
  }

  // Whether w1 has the rows in this order, and w2 is as it should be.
  void expect_loaded(const Result<TensorMap>& loaded, bool is_interleaved = false) const {
    ASSERT_TRUE(testing::succeeded(loaded));
    const int64_t h = layer_.hidden;
    const auto row_of = is_interleaved ? interleaved_row : same_row;
    EXPECT_EQ(loaded->at("w1").shape, (std::vector<int64_t>{kExperts, 2 * kIntermediate, h}));
    EXPECT_EQ(copy_elements<uint16_t>(loaded->at("w1")),
              matrices(2 * kIntermediate, h, Order::kOutputFirst, row_of));
    EXPECT_EQ(copy_elements<uint16_t>(loaded->at("w2")),
              matrices(h, kIntermediate, Order::kOutputFirst, same_row));
    if (!layer_.biases) return;
    EXPECT_EQ(copy_elements<uint16_t>(loaded->at("b1")),
              matrices(2 * kIntermediate, 1, Order::kOutputFirst, row_of));
    EXPECT_EQ(copy_elements<uint16_t>(loaded->at("b2")),
              matrices(h, 1, Order::kOutputFirst, same_row));
  }

  static void expect_refused(const Result<TensorMap>& loaded, ErrorCode code,
                             std::string_view words) {
    ASSERT_FALSE(loaded);
    EXPECT_EQ(loaded.error().code, code);
    EXPECT_NE(to_string(loaded.error()).find(words), std::string::npos)
        << to_string(loaded.error());
  }

  testing::TestDir folder_;
  compiler::Layer layer_;
};

class SquareFusedExperts : public FusedExperts {
 protected:
  SquareFusedExperts() : FusedExperts(2 * kIntermediate) {}
};

TEST_F(FusedExperts, MayHaveARowForEachResultOrForEachInput) {
  expect_loaded(load(fused(Order::kOutputFirst)));
  expect_loaded(load(fused(Order::kInputFirst)));
}

TEST_F(SquareFusedExperts, HaveTheOrderOfTheDownProjection) {
  expect_loaded(load(fused(Order::kOutputFirst)));
  expect_loaded(load(fused(Order::kInputFirst)));
}

TEST_F(FusedExperts, WhoseDownProjectionIsASquareHaveTheOrderOfGateAndUp) {
  layer_.hidden = kIntermediate;
  expect_loaded(load(fused(Order::kOutputFirst)));
  expect_loaded(load(fused(Order::kInputFirst)));
}

TEST_F(FusedExperts, AreFoundByPrefixOrNumber) {
  TensorMap file = fused(Order::kOutputFirst);
  for (const auto& [name, tensor] : fused(Order::kOutputFirst)) {  // of multi-token prediction
    HostTensor zeros = tensor;
    std::ranges::fill(zeros.bytes, std::byte{0});
    file.emplace("mtp.layers.3." + name.substr(name.find("mlp")), std::move(zeros));
  }
  for (const char* prefix : {"model.layers.3.mlp", "model.layers.3.mlp.",
                             "model.layers.3.mlp.experts", "model.layers.3.mlp.experts."})
    expect_loaded(load(file, {.prefix = prefix}));
  expect_loaded(load(file, {.layer_number = 3}));
  expect_loaded(load(file));
  const auto zeros = load(file, {.prefix = "mtp.layers.3.mlp"});
  ASSERT_TRUE(testing::succeeded(zeros));
  EXPECT_EQ(elements<uint16_t>(zeros->at("w1"))[0], 0);
  expect_refused(load(file, {.prefix = "layers.3.mlp"}), ErrorCode::kMissingTensor,
                 "experts there are under model.layers.3.mlp, mtp.layers.3.mlp");
}

TEST_F(FusedExperts, WithBiasesAlternateGateAndUp) {
  layer_.biases = true;
  layer_.gate_up_layout = GateUpLayout::kInterleaved;
  expect_loaded(load(fused(Order::kInputFirst, true, true)), true);
}

TEST_F(FusedExperts, AreSortedIntoTheOrderOfTheLayer) {
  layer_.biases = true;
  expect_loaded(
      load(fused(Order::kInputFirst, true, true), {.gate_up_layout = GateUpLayout::kInterleaved}));
  layer_.gate_up_layout = GateUpLayout::kInterleaved;
  expect_loaded(
      load(fused(Order::kOutputFirst, false, true), {.gate_up_layout = GateUpLayout::kConcat}),
      true);
}

TEST_F(FusedExperts, AreDividedWhereGateAndUpAreSeparate) {
  layer_.gate_up_layout = GateUpLayout::kSeparate;
  const auto expect_divided = [&](const Result<TensorMap>& loaded) {
    ASSERT_TRUE(testing::succeeded(loaded));
    EXPECT_FALSE(loaded->contains("w1"));
    const int64_t h = layer_.hidden;
    const auto all = matrices(2 * kIntermediate, h, Order::kOutputFirst, same_row);
    for (const auto& [name, section] : {std::pair("w1_gate", 0), std::pair("w1_up", 1)}) {
      EXPECT_EQ(loaded->at(name).shape, (std::vector<int64_t>{kExperts, kIntermediate, h}));
      EXPECT_EQ(copy_elements<uint16_t>(loaded->at(name)),
                reference::section_of<uint16_t>(all, section, kIntermediate * h));
    }
  };
  expect_divided(load(fused(Order::kInputFirst)));
  layer_.biases = true;
  expect_divided(
      load(fused(Order::kInputFirst, true, true), {.gate_up_layout = GateUpLayout::kInterleaved}));
}

TEST_F(FusedExperts, AreRefusedWhereNothingTellsTheOrderOfGateAndUp) {
  layer_.gate_up_layout = GateUpLayout::kInterleaved;
  expect_refused(load(fused(Order::kOutputFirst)), ErrorCode::kInvalidValue, "--gate-up-layout");
  layer_.gate_up_layout = GateUpLayout::kConcat;
  layer_.biases = true;
  expect_refused(load(fused(Order::kOutputFirst, false, true)), ErrorCode::kInvalidValue,
                 "--gate-up-layout");
}

TEST_F(FusedExperts, HaveTheOrderOfTheirFamily) {
  layer_.biases = true;
  ASSERT_TRUE(write_file(folder_ / "config.json", R"({"model_type": "gpt_oss"})"));
  expect_loaded(load(fused(Order::kInputFirst, true, true)));
  ASSERT_TRUE(write_file(folder_ / "config.json",
                         R"({"model_type": "x", "text_config": {"model_type": "llama4_text"}})"));
  expect_loaded(load(fused(Order::kInputFirst, false, true)));
  for (const char* other : {R"({"model_type": "unknown"})", R"({"model_type": 3})", "[]", "{"}) {
    ASSERT_TRUE(write_file(folder_ / "config.json", other));
    expect_refused(load(fused(Order::kInputFirst, true, true)), ErrorCode::kInvalidValue,
                   "--gate-up-layout");
  }
}

TEST_F(FusedExperts, AreThoseOfThisRank) {
  layer_.local_experts = 2;
  const auto loaded = load(fused(Order::kInputFirst), {.first_expert = 1});
  ASSERT_TRUE(testing::succeeded(loaded));
  const std::vector<uint16_t> all =
      matrices(2 * kIntermediate, layer_.hidden, Order::kOutputFirst, same_row);
  const std::vector<uint16_t> wanted(all.begin() + 2 * kIntermediate * layer_.hidden, all.end());
  EXPECT_EQ(copy_elements<uint16_t>(loaded->at("w1")), wanted);
  expect_refused(load(fused(Order::kInputFirst), {.first_expert = 2}), ErrorCode::kMissingTensor,
                 "has 3 experts, wanted 2 to 3");
}

TEST_F(FusedExperts, MayHaveNoGate) {
  layer_.activation = *compiler::make_activation("relu_squared");
  const int64_t h = layer_.hidden;
  TensorMap file = {
      {std::string(kStem) + "up_proj", tensor(kIntermediate, h, Order::kInputFirst, same_row)},
      {std::string(kStem) + "down_proj", tensor(h, kIntermediate, Order::kInputFirst, same_row)}};
  const auto loaded = load(file);
  ASSERT_TRUE(testing::succeeded(loaded));
  EXPECT_EQ(copy_elements<uint16_t>(loaded->at("w1")),
            matrices(kIntermediate, h, Order::kOutputFirst, same_row));
  layer_.activation = {};
  expect_refused(load(file), ErrorCode::kTensorMismatch, "have no gate");
}

TEST_F(FusedExperts, MustAgreeWithTheDescription) {
  expect_refused(load(fused(Order::kInputFirst, true, true)), ErrorCode::kTensorMismatch,
                 "have biases (gate_up_proj_bias), the layer has none");
  layer_.biases = true;
  expect_refused(load(fused(Order::kInputFirst)), ErrorCode::kTensorMismatch,
                 "have no biases (gate_up_proj_bias), the layer has some");
  layer_.biases = false;
  layer_.hidden = 64;
  TensorMap file = fused(Order::kOutputFirst);
  layer_.hidden = 48;
  expect_refused(load(file), ErrorCode::kTensorMismatch,
                 "is BF16 [3, 32, 64], wanted BF16 [3, 32, 48] or [3, 48, 32]");
  layer_.activation = *compiler::make_activation("relu_squared");
  expect_refused(load(fused(Order::kOutputFirst)), ErrorCode::kTensorMismatch, "have a gate");
}

// E2M1: sign, two bits of exponent with bias 1, one of mantissa; OCP Microscaling Formats 1.0.
TEST(Mxfp4, HasTheNumbersOfItsSpecification) {
  constexpr std::array kMagnitudes = {0.0F, 0.5F, 1.0F, 1.5F, 2.0F, 3.0F, 4.0F, 6.0F};
  std::array<uint8_t, 2 * kMxfp4BlockBytes> codes{};
  for (size_t i = 0; i < kMagnitudes.size(); ++i)  // the lower half of a byte comes first
    codes[i] = static_cast<uint8_t>((i + 8) << 4 | i);
  codes[kMxfp4BlockBytes] = 0x7;
  const std::array<uint8_t, 2> scales = {127 + 3, 127 - 2};
  std::array<uint16_t, 2 * kMxfp4Block> values{};
  ASSERT_FALSE(decode_mxfp4(codes, scales, values));
  for (size_t i = 0; i < kMagnitudes.size(); ++i) {
    EXPECT_EQ(reference::float_from_bf16(values[2 * i]), 8 * kMagnitudes[i]);
    EXPECT_EQ(reference::float_from_bf16(values[2 * i + 1]), -8 * kMagnitudes[i]);
  }
  EXPECT_EQ(reference::float_from_bf16(values[kMxfp4Block]), 1.5F);
}

TEST(Mxfp4, IsExactAtTheEndsOfItsRange) {
  std::array<uint8_t, kMxfp4BlockBytes> codes{};
  std::array<uint16_t, kMxfp4Block> values{};
  const auto first = [&](uint8_t code, uint8_t scale) {
    codes[0] = code;
    const auto bad = decode_mxfp4(codes, std::array{scale}, values);
    return bad ? std::numeric_limits<float>::quiet_NaN() : reference::float_from_bf16(values[0]);
  };
  EXPECT_EQ(first(1, 0), 0x1p-128F);
  EXPECT_EQ(first(3, 0), 0x1.8p-127F);
  EXPECT_EQ(first(7, 252), 0x1.8p127F);
  EXPECT_EQ(first(3, 254), 0x1.8p127F);
  EXPECT_TRUE(std::isnan(first(6, 253)));  // 4 * 2^126 is beyond bf16
  EXPECT_TRUE(std::isnan(first(2, 255)));  // the scale is no number
}

TEST_F(FusedExperts, AreRefusedInBf16WhereTheLayerTakesPackedWeights) {
  layer_.recipe.weights = compiler::kPackedTiles;
  expect_refused(load(fused(Order::kOutputFirst)), ErrorCode::kTensorMismatch,
                 "gate_up_proj\" is BF16 [3, 32, 48], wanted MXFP4");
  layer_.local_experts = 1;
  const std::string stem = kStem;
  expect_refused(
      load({{stem + "0.up_proj.weight", make_tensor(DType::kU8, {1}, std::vector{'a'})}}),
      ErrorCode::kUnsupported, "have tensors of their own, wanted MXFP4");
}

// The values of packed weights [E, rows, columns], gate before up.
std::vector<float> packed_values(const TensorMap& loaded, const std::string& name, int64_t rows,
                                 int64_t columns, int64_t sections) {
  return reference::dequantize(reference::unpack_weights(
      elements<uint8_t>(loaded.at(name + "_q")), elements<float>(loaded.at(name + "_scale_inv")),
      loaded.at(name + "_q").shape.front(), rows, columns, sections));
}

std::vector<float> values_of_bf16(const HostTensor& tensor) {
  std::vector<float> values;
  for (const uint16_t bits : elements<uint16_t>(tensor))
    values.push_back(reference::float_from_bf16(bits));
  return values;
}

TEST_F(FusedExperts, AreReadFromMxfp4) {
  layer_.hidden = 64;
  layer_.intermediate = 32;
  layer_.local_experts = 1;
  const auto bytes = [](int64_t count, uint8_t value) {
    return std::vector<uint8_t>(static_cast<size_t>(count), value);
  };
  TensorMap file;
  const auto set = [&](const char* name, std::vector<int64_t> shape, std::vector<uint8_t> values) {
    file[kStem + std::string(name)] = make_tensor(DType::kU8, std::move(shape), values);
  };
  // Row 0 is 1 and up, row 1 of gate 2: 0x22 is 1.0 twice, 0x44 is 2.0.
  std::vector<uint8_t> blocks = bytes(64 * 2 * 16, 0x22);
  for (size_t i = 0; i < 32; ++i) blocks[i] = 0x44;  // row 0: gate of 0
  std::vector<uint8_t> scales = bytes(64 * 2, 127);
  scales[3] = 128;  // row 1, up of 0: columns 32 to 63 are doubled
  set("gate_up_proj_blocks", {1, 64, 2, 16}, blocks);
  set("gate_up_proj_scales", {1, 64, 2}, scales);
  set("down_proj_blocks", {1, 64, 1, 16}, bytes(64 * 16, 0x5a));  // -1 and 3
  set("down_proj_scales", {1, 64, 1}, bytes(64, 126));
  const auto loaded = load(file);  // the layer has gate first, gpt-oss alternates
  ASSERT_TRUE(testing::succeeded(loaded));
  const auto w1 = [&](int64_t row, int64_t column) {
    return reference::float_from_bf16(
        elements<uint16_t>(loaded->at("w1"))[static_cast<size_t>(row * 64 + column)]);
  };
  EXPECT_EQ(w1(0, 0), 2.0F);
  EXPECT_EQ(w1(0, 63), 2.0F);
  EXPECT_EQ(w1(1, 0), 1.0F);
  EXPECT_EQ(w1(32, 31), 1.0F);
  EXPECT_EQ(w1(32, 32), 2.0F);
  EXPECT_EQ(reference::float_from_bf16(elements<uint16_t>(loaded->at("w2"))[0]), -0.5F);
  EXPECT_EQ(reference::float_from_bf16(elements<uint16_t>(loaded->at("w2"))[1]), 1.5F);

  layer_.recipe.weights = compiler::kPackedTiles;
  const auto packed = load(file);
  ASSERT_TRUE(testing::succeeded(packed));
  EXPECT_EQ(packed_values(*packed, "w1", 64, 64, 2), values_of_bf16(loaded->at("w1")));
  EXPECT_EQ(packed_values(*packed, "w2", 64, 32, 1), values_of_bf16(loaded->at("w2")));
  scales[5] = 90;
  set("gate_up_proj_scales", {1, 64, 2}, scales);
  expect_refused(load(file), ErrorCode::kInvalidFile,
                 "gate_up_proj_scales\" has the scale 90 in block 1 of row 2 of expert 0");
  layer_.recipe.weights = {};

  scales[2] = 255;
  set("gate_up_proj_scales", {1, 64, 2}, scales);
  expect_refused(load(file), ErrorCode::kInvalidFile, "has the scale 255 in block 2 of expert 0");
  set("gate_up_proj_scales", {1, 64, 4}, bytes(256, 127));
  expect_refused(load(file), ErrorCode::kTensorMismatch, "is U8 [1, 64, 4], wanted U8 [1, 64, 2]");
}

}  // namespace
}  // namespace moejit::checkpoint
