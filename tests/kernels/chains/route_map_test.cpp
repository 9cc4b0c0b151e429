// SPDX-License-Identifier: Apache-2.0
#include "runtime/reference/random_inputs.h"
#include "runtime/reference/route.h"
#include "templates/moejit_device/params/route_params.h"
#include "tests/kernels/chains/chain_runner.h"

namespace moejit::testing {
namespace {

class RouteMapKernel : public Chains {
 protected:
  // Routes on the device and compares everything with the reference. Returns the status.
  uint32_t expect_equal(const reference::LayerShape& shape, const std::vector<uint8_t>& map,
                        int32_t warps, int64_t ctas = 1) {
    const int64_t tokens = static_cast<int64_t>(map.size()) / shape.experts;
    const reference::Route wanted = reference::route_map(map, tokens, shape);
    const DeviceBuffer given = input("routing_map", map);
    const DeviceBuffer counts = output<int32_t>("counts", shape.experts);
    const DeviceBuffer offs = output<int32_t>("offs", shape.experts + 1);
    const DeviceBuffer colwise_offs = output<int32_t>("colwise_offs", shape.experts + 1);
    const DeviceBuffer row_map = output<int32_t>("row_map", tokens * shape.top_k);
    const DeviceBuffer status = output<uint32_t>("status", 1);
    fill(status, kBitsOfOthers);
    const device::RouteParams params{.topk_ids = given.as<const void>(),
                                     .counts = counts.as<int32_t>(),
                                     .offs = offs.as<int32_t>(),
                                     .colwise_offs = colwise_offs.as<int32_t>(),
                                     .row_map = row_map.as<int32_t>(),
                                     .status = status.as<uint32_t>(),
                                     .tokens = tokens,
                                     .max_rows = shape.max_rows,
                                     .saved_tokens = nullptr};
    run(compiler::RouteMapSpec{.local_experts = static_cast<int32_t>(shape.experts),
                               .top_k = static_cast<int32_t>(shape.top_k),
                               .splits_alignment = static_cast<int32_t>(shape.alignment),
                               .has_colwise_offs = true,
                               .warps = warps},
        ctas, params, {&given, &counts, &offs, &colwise_offs, &row_map, &status});
    std::vector<int32_t> columns = {0};
    for (const int32_t count : wanted.counts)
      columns.push_back(columns.back() + (count + 127) / 128 * 128);
    EXPECT_TRUE(matches(compare_i32({"counts"}, counts.download<int32_t>(), wanted.counts)));
    EXPECT_TRUE(matches(compare_i32({"offs"}, offs.download<int32_t>(), wanted.offs)));
    EXPECT_TRUE(matches(compare_i32({"colwise_offs"}, colwise_offs.download<int32_t>(), columns)));
    EXPECT_TRUE(matches(
        compare_i32({"row_map", shape.top_k}, row_map.download<int32_t>(), wanted.row_map)));
    EXPECT_EQ(status.download<uint32_t>().front(), 0x01010101u * kBitsOfOthers | wanted.status);
    return wanted.status;
  }

  // The kernel sets two bits and leaves the rest alone.
  static constexpr uint8_t kBitsOfOthers = 0x40;

  // Returns a map in which a byte is not 0 with this probability. Any number from 1 to 255 counts.
  static std::vector<uint8_t> random_map(int64_t tokens, const reference::LayerShape& shape,
                                         double share, uint64_t seed) {
    const reference::RandomStream random(seed, 0);
    std::vector<uint8_t> map(static_cast<size_t>(tokens * shape.experts));
    for (size_t i = 0; i < map.size(); ++i)
      if (random.uniform(i) < share) map[i] = static_cast<uint8_t>(1 + i % 255);
    return map;
  }

  static reference::LayerShape shape_for(int64_t tokens, reference::LayerShape shape) {
    shape.max_rows = reference::enough_rows(tokens, shape);
    return shape;
  }
};

// Bytes of a token are read 16, 4 or one at a time; experts beyond 32 are a warp's second step.
TEST_F(RouteMapKernel, EqualsTheReferenceForAnyNumberOfExpertsAndCtas) {
  for (const int64_t experts : {1, 7, 12, 48, 100}) {
    for (const int64_t ctas : {1, 3, 16}) {
      const reference::LayerShape shape =
          shape_for(333, {.experts = experts, .top_k = experts, .alignment = 16});
      EXPECT_EQ(expect_equal(shape, random_map(333, shape, 0.15, 1), 2, ctas), 0u);
    }
  }
}

TEST_F(RouteMapKernel, IsStableForAnyNumberOfWarps) {
  const reference::LayerShape shape{.experts = 7, .top_k = 3, .alignment = 1};
  for (const int32_t warps : {1, 5, 32}) {
    for (const int64_t tokens : {1, 31, 33, 777}) {
      const reference::LayerShape of_tokens = shape_for(tokens, shape);
      expect_equal(of_tokens, random_map(tokens, of_tokens, 0.3, 2), warps, 2);
    }
  }
}

TEST_F(RouteMapKernel, DoesNotDependOnTheOrderOfThreads) {
  const reference::LayerShape shape = shape_for(200, {.experts = 48, .top_k = 6, .alignment = 128});
  const std::vector<uint8_t> map = random_map(200, shape, 0.08, 3);
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    open(seed);
    expect_equal(shape, map, 8, 3);
  }
}

TEST_F(RouteMapKernel, KeepsTheFirstExpertsOfATokenThatHasTooMany) {
  for (const int64_t experts : {7, 48}) {
    const reference::LayerShape shape =
        shape_for(100, {.experts = experts, .top_k = 3, .alignment = 1});
    const std::vector<uint8_t> map = random_map(100, shape, 0.5, 4);
    for (const int64_t ctas : {1, 4})
      EXPECT_EQ(expect_equal(shape, map, 5, ctas), reference::kTooManyExperts);
  }
}

TEST_F(RouteMapKernel, TakesAThousandExperts) {
  const reference::LayerShape shape = shape_for(64, {.experts = 1024, .top_k = 40, .alignment = 8});
  EXPECT_EQ(expect_equal(shape, random_map(64, shape, 0.02, 5), 32, 2), 0u);
}

TEST_F(RouteMapKernel, DropsRowsBeyondTheBound) {
  reference::LayerShape shape{.experts = 7, .top_k = 7, .alignment = 16};
  const std::vector<uint8_t> map = random_map(40, shape, 0.3, 6);
  for (shape.max_rows = 0; shape.max_rows <= 160; shape.max_rows += 32)
    for (const int64_t ctas : {1, 4}) expect_equal(shape, map, 5, ctas);
}

TEST_F(RouteMapKernel, RoutesNoTokens) {
  expect_equal({.experts = 48, .top_k = 6, .alignment = 1, .max_rows = 0}, {}, 8);
}

}  // namespace
}  // namespace moejit::testing
