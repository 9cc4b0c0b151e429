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

// A switch guards something, so what nobody understands must not count as off.
TEST(Environment, SwitchesAreOnOffOrRefused) {
  const auto set = [](const char* value) { ASSERT_EQ(setenv("MOEJIT_FROZEN", value, 1), 0); };
  for (const char* value : {"1", "true", "True", "TRUE", "yes", "on", "On"}) {
    set(value);
    EXPECT_TRUE(is_switched_on(Variable::kFrozen).value()) << value;
  }
  for (const char* value : {"", "0", "false", "no", "off", "OFF"}) {
    set(value);
    EXPECT_FALSE(is_switched_on(Variable::kFrozen).value()) << value;
  }
  for (const char* value : {"2", "1 ", " 1", "01", "y", "enabled", "-1", "ja", "tru\x1b[31m"}) {
    set(value);
    const Result<bool> is_on = is_switched_on(Variable::kFrozen);
    ASSERT_FALSE(is_on) << value;
    EXPECT_EQ(is_on.error().code, ErrorCode::kInvalidValue);
    EXPECT_TRUE(is_on.error().message.starts_with("MOEJIT_FROZEN is \"")) << is_on.error().message;
    EXPECT_EQ(is_on.error().message.find('\x1b'), std::string::npos);
  }
  ASSERT_EQ(unsetenv("MOEJIT_FROZEN"), 0);
  EXPECT_FALSE(is_switched_on(Variable::kFrozen).value());
}

}  // namespace
}  // namespace moejit
