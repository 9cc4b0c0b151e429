// SPDX-License-Identifier: Apache-2.0
#include "runtime/reference/route.h"
#include "templates/moejit_device/params/route_params.h"
#include "tests/kernels/chains/chain_runner.h"

#include <limits>
#include <random>

namespace moejit::testing {
namespace {

class SplitRowsKernel : public Chains {
 protected:
  struct Options {
    int64_t ctas = 1;
    int32_t warps = 1;
    bool has_row_map = true;
  };

  // Splits rows on the device and compares everything with the reference.
  template <typename Size>
  void expect_equal(const std::vector<Size>& sizes, int64_t rows, int32_t alignment,
                    const Options& options) {
    reference::LayerShape shape{
        .experts = static_cast<int64_t>(sizes.size()), .top_k = 1, .alignment = alignment};
    shape.max_rows = reference::enough_rows(rows, shape);
    const reference::Route wanted =
        reference::split_rows(std::vector<int64_t>(sizes.begin(), sizes.end()), rows, shape);
    const DeviceBuffer given = input("tokens_per_expert", sizes);
    const DeviceBuffer counts = output<int32_t>("counts", shape.experts);
    const DeviceBuffer offs = output<int32_t>("offs", shape.experts + 1);
    const DeviceBuffer colwise_offs = output<int32_t>("colwise_offs", shape.experts + 1);
    const DeviceBuffer row_map = output<int32_t>("row_map", rows);
    const DeviceBuffer status = output<uint32_t>("status", 1);
    const DeviceBuffer saved_tokens = output<int64_t>("saved_tokens", 1);
    fill(status, kBitsOfOthers);
    const device::RouteParams params{
        .topk_ids = given.template as<const void>(),
        .counts = counts.as<int32_t>(),
        .offs = offs.as<int32_t>(),
        .colwise_offs = colwise_offs.as<int32_t>(),
        .row_map = options.has_row_map ? row_map.as<int32_t>() : nullptr,
        .status = status.as<uint32_t>(),
        .tokens = rows,
        .max_rows = shape.max_rows,
        .saved_tokens = saved_tokens.as<int64_t>()};
    run(compiler::SplitRowsSpec{.local_experts = static_cast<int32_t>(shape.experts),
                                .splits_alignment = alignment,
                                .has_row_map = options.has_row_map,
                                .has_colwise_offs = true,
                                .warps = options.warps,
                                .tokens_per_expert = sizeof(Size) == 8 ? compiler::DType::kI64
                                                                       : compiler::DType::kI32},
        options.ctas, params,
        {&given, &counts, &offs, &colwise_offs, &row_map, &status, &saved_tokens});
    std::vector<int32_t> columns = {0};
    for (const int32_t count : wanted.counts)
      columns.push_back(columns.back() + (count + 127) / 128 * 128);
    EXPECT_EQ(saved_tokens.download<int64_t>().front(), rows);
    EXPECT_TRUE(matches(compare_i32({"counts"}, counts.download<int32_t>(), wanted.counts)));
    EXPECT_TRUE(matches(compare_i32({"offs"}, offs.download<int32_t>(), wanted.offs)));
    EXPECT_TRUE(matches(compare_i32({"colwise_offs"}, colwise_offs.download<int32_t>(), columns)));
    if (options.has_row_map) {
      EXPECT_TRUE(matches(compare_i32({"row_map"}, row_map.download<int32_t>(), wanted.row_map)));
    }
    EXPECT_EQ(status.download<uint32_t>().front(), 0x01010101u * kBitsOfOthers | wanted.status);
  }

  // The kernel sets two bits and leaves the rest alone.
  static constexpr uint8_t kBitsOfOthers = 0x40;
};

TEST_F(SplitRowsKernel, EqualsTheReferenceForAnySizes) {
  const std::vector<int32_t> sizes = {3, 0, 0, 130, 1, 64, 0};
  for (const int32_t alignment : {1, 64}) {
    for (const int64_t ctas : {1, 3}) {
      expect_equal(sizes, 198, alignment, {.ctas = ctas, .warps = 2});
      expect_equal(sizes, 250, alignment, {.ctas = ctas, .warps = 2});  // rows of nobody
    }
  }
  expect_equal(sizes, 250, 1, {.has_row_map = false});
  expect_equal(std::vector<int32_t>(7, 0), 0, 64, {});
}

TEST_F(SplitRowsKernel, TellsSizesThatAreNoneAndRowsThatAreNotThere) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  for (const int32_t alignment : {1, 64}) {
    const auto expect = [&](const std::vector<int64_t>& sizes) {
      expect_equal(sizes, 100, alignment, {.ctas = 2, .warps = 2});
    };
    expect({40, -1, 60});
    expect({40, 50, 11});
    expect({kMost, kMost, -kMost});
    expect({0, 101, 0, 5});
  }
}

TEST_F(SplitRowsKernel, TakesThousandsOfExperts) {
  std::mt19937 random(1);
  std::vector<int64_t> sizes(4096);
  int64_t rows = 0;
  for (int64_t& size : sizes) rows += size = random() % 4 == 0 ? random() % 9 : 0;
  expect_equal(sizes, rows, 1, {.has_row_map = false});
  expect_equal(sizes, rows - 3, 1, {.has_row_map = false});
}

}  // namespace
}  // namespace moejit::testing
