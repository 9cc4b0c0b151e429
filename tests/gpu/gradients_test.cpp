// SPDX-License-Identifier: Apache-2.0
// Layers that compute some of their gradients: each of these has the bits of the layer that
// computes all of them.
#include "tests/gpu/gradient_cases.h"

#include <bit>

namespace moejit::testing {
namespace {

using compiler::Gradient;

std::string name_of(const std::vector<Gradient>& gradients) {
  std::string name;
  for (const Gradient gradient : gradients) name += std::string(to_string(gradient)) + " ";
  return name;
}

// Every list but the empty one and, which is another, that of all; or of these the lists of one
// gradient, and of all but one.
std::vector<std::vector<Gradient>> subsets_of(const std::vector<Gradient>& all, bool takes_every) {
  std::vector<std::vector<Gradient>> subsets;
  for (unsigned bits = 1; bits + 1 < 1U << all.size(); ++bits) {
    const auto count = static_cast<size_t>(std::popcount(bits));
    if (!takes_every && count != 1 && count + 1 != all.size()) continue;
    std::vector<Gradient> subset;
    for (size_t i = 0; i < all.size(); ++i)
      if ((bits >> i & 1) != 0) subset.push_back(all[i]);
    subsets.push_back(std::move(subset));
  }
  return subsets;
}

class Gradients : public ::testing::TestWithParam<GradientCase> {
 protected:
  void SetUp() override {
    if (test_device().device == nullptr) GTEST_SKIP() << test_device().reason;
  }
};

// The planner drops what nobody reads. Where lists of one gradient and of all but one are right,
// others have what either needs; two cases take every list.
TEST_P(Gradients, HaveTheSameBitsWhereOthersAreNotComputed) {
  GradientLayer all;
  ASSERT_NO_FATAL_FAILURE(all.make(GetParam().options));
  ASSERT_TRUE(succeeded(all.layer().backward(GradientMode::kOverwrite)));
  const auto wanted = all.gradients();
  const std::string& name = GetParam().name;
  const bool takes_every = name == "fp8_with_biases" || name == "bf16";
  for (const auto& subset : subsets_of(all_gradients(*all.layer().plan().layer), takes_every)) {
    SCOPED_TRACE(name_of(subset));
    TestLayer::Options options = GetParam().options;
    options.gradients = subset;
    GradientLayer some;
    ASSERT_NO_FATAL_FAILURE(some.make(options));
    ASSERT_TRUE(succeeded(some.layer().backward(GradientMode::kOverwrite)));
    const auto got = some.gradients();
    EXPECT_EQ(got.size(), subset.size());
    for (const auto& [tensor, bytes] : got) EXPECT_TRUE(bytes == wanted.at(tensor)) << tensor;
    EXPECT_EQ(some.layer().damage(), std::vector<std::string>{});
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, Gradients, ::testing::ValuesIn(gradient_cases()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace moejit::testing
