// SPDX-License-Identifier: Apache-2.0
#include "runtime/launch/kept_values.h"
#include "tests/unit/runtime/small_layer.h"

#include <gtest/gtest.h>

namespace moejit::runtime {
namespace {

using compiler::CallLayout;
using compiler::MemoryLayout;

void expect_equal(const CallLayout& got, const CallLayout& wanted) {
  EXPECT_EQ(got.dims.tokens, wanted.dims.tokens);
  EXPECT_EQ(got.dims.rows, wanted.dims.rows);
  EXPECT_EQ(got.sizes, wanted.sizes);
  EXPECT_EQ(got.offset, wanted.offset);
  EXPECT_EQ(got.bytes, wanted.bytes);
}

TEST(KeptLayout, IsThatOfTheCall) {
  const compiler::Plan plan = plan_layer(small_layer(), {}).value();
  const MemoryLayout layout = MemoryLayout::make(plan).value();
  KeptLayout kept;
  for (const int64_t tokens : {0, 7, 7, 64, 0, 64}) {
    SCOPED_TRACE(tokens);
    kept.with(layout, tokens, [&](const CallLayout& outer) {
      expect_equal(outer, layout.at(tokens));
      // A call of another thread in the middle of this one.
      kept.with(layout, 33, [&](const CallLayout& inner) { expect_equal(inner, layout.at(33)); });
      expect_equal(outer, layout.at(tokens));
    });
  }
}

}  // namespace
}  // namespace moejit::runtime
