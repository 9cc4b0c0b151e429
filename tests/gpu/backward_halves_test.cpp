// SPDX-License-Identifier: Apache-2.0
// Backward passes in two halves: together they leave the bits of one call.
#include "tests/gpu/gradient_cases.h"

namespace moejit::testing {
namespace {

using compiler::Gradient;

class BackwardHalves : public ::testing::TestWithParam<GradientCase> {
 protected:
  void SetUp() override {
    if (test_device().device == nullptr) GTEST_SKIP() << test_device().reason;
  }
  // A layer with halves, forward done.
  static void make(GradientLayer& layer, std::vector<Gradient> gradients = {}) {
    TestLayer::Options options = GetParam().options;
    options.gradients = std::move(gradients);
    options.backward_halves = true;
    layer.make(options);
  }
};

TEST_P(BackwardHalves, GiveTheBitsOfTheWhole) {
  for (const GradientMode mode : {GradientMode::kOverwrite, GradientMode::kAdd}) {
    SCOPED_TRACE(mode == GradientMode::kAdd ? "adds" : "overwrites");
    GradientLayer plain, whole, halves;
    ASSERT_NO_FATAL_FAILURE(plain.make(GetParam().options));
    ASSERT_TRUE(succeeded(plain.layer().backward(mode)));
    const auto wanted = plain.gradients();
    ASSERT_NO_FATAL_FAILURE(make(whole));
    ASSERT_TRUE(succeeded(whole.layer().backward(mode)));
    EXPECT_TRUE(whole.gradients() == wanted);
    ASSERT_NO_FATAL_FAILURE(make(halves));
    ASSERT_TRUE(succeeded(halves.layer().backward_data()));
    const auto after_data = halves.gradients();
    EXPECT_TRUE(after_data.at("dx") == wanted.at("dx"));
    EXPECT_TRUE(after_data.at("dprobs") == wanted.at("dprobs"));
    ASSERT_TRUE(succeeded(halves.layer().poison()));  // the workspace, dx and dprobs
    const std::vector<std::byte> dx = halves.gradients().at("dx");
    ASSERT_TRUE(succeeded(halves.layer().backward_weights(mode)));
    auto after_both = halves.gradients();
    EXPECT_TRUE(after_both.at("dx") == dx);
    for (const auto& [name, bytes] : wanted) {
      const bool is_of_data = name == "dx" || name == "dprobs";
      EXPECT_TRUE(is_of_data || after_both.at(name) == bytes) << name;
    }
    EXPECT_EQ(halves.layer().damage(), std::vector<std::string>{});
  }
}

// Frozen experts, frozen tokens, one weight and the bits of a bias, and nothing for one of the
// halves.
TEST_P(BackwardHalves, ComputeSomeGradientsOnly) {
  using enum Gradient;
  std::vector<std::vector<Gradient>> lists = {{kDx, kDprobs}, {kDprobs},   {kDw1, kDw2},
                                              {kDw2},         {kDx, kDw1}, {kDprobs, kDw2}};
  if (GetParam().options.biases) {
    lists.push_back({kDx, kDb1});
    lists.push_back({kDprobs, kDb2});
    lists.push_back({kDx, kDw2, kDb1, kDb2});
  }
  GradientLayer all;
  ASSERT_NO_FATAL_FAILURE(all.make(GetParam().options));
  ASSERT_TRUE(succeeded(all.layer().backward(GradientMode::kOverwrite)));
  const auto wanted = all.gradients();
  for (const auto& list : lists) {
    GradientLayer halves;
    ASSERT_NO_FATAL_FAILURE(make(halves, list));
    ASSERT_TRUE(succeeded(halves.layer().backward_data()));
    ASSERT_TRUE(succeeded(halves.layer().backward_weights(GradientMode::kOverwrite)));
    const auto got = halves.gradients();
    EXPECT_EQ(got.size(), list.size());
    for (const auto& [name, bytes] : got) EXPECT_TRUE(bytes == wanted.at(name)) << name;
  }
}

// All but dw1 and db1 is complete between the parts, and the workspace is free. Where the recipe
// can cast columns of weights in backward, it does.
TEST_P(BackwardHalves, OfLinearsGiveTheBitsOfTheWhole) {
  for (const bool adds : {false, true}) {
    const GradientMode mode = adds ? GradientMode::kAdd : GradientMode::kOverwrite;
    GradientLayer plain, parts;
    ASSERT_NO_FATAL_FAILURE(plain.make(GetParam().options));
    ASSERT_TRUE(succeeded(plain.layer().backward(mode)));
    const auto wanted = plain.gradients();
    TestLayer::Options options = GetParam().options;
    options.backward_linears = true;
    options.backward_quantizes_weights =
        GetParam().options.recipe.weights == compiler::kTiles128x128;
    ASSERT_NO_FATAL_FAILURE(parts.make(options));
    ASSERT_TRUE(succeeded(parts.layer().call(adds ? "backward_fc2+add" : "backward_fc2")));
    const auto is_later = [](std::string_view name) { return name == "dw1" || name == "db1"; };
    for (const auto& [name, bytes] : parts.gradients())
      EXPECT_TRUE(is_later(name) || bytes == wanted.at(name)) << name;
    ASSERT_TRUE(succeeded(parts.layer().poison()));  // the workspace, dx and dprobs
    ASSERT_TRUE(succeeded(parts.layer().call(adds ? "backward_fc1+add" : "backward_fc1")));
    for (const auto& [name, bytes] : parts.gradients())
      EXPECT_TRUE(!is_later(name) || bytes == wanted.at(name)) << name;
    EXPECT_EQ(parts.layer().damage(), std::vector<std::string>{});
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, BackwardHalves, ::testing::ValuesIn(gradient_cases()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace moejit::testing
