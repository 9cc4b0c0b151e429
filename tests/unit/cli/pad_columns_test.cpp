// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/pad_columns.h"

#include "tests/support/matchers.h"
#include "tests/support/test_engine.h"
#include "tests/unit/cli/kernel_compiles.h"

#include <gtest/gtest.h>
#include <vector>

namespace moejit::cli {
namespace {

using testing::succeeded;

TEST(PadColumns, BecomeZerosAndOthersStay) {
  const auto device = runtime::open_simulator();
  ASSERT_TRUE(succeeded(device));
  const auto engine = testing::make_test_engine();
  ASSERT_TRUE(succeeded(engine));
  // A full group, one with more pad columns than lanes, and an empty one.
  const GemmGroups groups{.counts = {8, 3, 0}, .offs = {0, 8, 48, 56}};
  constexpr int64_t kRows = 9, kColumns = 56;
  const auto counts = upload_named(**device, "counts", groups.counts);
  const auto offs = upload_named(**device, "offs", groups.offs);
  const auto matrix = allocate_named(**device, "matrix", 2 * kRows * kColumns);
  ASSERT_TRUE(succeeded(counts));
  ASSERT_TRUE(succeeded(offs));
  ASSERT_TRUE(succeeded(matrix));
  ASSERT_TRUE(
      succeeded((*device)->fill(matrix->address(), std::byte{0x3f}, matrix->bytes, nullptr)));
  ASSERT_TRUE(
      succeeded(zero_pad_columns(*matrix, kRows, groups, *counts, *offs, **engine, **device)));
  std::vector<uint16_t> values(kRows * kColumns);
  ASSERT_TRUE(succeeded((*device)->copy_to_host(values.data(), matrix->address(), matrix->bytes)));
  for (int64_t i = 0; i < kRows * kColumns; ++i) {
    const int64_t column = i % kColumns;
    EXPECT_EQ(values[static_cast<size_t>(i)], column < 11 ? 0x3f3f : 0) << "element " << i;
  }
}

TEST(PadColumns, HaveAKernelThatCompiles) { testing::expect_compiles(pad_columns_source({})); }

}  // namespace
}  // namespace moejit::cli
