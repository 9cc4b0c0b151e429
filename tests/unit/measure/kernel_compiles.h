// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/engine.h"
#include "tests/support/matchers.h"
#include "tests/support/test_engine.h"

namespace moejit::testing {

// A kernel becomes a cubin that keeps everything in registers. Skips where there is no NVRTC.
inline void expect_compiles(const compiler::KernelSource& source) {
  const auto engine = make_test_engine();
  ASSERT_TRUE(succeeded(engine));
  const auto binary = (*engine)->binary(source);
  if (!binary && binary.error().code == ErrorCode::kCompilerMissing)
    GTEST_SKIP() << to_string(binary.error());
  ASSERT_TRUE(succeeded(binary));
  EXPECT_EQ((*binary)->usage->stack_bytes, 0);
  EXPECT_EQ((*binary)->usage->spill_store_bytes, 0);
}

}  // namespace moejit::testing
