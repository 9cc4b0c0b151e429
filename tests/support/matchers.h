// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/reference/compare.h"
#include "tests/support/temp_dir.h"

#include <gtest/gtest.h>
#include <string>
#include <string_view>

// What tests use of the test support together with GoogleTest.
namespace moejit::testing {

// EXPECT_TRUE(matches(compare_bf16({"y", hidden}, got, wanted)));
inline ::testing::AssertionResult matches(const Comparison& comparison) {
  if (comparison.is_equal()) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << comparison.message;
}

// The value of a Result, or a failed assertion with the error's text:
//   ASSERT_TRUE(succeeded(result));
template <typename Result>
::testing::AssertionResult succeeded(const Result& result) {
  if (result.has_value()) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << to_string(result.error());
}

// A TempDir named after the running test; it stays, for a look inside, when the test has failed.
class TestDir : public TempDir {
 public:
  TestDir() : TempDir(name_of_test()) {}
  ~TestDir() {
    if (::testing::Test::HasFailure()) keep();
  }

 private:
  static std::string name_of_test() {
    const ::testing::TestInfo* test = ::testing::UnitTest::GetInstance()->current_test_info();
    return test == nullptr ? "test" : std::string(test->test_suite_name()) + "-" + test->name();
  }
};

}  // namespace moejit::testing
