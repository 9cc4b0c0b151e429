// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/column_blocks.h"

#include "runtime/reference/column_blocks.h"
#include "tests/support/matchers.h"
#include "tests/support/test_engine.h"
#include "tests/unit/cli/kernel_compiles.h"

#include <gtest/gtest.h>
#include <vector>

namespace moejit::cli {
namespace {

using testing::succeeded;

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

TEST(ColumnBlocks, HaveAKernelThatCompiles) { testing::expect_compiles(column_blocks_source({})); }

}  // namespace
}  // namespace moejit::cli
