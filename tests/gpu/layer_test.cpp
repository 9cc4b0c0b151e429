// SPDX-License-Identifier: Apache-2.0
// Whole layers on a device, every tensor against the CPU reference. Stages whose result depends on
// an approximation are compared with what the reference makes of the device's own input to them,
// so that errors do not add up and every bound is that of one operation.
#include "runtime/check/tensor_core_rule.h"
#include "runtime/reference/number_formats.h"
#include "tests/gpu/test_layer.h"
#include "tests/support/edge_cases.h"
#include "tests/support/matchers.h"
#include "tests/support/reference_layer.h"
#include "tests/tested_target.h"

#include <cmath>
#include <gtest/gtest.h>
#include <tuple>

namespace moejit::testing {
namespace {

using compiler::Dispatch;
using reference::QuantizedRows;
using reference::QuantizedWeights;
using reference::ReferenceForward;

// A case, what is dispatched, how many scale blocks share a scale, and whether the activation may
// be part of the first GEMM.
using LayerParam = std::tuple<std::string, Dispatch, int64_t, bool>;

class LayerTest : public ::testing::TestWithParam<LayerParam> {
 protected:
  void SetUp() override {
    if (test_device().device == nullptr) GTEST_SKIP() << test_device().reason;
    auto found = edge_case(std::get<0>(GetParam()));
    ASSERT_TRUE(found);
    edge_ = std::move(*found);
    edge_.shape.sharing = std::get<2>(GetParam());
    wanted_ = reference_forward(edge_.shape, edge_.inputs);
    auto layer = TestLayer::create(edge_.shape, {.max_tokens = kMaxTokens,
                                                 .dispatch = std::get<1>(GetParam()),
                                                 .fuse_activation = std::get<3>(GetParam())});
    ASSERT_TRUE(succeeded(layer));
    layer_ = std::move(*layer);
    ASSERT_TRUE(succeeded(layer_->set_weights(edge_.inputs)));
    ASSERT_TRUE(succeeded(layer_->run(edge_.inputs)));
  }

  int64_t rows() const { return wanted_.offs.back(); }
  reference::Route route() const {
    return {.counts = wanted_.counts, .offs = wanted_.offs, .row_map = wanted_.row_map};
  }
  template <typename T>
  std::vector<T> read_rows(std::string_view name, int64_t columns) {
    return layer_->read<T>(name, rows() * columns);
  }
  QuantizedRows device_rows(std::string_view q, std::string_view scale_inv, int64_t columns) {
    return {.rows = rows(),
            .cols = columns,
            .q = read_rows<uint8_t>(q, columns),
            .scale_inv = read_rows<float>(scale_inv, reference::block_count(columns))};
  }
  QuantizedWeights weights(const char* name, int64_t n, int64_t k, int64_t sections) {
    const bool is_first = std::string_view(name) == "w1";
    return {.experts = edge_.shape.experts,
            .rows = n,
            .cols = k,
            .sections = sections,
            .q = is_first ? wanted_.w1_q : wanted_.w2_q,
            .scale_inv = is_first ? wanted_.w1_scale_inv : wanted_.w2_scale_inv};
  }

  void expect_exact_route();
  void expect_exact_weights();
  void expect_exact_permuted_rows();
  void expect_gemm(const char* name, QuantizedRows a, const QuantizedWeights& b);
  void expect_activation();
  void expect_exact_sums();

  static constexpr int64_t kMaxTokens = 192;
  EdgeCase edge_;
  ReferenceForward wanted_;
  std::unique_ptr<TestLayer> layer_;
};

void LayerTest::expect_exact_route() {
  EXPECT_EQ(layer_->read<uint32_t>("status"), std::vector<uint32_t>{wanted_.status});
  EXPECT_TRUE(matches(compare_i32({"counts"}, layer_->read<int32_t>("counts"), wanted_.counts)));
  EXPECT_TRUE(matches(compare_i32({"offs"}, layer_->read<int32_t>("offs"), wanted_.offs)));
  EXPECT_TRUE(matches(compare_i32({"row_map", edge_.shape.top_k}, layer_->read<int32_t>("row_map"),
                                  wanted_.row_map)));
}

void LayerTest::expect_exact_weights() {
  const int64_t h = edge_.shape.hidden, i = edge_.shape.intermediate;
  EXPECT_TRUE(matches(compare_e4m3({"w1_q", h}, layer_->read<uint8_t>("w1_q"), wanted_.w1_q)));
  EXPECT_TRUE(matches(compare_f32({"w1_scale_inv", reference::block_count(h)},
                                  layer_->read<float>("w1_scale_inv"), wanted_.w1_scale_inv)));
  EXPECT_TRUE(matches(compare_e4m3({"w2_q", i}, layer_->read<uint8_t>("w2_q"), wanted_.w2_q)));
  EXPECT_TRUE(matches(compare_f32({"w2_scale_inv", reference::block_count(i)},
                                  layer_->read<float>("w2_scale_inv"), wanted_.w2_scale_inv)));
}

void LayerTest::expect_exact_permuted_rows() {
  const int64_t h = edge_.shape.hidden, blocks = reference::block_count(h);
  EXPECT_TRUE(matches(compare_e4m3({"x_q", h}, layer_->read<uint8_t>("x_q"), wanted_.x_q)));
  EXPECT_TRUE(matches(compare_f32({"x_scale_inv", blocks}, layer_->read<float>("x_scale_inv"),
                                  wanted_.x_scale_inv)));
  EXPECT_TRUE(matches(
      compare_e4m3({"permuted_q", h}, read_rows<uint8_t>("permuted_q", h), wanted_.permuted_q)));
  EXPECT_TRUE(matches(compare_f32({"permuted_scale_inv", blocks},
                                  read_rows<float>("permuted_scale_inv", blocks),
                                  wanted_.permuted_scale_inv)));
  EXPECT_TRUE(matches(compare_f32({"permuted_probs"}, read_rows<float>("permuted_probs", 1),
                                  wanted_.permuted_probs)));
}

void LayerTest::expect_gemm(const char* name, QuantizedRows a, const QuantizedWeights& b) {
  a.rule = check::tensor_core_rule(layer_->plan().target);
  const std::vector<uint8_t> mask = real_rows(route());
  EXPECT_TRUE(matches(compare_bf16({name, b.rows, mask}, read_rows<uint16_t>(name, b.rows),
                                   grouped_gemm(a, b, route(), edge_.shape.sharing))));
}

void LayerTest::expect_activation() {
  const int64_t i = edge_.shape.intermediate, blocks = reference::block_count(i);
  const auto h1 = read_rows<uint16_t>("h1", 2 * i);
  const auto probs = read_rows<float>("permuted_probs", 1);
  const QuantizedRows wanted =
      reference::activation_quantize(h1, probs, route(), i, edge_.shape.sharing);
  const QuantizedRows got = device_rows("act_q", "act_scale_inv", i);
  EXPECT_TRUE(matches(compare_f32({"act_scale_inv", blocks}, got.scale_inv, wanted.scale_inv)));
  EXPECT_TRUE(matches(compare_e4m3_within_one_code({"act_q", i}, got.q, wanted.q)));
}

void LayerTest::expect_exact_sums() {
  const auto h2 = read_rows<uint16_t>("h2", edge_.shape.hidden);
  const auto wanted = reference::unpermute(h2, wanted_.row_map, edge_.inputs.tokens,
                                           edge_.shape.top_k, edge_.shape.hidden);
  EXPECT_TRUE(
      matches(compare_bf16({"y", edge_.shape.hidden}, layer_->read<uint16_t>("y"), wanted)));
}

TEST_P(LayerTest, MatchesTheReferenceInEveryTensor) {
  const int64_t h = edge_.shape.hidden, i = edge_.shape.intermediate;
  expect_exact_route();
  expect_exact_weights();
  expect_exact_permuted_rows();
  expect_gemm("h1", device_rows("permuted_q", "permuted_scale_inv", h), weights("w1", 2 * i, h, 2));
  expect_activation();
  expect_gemm("h2", device_rows("act_q", "act_scale_inv", i), weights("w2", h, i, 1));
  expect_exact_sums();
  if (edge_.name == "exact") {
    EXPECT_TRUE(matches(compare_bf16({"y", h}, layer_->read<uint16_t>("y"), wanted_.y)));
  }
  EXPECT_EQ(layer_->damage(), std::vector<std::string>{});
}

std::string name_of(const ::testing::TestParamInfo<LayerTest::ParamType>& test) {
  const bool is_fused = std::get<1>(test.param) == Dispatch::kNone;
  const bool is_shared = std::get<2>(test.param) > 1;
  return std::get<0>(test.param) + (is_fused ? "" : "_dispatched") + (is_shared ? "_shared" : "") +
         (std::get<3>(test.param) ? "" : "_apart");
}

INSTANTIATE_TEST_SUITE_P(EdgeCases, LayerTest,
                         ::testing::Combine(::testing::ValuesIn(edge_case_names()),
                                            ::testing::Values(Dispatch::kNone),
                                            ::testing::Values(1), ::testing::Values(true)),
                         name_of);

// Quantize and permute_pad as kernels of their own. The simulator takes its time: a few cases.
std::vector<std::string> dispatched_case_names() {
  if (tested_target() != "sim") return edge_case_names();
  return {"one_token", "rows_129", "zero_probability", "row_overflow", "special_values"};
}

INSTANTIATE_TEST_SUITE_P(DispatchedEdgeCases, LayerTest,
                         ::testing::Combine(::testing::ValuesIn(dispatched_case_names()),
                                            ::testing::Values(Dispatch::kFp8), ::testing::Values(1),
                                            ::testing::Values(true)),
                         name_of);

// The activation as a kernel of its own.
std::vector<std::string> unfused_case_names() {
  if (tested_target() != "sim") return edge_case_names();
  return {"one_token", "rows_129", "experts_7_hidden_16_intermediate_272", "alignment_1",
          "special_values"};
}

INSTANTIATE_TEST_SUITE_P(UnfusedEdgeCases, LayerTest,
                         ::testing::Combine(::testing::ValuesIn(unfused_case_names()),
                                            ::testing::Values(Dispatch::kNone),
                                            ::testing::Values(1), ::testing::Values(false)),
                         name_of);

std::vector<std::string> shared_scale_case_names() {
  if (tested_target() != "sim") return edge_case_names();
  return {"rows_129", "special_values"};
}

INSTANTIATE_TEST_SUITE_P(SharedScales, LayerTest,
                         ::testing::Combine(::testing::ValuesIn(shared_scale_case_names()),
                                            ::testing::Values(Dispatch::kNone, Dispatch::kFp8),
                                            ::testing::Values(2), ::testing::Values(true)),
                         name_of);

}  // namespace
}  // namespace moejit::testing
