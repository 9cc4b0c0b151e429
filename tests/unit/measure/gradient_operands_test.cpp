// SPDX-License-Identifier: Apache-2.0
#include "runtime/measure/gemm_operands.h"
#include "runtime/measure/operation_run.h"
#include "runtime/reference/layouts.h"
#include "tests/support/matchers.h"
#include "tests/support/test_engine.h"
#include "tests/unit/measure/kernel_compiles.h"

#include <gtest/gtest.h>
#include <vector>

namespace moejit::measure {
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

TEST(ColumnBlocks, FollowEachOther) {
  const auto device = runtime::open_simulator();
  ASSERT_TRUE(succeeded(device));
  const auto engine = testing::make_test_engine();
  ASSERT_TRUE(succeeded(engine));
  constexpr int64_t kRows = 9, kColumns = 384;
  std::vector<uint8_t> values(kRows * kColumns);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<uint8_t>(i * 31 / 7);
  const auto matrix = upload_named(**device, "matrix", values);
  const auto blocks = allocate_named(**device, "blocks", kRows * kColumns);
  ASSERT_TRUE(succeeded(matrix));
  ASSERT_TRUE(succeeded(blocks));
  ASSERT_TRUE(
      succeeded(put_in_column_blocks(*matrix, kRows, kColumns, *blocks, **engine, **device)));
  std::vector<uint8_t> got(values.size());
  ASSERT_TRUE(succeeded((*device)->copy_to_host(got.data(), blocks->address(), blocks->bytes)));
  EXPECT_EQ(got, reference::to_column_blocks(values, kColumns));
  EXPECT_EQ(reference::from_column_blocks(got, kColumns), values);
}

TEST(GradientOperands, HaveKernelsThatCompile) {
  for (const char* name : {"pad_columns", "column_blocks"})
    testing::expect_compiles(measuring_kernel(name, {}));
}

}  // namespace
}  // namespace moejit::measure
