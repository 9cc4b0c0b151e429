// SPDX-License-Identifier: Apache-2.0
#include "runtime/trial/layer_inputs.h"

#include "compiler/compiler.h"
#include "runtime/checkpoint/safetensors_file.h"
#include "runtime/trial/group_inputs.h"
#include "runtime/trial/operation_inputs.h"
#include "runtime/trial/random_layer_inputs.h"
#include "runtime/trial/routing_tensors.h"
#include "tests/support/matchers.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <gtest/gtest.h>
#include <numeric>
#include <utility>
#include <vector>

namespace moejit::trial {
namespace {

using runtime::make_tensor;
using runtime::TensorMap;

using compiler::DType;

// Inputs of a layer of one expert whose contraction has three blocks, weights quantized.
class QuantizedInputs : public ::testing::Test {
 protected:
  Result<TensorMap> load(const std::vector<float>& w1_scales, int32_t sharing) const {
    constexpr int64_t kH = 272, kI = 16;
    const compiler::Layer layer{.experts = 1,
                                .local_experts = 1,
                                .top_k = 1,
                                .hidden = kH,
                                .intermediate = kI,
                                .scale_sharing_k = sharing,
                                .splits_alignment = 16,
                                .max_tokens = 1,
                                .max_permuted_rows = 16};
    const auto bytes = [](int64_t count) {
      return std::vector<uint8_t>(static_cast<size_t>(count));
    };
    const TensorMap tensors = {
        {"x", make_tensor(DType::kBF16, {1, kH}, std::vector<uint16_t>(kH))},
        {"topk_ids", make_tensor<int32_t>(DType::kI32, {1, 1}, {0})},
        {"topk_probs", make_tensor<float>(DType::kF32, {1, 1}, {1.0f})},
        {"w1_q", make_tensor(DType::kF8E4M3, {1, 2 * kI, kH}, bytes(2 * kI * kH))},
        {"w1_scale_inv", make_tensor(DType::kF32, {1, 2, 3}, w1_scales)},
        {"w2_q", make_tensor(DType::kF8E4M3, {1, kH, kI}, bytes(kH * kI))},
        {"w2_scale_inv", make_tensor<float>(DType::kF32, {1, 3, 1}, {1.0f, 2.0f, 4.0f})}};
    const std::string path = (dir_ / "inputs.safetensors").string();
    EXPECT_TRUE(testing::succeeded(checkpoint::write_safetensors(path, tensors)));
    const auto plan = plan_layer(layer, {});
    EXPECT_TRUE(testing::succeeded(plan));
    return load_layer_inputs(*plan, {.input_path = path});
  }

  testing::TestDir dir_;
};

TEST_F(QuantizedInputs, MayHaveAScaleForEachBlock) {
  EXPECT_TRUE(testing::succeeded(load({1, 2, 3, 4, 5, 6}, 1)));
}

TEST_F(QuantizedInputs, MayHaveSharedScalesWhereTheLayerWantsThem) {
  EXPECT_TRUE(testing::succeeded(load({1, 1, 3, 4, 4, 6}, 2)));
}

TEST_F(QuantizedInputs, AreRefusedWhereBlocksThatShareAScaleHaveTwo) {
  const auto inputs = load({1, 1, 3, 4, 5, 6}, 2);
  ASSERT_FALSE(inputs);
  EXPECT_EQ(inputs.error().code, ErrorCode::kTensorMismatch);
  EXPECT_EQ(inputs.error().message,
            "tensor w1_scale_inv: block 1 of row 1 has the scale 5, wanted 4 as the block before "
            "it, with which it shares its scale");
}

// A layer that holds the first two of six experts.
compiler::Layer routed_layer() {
  return {.experts = 6,
          .local_experts = 2,
          .top_k = 3,
          .hidden = 16,
          .intermediate = 16,
          .topk_ids_dtype = compiler::IndexDtype::kI64,
          .topk_probs_dtype = compiler::TopkProbsDtype::kBf16,
          .foreign_experts = compiler::ForeignExperts::kIgnore,
          .splits_alignment = 16,
          .max_tokens = 64,
          .max_permuted_rows = 224,
          .dispatch = compiler::Dispatch::kNone};
}

TEST(RandomInputs, HaveTheTypesOfTheLayerAndTheSameNumbers) {
  compiler::Layer layer = routed_layer();
  layer.foreign_experts = compiler::ForeignExperts::kReport;
  const TensorMap wide = random_tokens(layer, 64, {5});
  EXPECT_EQ(wide.at("topk_ids").dtype, DType::kI64);
  EXPECT_EQ(wide.at("topk_probs").dtype, DType::kBF16);
  layer.topk_ids_dtype = compiler::IndexDtype::kI32;
  layer.topk_probs_dtype = compiler::TopkProbsDtype::kF32;
  const TensorMap usual = random_tokens(layer, 64, {5});
  EXPECT_EQ(usual.at("topk_ids").dtype, DType::kI32);
  EXPECT_EQ(expert_ids(usual.at("topk_ids")), expert_ids(wide.at("topk_ids")));
  const std::vector<float> exact = probabilities(usual.at("topk_probs"));
  const std::vector<float> rounded = probabilities(wide.at("topk_probs"));
  ASSERT_EQ(rounded.size(), exact.size());
  for (size_t i = 0; i < exact.size(); ++i) EXPECT_NEAR(rounded[i], exact[i], exact[i] / 256);
}

TEST(RandomInputs, HaveForeignExpertsWhereTheLayerIgnoresThem) {
  compiler::Layer layer = routed_layer();
  const std::vector<int64_t> ids = expert_ids(random_topk_ids(layer, 64, {5}));
  for (const int64_t wanted : {-1, 0, 1, 2, 3, 4, 5})
    EXPECT_GT(std::ranges::count(ids, wanted), 0) << wanted;
  EXPECT_EQ(std::ranges::max(ids), 5);
  EXPECT_EQ(std::ranges::min(ids), -1);
  const compiler::CallRows rows =
      count_rows(*plan_layer(layer, {}), call_of(random_tokens(layer, 64, {5})));
  EXPECT_EQ(rows.routed, std::ranges::count_if(ids, [](int64_t id) { return id == 0 || id == 1; }));
  layer.foreign_experts = compiler::ForeignExperts::kReport;
  EXPECT_EQ(std::ranges::max(expert_ids(random_topk_ids(layer, 64, {5}))), 1);
}

// A rank gets its experts' share of the choices of all ranks' tokens, as planning takes it.
TEST(RandomInputs, GiveARankTheRowsThatItHasInTheMean) {
  compiler::Layer layer = routed_layer();
  layer.max_tokens = 4096;
  layer.experts = 64;
  layer.foreign_experts = compiler::ForeignExperts::kReport;
  for (const int32_t local : {2, 8, 16}) {  // fewer than K, and more
    layer.local_experts = local;
    const std::vector<int64_t> ids = expert_ids(random_topk_ids(layer, 4096, {5}));
    const auto here =
        static_cast<double>(std::ranges::count_if(ids, [](int64_t id) { return id >= 0; }));
    const double mean = 4096.0 * layer.top_k * local / layer.experts;
    EXPECT_NEAR(here, mean, 4.0 * std::sqrt(mean)) << local;
  }
}

TEST(RandomInputs, GiveNearlyAllGroupedRowsToTheExpertsOfTheRank) {
  compiler::Layer layer = routed_layer();
  layer.input = compiler::LayerInput::kGrouped;
  layer.top_k = 1;
  layer.experts = 64;
  const std::vector<int64_t> sizes =
      expert_ids(random_tokens(layer, 256, {5}).at("tokens_per_expert"));
  EXPECT_GE(std::reduce(sizes.begin(), sizes.end()), 240);
}

// The shares of 4096 choices that the least and the most popular of 8 experts have.
std::pair<double, double> shares_of(const std::vector<int64_t>& ids) {
  std::array<int64_t, 8> count{};
  for (const int64_t id : ids)
    if (id >= 0) ++count.at(static_cast<size_t>(id));
  const auto [least, most] = std::ranges::minmax(count);
  const auto all = static_cast<double>(std::reduce(count.begin(), count.end()));
  return {static_cast<double>(least) / all, static_cast<double>(most) / all};
}

TEST(RandomInputs, ChooseExpertsAlikeIfAskedTo) {
  compiler::Layer layer = routed_layer();
  layer.foreign_experts = compiler::ForeignExperts::kReport;
  layer.experts = layer.local_experts = 8;
  layer.top_k = 1;
  layer.max_tokens = 4096;
  const auto ids = [&](RandomRouting routing) {
    return expert_ids(random_topk_ids(layer, 4096, {5, routing}));
  };
  const auto [least, most] = shares_of(ids(RandomRouting::kUniform));
  EXPECT_NEAR(least, 0.125, 0.025);
  EXPECT_NEAR(most, 0.125, 0.025);
  const auto [rarest, usual] = shares_of(ids(RandomRouting::kSkewed));
  EXPECT_NEAR(usual, 0.368, 0.03);  // 1 / (1 + 1/2 + ... + 1/8)
  EXPECT_NEAR(rarest, 0.046, 0.02);
  EXPECT_EQ(ids(RandomRouting::kSkewed), expert_ids(random_topk_ids(layer, 4096, {5})));
  const TensorMap all = random_tokens(layer, 4096, {5, RandomRouting::kUniform});
  // The choice of experts leaves everything else as it was.
  EXPECT_EQ(all.at("x").bytes, random_tokens(layer, 4096, {5}).at("x").bytes);
}

// The K experts of a token differ, whichever way they are drawn.
TEST(RandomInputs, ChooseDifferentExpertsForAToken) {
  compiler::Layer layer = routed_layer();
  layer.foreign_experts = compiler::ForeignExperts::kReport;
  layer.experts = layer.local_experts = 4;
  layer.top_k = 4;
  const auto ids = expert_ids(random_topk_ids(layer, 64, {5, RandomRouting::kUniform}));
  for (size_t token = 0; token < 64; ++token) {
    std::vector<int64_t> own(ids.begin() + static_cast<std::ptrdiff_t>(4 * token),
                             ids.begin() + static_cast<std::ptrdiff_t>(4 * token + 4));
    std::erase(own, -1);
    std::ranges::sort(own);
    EXPECT_EQ(std::ranges::adjacent_find(own), own.end()) << token;
  }
}

TEST(RandomInputs, OfMeasuredCallsAreAsLargeAsTheyMayBeWithWeightsOfFewExperts) {
  compiler::Layer layer = routed_layer();
  layer.experts = layer.local_experts = 6;
  layer.max_permuted_rows = 288;
  const auto plan = plan_layer(layer, {});
  ASSERT_TRUE(testing::succeeded(plan));
  const auto measured = load_layer_inputs(*plan, {.random = {5}, .is_measured = true});
  const auto usual = load_layer_inputs(*plan, {.tokens = 64, .random = {5}});
  ASSERT_TRUE(testing::succeeded(measured));
  ASSERT_TRUE(testing::succeeded(usual));
  EXPECT_EQ(token_count(*measured), 64);
  EXPECT_EQ(measured->at("topk_ids").bytes, usual->at("topk_ids").bytes);
  EXPECT_EQ(measured->at("w1").shape.front(), 4);
  EXPECT_EQ(usual->at("w1").shape.front(), 6);
  const auto none = load_layer_inputs(*plan, {.tokens = 0, .is_measured = true});
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().message, "--tokens is 0, wanted 1 to 64 (max_tokens of the layer)");
}

// Two ranks with three experts each.
TEST(GroupInputs, HaveAllWeightsIfTheseAreOfFewerExpertsThanTheRanksHave) {
  const compiler::Layer layer{.experts = 6, .local_experts = 3, .hidden = 2};
  const auto weights = [](int64_t experts) {
    return runtime::make_tensor(DType::kF32, {experts, 1},
                                std::vector<float>(static_cast<size_t>(experts), 1.0f));
  };
  const std::vector<int64_t> tokens = {1, 2};
  for (const auto& [given, wanted] : {std::pair<int64_t, int64_t>{6, 3}, {4, 4}}) {
    const auto ranks = split_inputs(layer, {{"w1", weights(given)}, {"x", weights(3)}}, tokens);
    ASSERT_EQ(ranks.size(), 2u);
    for (size_t rank = 0; rank < 2; ++rank) {
      EXPECT_EQ(ranks[rank].at("w1").shape.front(), wanted);
      EXPECT_EQ(ranks[rank].at("x").shape.front(), tokens[rank]);
    }
  }
}

TEST(FileInputs, AreReadInTheTypesOfTheLayerAndNoOthers) {
  const testing::TestDir dir;
  const std::string path = (dir / "inputs.safetensors").string();
  compiler::Layer layer = routed_layer();
  TensorMap tensors = random_tokens(layer, 7, {5});
  tensors.merge(random_weights_of(layer, 2, 5));
  ASSERT_TRUE(testing::succeeded(checkpoint::write_safetensors(path, tensors)));
  const auto read = load_layer_inputs(*plan_layer(layer, {}), {.input_path = path});
  ASSERT_TRUE(testing::succeeded(read));
  EXPECT_EQ(expert_ids(read->at("topk_ids")), expert_ids(tensors.at("topk_ids")));
  EXPECT_EQ(probabilities(read->at("topk_probs")), probabilities(tensors.at("topk_probs")));
  layer.topk_ids_dtype = compiler::IndexDtype::kI32;
  const auto refused = load_layer_inputs(*plan_layer(layer, {}), {.input_path = path});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kTensorMismatch);
  EXPECT_NE(refused.error().message.find("\"topk_ids\" is I64 [7, 3], wanted I32 [7, 3]"),
            std::string::npos)
      << refused.error().message;
  EXPECT_EQ(refused.error().hint,
            "a layer with \"topk_ids_dtype\": \"i64\" in its description takes it so");
}

}  // namespace
}  // namespace moejit::trial
