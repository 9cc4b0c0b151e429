// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>
#include <string_view>

namespace moejit::testing {

// Runs the tests of a program, or with the one argument --update writes what they compare with
// anew, by `update`. Returns the exit status of main(): 0 if no expectation failed.
inline int run_tests_or_update(int argc, char** argv, void (*update)()) {
  ::testing::InitGoogleTest(&argc, argv);
  if (argc != 2 || std::string_view(argv[1]) != "--update") return RUN_ALL_TESTS();
  update();
  return ::testing::Test::HasFailure() ? 1 : 0;
}

}  // namespace moejit::testing
