// SPDX-License-Identifier: Apache-2.0
// Layers whose experts are built otherwise, with both recipes: every tensor of both passes against
// the CPU reference, and the whole against a layer without intermediate rounding.
#include "runtime/check/check_activation.h"
#include "runtime/reference/layouts.h"
#include "runtime/reference/number_formats.h"
#include "runtime/reference/random_inputs.h"
#include "tests/gpu/layer_checks.h"
#include "tests/gpu/test_layer.h"
#include "tests/support/edge_cases.h"
#include "tests/support/layer_inputs.h"
#include "tests/support/matchers.h"
#include "tests/support/reference_layer.h"

#include <array>
#include <gtest/gtest.h>
#include <tuple>

namespace moejit::testing {
namespace {

using compiler::Recipe;
using compiler::Recompute;
using reference::LayerInputs;
using reference::LayerShape;

// What experts have that others have not.
struct Variant {
  std::string name;
  compiler::Activation activation = {};
  compiler::GateUpLayout gate_up_layout = compiler::GateUpLayout::kConcat;
  bool biases = false;
};

std::vector<Variant> variants() {
  return {{.name = "relu_squared", .activation = compiler::make_activation("relu_squared").value()},
          {.name = "silu_of_up", .activation = compiler::parse_activation("silu(up)").value()},
          {.name = "interleaved", .gate_up_layout = compiler::GateUpLayout::kInterleaved},
          {.name = "interleaved_clamped",
           .activation = compiler::make_activation("clamped_swiglu").value(),
           .gate_up_layout = compiler::GateUpLayout::kInterleaved},
          {.name = "biases", .biases = true},
          {.name = "gpt_oss",
           .activation = compiler::make_activation("clamped_swiglu").value(),
           .gate_up_layout = compiler::GateUpLayout::kInterleaved,
           .biases = true},
          {.name = "relu_squared_biases",
           .activation = compiler::make_activation("relu_squared").value(),
           .biases = true}};
}

Variant variant(std::string_view name) {
  for (const Variant& one : variants())
    if (one.name == name) return one;
  return {};
}

class ExpertVariant : public ::testing::Test {
 protected:
  void SetUp() override {
    if (test_device().device == nullptr) GTEST_SKIP() << test_device().reason;
  }

  // Makes the layer of an edge case, whose w1 has the rows of a gate.
  void make(const Variant& of, Recipe recipe, EdgeCase edge, TestLayer::Options options = {}) {
    shape_ = edge.shape;
    inputs_ = std::move(edge.inputs);
    activation_ = check::reference_of(of.activation);
    shape_.has_gate = activation_.has_gate;
    if (!shape_.has_gate) drop_gate();
    shape_.is_interleaved = of.gate_up_layout == compiler::GateUpLayout::kInterleaved;
    if (shape_.is_interleaved)
      inputs_.w1 = reference::interleaved<uint16_t>(inputs_.w1, shape_.intermediate, shape_.hidden);
    if (of.biases) {
      const int64_t columns = w1_sections(shape_) * shape_.intermediate;
      inputs_.b1 = reference::random_activations(shape_.experts, columns, 31);
      inputs_.b2 = reference::random_activations(shape_.experts, shape_.hidden, 32);
    }
    if (recipe == Recipe::kBf16) shape_.alignment = 64;
    options.max_tokens = std::max({int64_t{1}, options.max_tokens, inputs_.tokens});
    if (!edge.name.starts_with("row_overflow") || recipe == Recipe::kBf16)
      shape_.max_rows = reference::enough_rows(options.max_tokens, shape_);
    options.recipe = recipe;
    options.activation = of.activation;
    options.gate_up_layout = of.gate_up_layout;
    options.biases = of.biases;
    options.has_backward = true;
    auto layer = TestLayer::create(shape_, options);
    ASSERT_TRUE(succeeded(layer));
    layer_ = std::move(*layer);
    ASSERT_TRUE(succeeded(layer_->set_weights(inputs_)));
    ASSERT_TRUE(succeeded(layer_->run(inputs_)));
    dy_ = reference::random_activations(inputs_.tokens, shape_.hidden, 77);
    ASSERT_TRUE(succeeded(layer_->set_gradient(dy_)));
    ASSERT_TRUE(succeeded(layer_->set_weight_gradients(3.0F)));
  }
  void drop_gate() {
    const auto half = inputs_.w1.size() / (2 * static_cast<size_t>(shape_.experts));
    std::vector<uint16_t> up;
    for (auto gate = inputs_.w1.begin(); gate != inputs_.w1.end(); gate += 2 * half)
      up.insert(up.end(), gate + half, gate + 2 * half);
    inputs_.w1 = std::move(up);
  }

  void backward(GradientMode mode = GradientMode::kOverwrite) {
    ASSERT_TRUE(succeeded(layer_->backward(mode)));
    ASSERT_TRUE(succeeded(test_device().device->synchronize(nullptr)));
  }
  std::vector<std::vector<std::byte>> gradients() {
    std::vector<std::vector<std::byte>> all;
    for (const std::string_view name : {"y", "dx", "dprobs", "dw1", "dw2", "db1", "db2"})
      all.push_back(layer_->read<std::byte>(name));
    return all;
  }
  // Returns w1, b1 or a gradient of theirs as layers without the variant have it.
  template <typename T>
  std::vector<T> gate_first(const std::vector<T>& rows, int64_t columns) const {
    if (!shape_.is_interleaved) return rows;
    return reference::gate_first<T>(rows, shape_.intermediate, columns);
  }
  std::vector<double> doubles(std::string_view name) {
    if (name == "dx") {
      std::vector<double> values;
      for (const uint16_t bits : layer_->read<uint16_t>(name))
        values.push_back(reference::float_from_bf16(bits));
      return values;
    }
    std::vector<float> values = layer_->read<float>(name);
    if (name == "dw1") values = gate_first(values, shape_.hidden);
    if (name == "db1") values = gate_first(values, 1);
    return {values.begin(), values.end()};
  }

  std::unique_ptr<TestLayer> layer_;
  LayerShape shape_;
  LayerInputs inputs_;
  reference::GatedActivation activation_ = reference::swiglu_activation();
  std::vector<uint16_t> dy_;
};

using VariantParam = std::tuple<std::string, Recipe, std::string>;
class ExpertVariants : public ExpertVariant, public ::testing::WithParamInterface<VariantParam> {};

TEST_P(ExpertVariants, MatchTheReferenceInEveryTensor) {
  const auto& [name, recipe, of] = GetParam();
  auto edge = edge_case(name);
  ASSERT_TRUE(edge);
  // For so many that tiles are not swapped; those of the tests below are.
  ASSERT_NO_FATAL_FAILURE(make(variant(of), recipe, std::move(*edge), {.max_tokens = 256}));
  ASSERT_NO_FATAL_FAILURE(backward());
  expect_reference(*layer_, inputs_, dy_);
}

std::string name_of(const ::testing::TestParamInfo<VariantParam>& test) {
  return std::get<2>(test.param) + "_" + std::string(to_string(std::get<1>(test.param))) + "_" +
         std::get<0>(test.param);
}

INSTANTIATE_TEST_SUITE_P(
    EdgeCases, ExpertVariants,
    ::testing::Combine(::testing::Values("empty_first_expert", "zero_probability", "rows_129",
                                         "row_overflow", "special_weights",
                                         "experts_4_hidden_272_intermediate_144",
                                         "experts_7_hidden_16_intermediate_272", "alignment_1"),
                       ::testing::Values(Recipe::kFp8Flow, Recipe::kBf16),
                       ::testing::Values("relu_squared", "interleaved", "biases")),
    name_of);
INSTANTIATE_TEST_SUITE_P(
    Others, ExpertVariants,
    ::testing::Combine(::testing::Values("experts_4_hidden_272_intermediate_144"),
                       ::testing::Values(Recipe::kFp8Flow, Recipe::kBf16),
                       ::testing::Values("silu_of_up", "gpt_oss", "relu_squared_biases")),
    name_of);

EdgeCase random_case(uint64_t seed) {
  const LayerShape shape{.experts = 4,
                         .top_k = 2,
                         .hidden = 272,
                         .intermediate = 144,
                         .alignment = 64,
                         .max_rows = 640};
  return {.name = "random", .shape = shape, .inputs = reference::random_inputs(shape, 96, seed)};
}

class EveryVariant : public ExpertVariant,
                     public ::testing::WithParamInterface<std::tuple<Recipe, std::string>> {
 protected:
  Recipe recipe() const { return std::get<0>(GetParam()); }
  Variant of() const { return variant(std::get<1>(GetParam())); }
};

TEST_P(EveryVariant, GivesTheSameBitsWithRecomputationAndInSharedWorkspace) {
  ASSERT_NO_FATAL_FAILURE(make(of(), recipe(), random_case(6)));
  ASSERT_NO_FATAL_FAILURE(backward());
  const auto wanted = gradients();
  for (const Recompute recompute : {Recompute::kNone, Recompute::kMoeExpert}) {
    ASSERT_NO_FATAL_FAILURE(make(of(), recipe(), random_case(6),
                                 {.keep_intermediates = false, .recompute = recompute}));
    ASSERT_TRUE(succeeded(layer_->poison()));
    ASSERT_TRUE(succeeded(layer_->forward()));
    ASSERT_NO_FATAL_FAILURE(backward());
    EXPECT_EQ(gradients(), wanted);
    EXPECT_EQ(layer_->damage(), std::vector<std::string>{});
  }
}

TEST_P(EveryVariant, AddsExactlyWhatItWouldWrite) {
  ASSERT_NO_FATAL_FAILURE(make(of(), recipe(), random_case(5)));
  ASSERT_NO_FATAL_FAILURE(backward());
  constexpr float kOld = 0.75F;
  const auto all = [&] {
    std::vector<std::vector<float>> of_all;
    for (const std::string_view name : {"dw1", "dw2", "db1", "db2"})
      of_all.push_back(layer_->read<float>(name));
    return of_all;
  };
  std::vector<std::vector<float>> wanted = all();
  for (std::vector<float>& gradient : wanted)
    for (float& value : gradient) value += kOld;
  ASSERT_TRUE(succeeded(layer_->set_weight_gradients(kOld)));
  ASSERT_NO_FATAL_FAILURE(backward(GradientMode::kAdd));
  const std::vector<std::vector<float>> got = all();
  for (size_t i = 0; i < got.size(); ++i)
    EXPECT_TRUE(matches(compare_f32({"gradient"}, got[i], wanted[i]))) << i;
}

TEST_P(EveryVariant, RoundsGradientsOfBf16Once) {
  const std::array names = {"dw1", "dw2"};
  ASSERT_NO_FATAL_FAILURE(make(of(), recipe(), random_case(9)));
  ASSERT_NO_FATAL_FAILURE(backward());
  const std::array sums = {layer_->read<float>(names[0]), layer_->read<float>(names[1])};
  const auto expect_rounded = [&](const auto& sum_of) {
    for (size_t i = 0; i < names.size(); ++i) {
      const auto got = layer_->read<uint16_t>(names[i]);
      std::vector<uint16_t> wanted;
      for (const float sum : sums[i]) wanted.push_back(reference::bf16_from_float(sum_of(sum)));
      EXPECT_TRUE(matches(compare_bf16({names[i]}, got, wanted)));
    }
  };
  ASSERT_NO_FATAL_FAILURE(
      make(of(), recipe(), random_case(9), {.wgrad_dtype = compiler::WgradDtype::kBf16}));
  ASSERT_NO_FATAL_FAILURE(backward());
  expect_rounded([](float sum) { return sum; });
  expect_reference(*layer_, inputs_, dy_);
  ASSERT_NO_FATAL_FAILURE(backward(GradientMode::kAdd));
  expect_rounded(
      [](float sum) { return reference::float_from_bf16(reference::bf16_from_float(sum)) + sum; });
}

// Quantized copies of w1 do not know in which order its rows came, and a GEMM's column or row does
// not depend on its neighbours. In bf16 the contraction of dx has another order.
TEST_F(ExpertVariant, GivesTheSameBitsInEitherLayout) {
  for (const Recipe& recipe : {Recipe::kFp8Flow, Recipe::kBf16}) {
    ASSERT_NO_FATAL_FAILURE(make({}, recipe, random_case(7)));
    ASSERT_NO_FATAL_FAILURE(backward());
    const auto wanted = gradients();
    const std::vector<float> wanted_dw1 = layer_->read<float>("dw1");
    ASSERT_NO_FATAL_FAILURE(make(variant("interleaved"), recipe, random_case(7)));
    ASSERT_NO_FATAL_FAILURE(backward());
    const auto got = gradients();
    EXPECT_EQ(got[0], wanted[0]) << "y";
    if (recipe != Recipe::kBf16) {
      EXPECT_EQ(got[1], wanted[1]) << "dx";
    }
    EXPECT_EQ(got[2], wanted[2]) << "dprobs";
    EXPECT_TRUE(
        matches(compare_f32({"dw1", shape_.hidden},
                            gate_first(layer_->read<float>("dw1"), shape_.hidden), wanted_dw1)));
    EXPECT_EQ(got[4], wanted[4]) << "dw2";
  }
}

// As backward_test.cpp and bf16_layer_test.cpp derive it. The square doubles the relative error of
// up, as silu's derivative does that of a large gate. A clamp's derivative jumps: where rounding
// takes a share s of the values across the limit, which one in 60 lies beyond, the error is
// sqrt(s). Drawn at random with such rounding, dw1 has a cosine of 1 - 5e-5 in the place of 1 -
// 4e-6 (bf16), and of 1 - 0.0033 in the place of 1 - 0.0011 (fp8): ten and three times as much is
// allowed.
TEST_P(EveryVariant, PointsWhereTheLayerWithoutRoundingPoints) {
  ASSERT_NO_FATAL_FAILURE(make(of(), recipe(), random_case(8)));
  ASSERT_NO_FATAL_FAILURE(backward());
  LayerInputs inputs = inputs_;
  inputs.w1 = gate_first(inputs.w1, shape_.hidden);
  inputs.b1 = gate_first(inputs.b1, 1);
  const reference::UnquantizedGradients wanted =
      reference::unquantized_backward(shape_, inputs, dy_, activation_);
  const bool clamps = of().activation.preset == "clamped_swiglu";
  const double cosine =
      recipe() == Recipe::kBf16 ? (clamps ? 0.9999 : 0.99999) : (clamps ? 0.985 : 0.995);
  EXPECT_GE(cosine_similarity(doubles("dx"), wanted.dx), cosine);
  EXPECT_GE(cosine_similarity(doubles("dw1"), wanted.dw1), cosine);
  EXPECT_GE(cosine_similarity(doubles("dw2"), wanted.dw2), cosine);
  EXPECT_GE(cosine_similarity(doubles("dprobs"), wanted.dprobs), cosine);
  if (inputs.b1.empty()) return;
  EXPECT_GE(cosine_similarity(doubles("db1"), wanted.db1), cosine);
  EXPECT_GE(cosine_similarity(doubles("db2"), wanted.db2), cosine);
}

INSTANTIATE_TEST_SUITE_P(All, EveryVariant,
                         ::testing::Combine(::testing::Values(Recipe::kFp8Flow, Recipe::kBf16),
                                            ::testing::Values("relu_squared", "interleaved",
                                                              "gpt_oss")),
                         [](const auto& test) {
                           return std::get<1>(test.param) + "_" +
                                  std::string(to_string(std::get<0>(test.param)));
                         });

}  // namespace
}  // namespace moejit::testing
