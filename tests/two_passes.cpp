// SPDX-License-Identifier: Apache-2.0
// The main function of suites whose kernels are compiled ahead (tests/support/kernels_ahead.h).
#include "tests/support/kernels_ahead.h"
#include "tests/tested_target.h"

#include <gtest/gtest.h>

int main(int count, char** arguments) {
  ::testing::InitGoogleTest(&count, arguments);
  const bool only_lists = ::testing::GTEST_FLAG(list_tests);
  if (moejit::testing::tested_target() == "sim" && !only_lists)
    moejit::testing::obtain_kernels_ahead(::testing::GTEST_FLAG(filter),
                                          moejit::testing::tested_plan_target(),
                                          [] { return RUN_ALL_TESTS(); });
  const int status = RUN_ALL_TESTS();
  if (status == 0 && ::testing::GTEST_FLAG(filter) == "*" && !only_lists)
    moejit::testing::record_headers();
  return status;
}
