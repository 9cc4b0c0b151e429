// SPDX-License-Identifier: Apache-2.0
#include "compiler/support/env.h"

#include <cstddef>
#include <cstdlib>
#include <gtest/gtest.h>

namespace moejit {
namespace {

TEST(Environment, TableFollowsTheEnumeration) {
  for (std::size_t i = 0; i < variables().size(); ++i) {
    EXPECT_EQ(static_cast<std::size_t>(variables()[i].variable), i) << variables()[i].name;
  }
}

TEST(Environment, GivesTheValueOfASetVariable) {
  ASSERT_EQ(setenv("MOEJIT_CXX", "my-compiler", 1), 0);
  EXPECT_EQ(environment(Variable::kCxx), "my-compiler");
}

TEST(Environment, TakesAnEmptyVariableAsNotSet) {
  ASSERT_EQ(setenv("MOEJIT_CXX", "", 1), 0);
  EXPECT_EQ(environment(Variable::kCxx), std::nullopt);
  ASSERT_EQ(unsetenv("MOEJIT_CXX"), 0);
  EXPECT_EQ(environment(Variable::kCxx), std::nullopt);
}

}  // namespace
}  // namespace moejit
