// SPDX-License-Identifier: Apache-2.0
#include "runtime/reference/route.h"

#include "runtime/reference/random_inputs.h"
#include "templates/moejit_device/params/route_params.h"
#include "tests/kernels/chains/chain_runner.h"
#include "tests/support/edge_cases.h"

namespace moejit::testing {
namespace {

class RouteKernel : public Chains {
 protected:
  // Routes on the device and compares everything with the reference.
  template <typename Id>
  void expect_equal(const reference::LayerShape& shape, const std::vector<Id>& topk_ids,
                    int32_t warps, int64_t ctas = 1) {
    const int64_t tokens = static_cast<int64_t>(topk_ids.size()) / shape.top_k;
    const reference::Route wanted = reference::route(topk_ids, tokens, shape);
    const DeviceBuffer ids = input("topk_ids", topk_ids);
    const DeviceBuffer counts = output<int32_t>("counts", shape.experts);
    const DeviceBuffer offs = output<int32_t>("offs", shape.experts + 1);
    const DeviceBuffer row_map = output<int32_t>("row_map", tokens * shape.top_k);
    const DeviceBuffer status = output<uint32_t>("status", 1);
    const DeviceBuffer saved_tokens = output<int64_t>("saved_tokens", 1);
    fill(status, kBitsOfOthers);
    const device::RouteParams params{.topk_ids = ids.template as<const void>(),
                                     .counts = counts.as<int32_t>(),
                                     .offs = offs.as<int32_t>(),
                                     .row_map = row_map.as<int32_t>(),
                                     .status = status.as<uint32_t>(),
                                     .tokens = tokens,
                                     .max_rows = shape.max_rows,
                                     .saved_tokens = saved_tokens.as<int64_t>()};
    const compiler::RouteSpec spec{
        .local_experts = static_cast<int32_t>(shape.experts),
        .top_k = static_cast<int32_t>(shape.top_k),
        .splits_alignment = static_cast<int32_t>(shape.alignment),
        .warps = warps,
        .topk_ids = sizeof(Id) == 8 ? compiler::DType::kI64 : compiler::DType::kI32,
        .ignores_foreign = shape.ignores_foreign};
    run(spec, ctas, params, {&ids, &counts, &offs, &row_map, &status, &saved_tokens});
    EXPECT_EQ(saved_tokens.download<int64_t>().front(), tokens);
    EXPECT_TRUE(matches(compare_i32({"counts"}, counts.download<int32_t>(), wanted.counts)));
    EXPECT_TRUE(matches(compare_i32({"offs"}, offs.download<int32_t>(), wanted.offs)));
    EXPECT_TRUE(matches(
        compare_i32({"row_map", shape.top_k}, row_map.download<int32_t>(), wanted.row_map)));
    EXPECT_EQ(status.download<uint32_t>().front(), 0x01010101u * kBitsOfOthers | wanted.status);
  }

  // Route sets its two bits and leaves the rest alone.
  static constexpr uint8_t kBitsOfOthers = 0x40;

  void expect_equal_on_random(reference::LayerShape shape, int64_t tokens, int32_t warps,
                              uint64_t seed, int64_t ctas = 1) {
    if (shape.max_rows == 0) shape.max_rows = reference::enough_rows(tokens, shape);
    expect_equal(shape,
                 reference::random_routing(tokens, shape.experts, shape.top_k, {seed},
                                           {.unrouted_share = 0.2, .may_repeat = true}),
                 warps, ctas);
  }

  static std::vector<int64_t> widened(const std::vector<int32_t>& ids) {
    return {ids.begin(), ids.end()};
  }
};

TEST_F(RouteKernel, EqualsTheReferenceOnTheEdgeCases) {
  for (const std::string& name : edge_case_names()) {
    SCOPED_TRACE(name);
    const EdgeCase layer = edge_case(name).value();
    expect_equal(layer.shape, layer.inputs.topk_ids, 4);
  }
}

TEST_F(RouteKernel, IsStableForAnyNumberOfWarps) {
  const reference::LayerShape shape{.experts = 7, .top_k = 3, .alignment = 16};
  for (const int32_t warps : {1, 2, 5, 32}) {
    for (const int64_t tokens : {1, 31, 32, 33, 777}) {
      expect_equal_on_random(shape, tokens, warps, static_cast<uint64_t>(tokens));
    }
  }
}

TEST_F(RouteKernel, IsStableForAnyNumberOfCtas) {
  const reference::LayerShape shape{.experts = 7, .top_k = 3, .alignment = 16};
  for (const int64_t ctas : {2, 3, 16}) {
    for (const int64_t tokens : {0, 1, 33, 777}) {
      expect_equal_on_random(shape, tokens, 2, static_cast<uint64_t>(tokens), ctas);
    }
  }
}

TEST_F(RouteKernel, DoesNotDependOnTheOrderOfThreads) {
  const reference::LayerShape shape{.experts = 160, .top_k = 6, .alignment = 128};
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    open(seed);
    expect_equal_on_random(shape, 200, 8, seed);
  }
}

TEST_F(RouteKernel, TakesThousandsOfExperts) {
  const reference::LayerShape shape{.experts = 4096, .top_k = 3, .alignment = 48};
  expect_equal_on_random(shape, 500, 12, 1);
}

TEST_F(RouteKernel, DropsRowsBeyondTheBoundWhereverItLies) {
  for (int64_t max_rows = 0; max_rows <= 160; max_rows += 16) {
    const reference::LayerShape shape{
        .experts = 7, .top_k = 3, .alignment = 16, .max_rows = max_rows};
    const auto ids = reference::random_routing(40, 7, 3, {3}, {.unrouted_share = 0.1});
    for (const int64_t ctas : {1, 4}) expect_equal(shape, ids, 5, ctas);
  }
}

TEST_F(RouteKernel, RoutesNoTokens) {
  expect_equal({.experts = 160, .top_k = 6, .alignment = 1, .max_rows = 0}, std::vector<int32_t>{},
               8);
}

TEST_F(RouteKernel, EqualsTheReferenceOnTheEdgeCasesWithIdsOf64Bits) {
  for (const std::string& name : edge_case_names()) {
    SCOPED_TRACE(name);
    const EdgeCase layer = edge_case(name).value();
    expect_equal(layer.shape, widened(layer.inputs.topk_ids), 4);
  }
}

// Their low 32 bits are ids of experts, or -1.
TEST_F(RouteKernel, JudgesIdsBy64Bits) {
  constexpr int64_t k32 = int64_t{1} << 32, kHighest = INT64_MAX, kLowest = INT64_MIN;
  reference::LayerShape shape{.experts = 3, .top_k = 2, .alignment = 4, .max_rows = 32};
  const std::vector<int64_t> foreign = {0, k32, 1, k32 + 1, k32 - 1, 2, kHighest, -1};
  const std::vector<int64_t> bad = {0, -k32, 1, -k32 + 2, kLowest, 2, -2, -1};
  for (const bool ignores_foreign : {false, true}) {
    shape.ignores_foreign = ignores_foreign;
    expect_equal(shape, foreign, 2);
    expect_equal(shape, bad, 2, 2);
  }
}

TEST_F(RouteKernel, TellsForeignExpertsFromBadIdsWhereItIgnoresThem) {
  for (const std::string name : {"bad_ids", "unrouted_ids", "row_overflow"}) {
    SCOPED_TRACE(name);
    EdgeCase layer = edge_case(name).value();
    layer.shape.ignores_foreign = true;
    expect_equal(layer.shape, layer.inputs.topk_ids, 4);
    expect_equal(layer.shape, widened(layer.inputs.topk_ids), 4);
    // Without what is below -1 no bit is left.
    for (int32_t& id : layer.inputs.topk_ids)
      if (id < -1) id = 1000;
    expect_equal(layer.shape, layer.inputs.topk_ids, 4, 3);
    expect_equal(layer.shape, widened(layer.inputs.topk_ids), 4, 3);
  }
}

}  // namespace
}  // namespace moejit::testing
