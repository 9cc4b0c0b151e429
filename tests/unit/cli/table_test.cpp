// SPDX-License-Identifier: Apache-2.0
#include "cli/terminal/table.h"

#include <gtest/gtest.h>

namespace moejit::cli {
namespace {

TEST(Table, IsAsWideAsItsWidestCells) {
  Table table({{"name"}, {"n", Table::Align::kRight}, {"note"}});
  table.add({"a", "100", "x"});
  table.add({"longer", "1"});
  EXPECT_EQ(table.text(),
            "name      n  note\n"
            "a       100  x\n"
            "longer    1\n");
}

TEST(Table, WritesTimesWithAFittingUnit) {
  EXPECT_EQ(time_text(0.04), "0.0 us");
  EXPECT_EQ(time_text(12.34), "12.3 us");
  EXPECT_EQ(time_text(999.96), "1.00 ms");
  EXPECT_EQ(time_text(1234567.0), "1.23 s");
}

TEST(Table, WritesBytesInBinaryUnits) {
  EXPECT_EQ(bytes_text(1023), "1023 B");
  EXPECT_EQ(bytes_text(1024), "1.0 KiB");
  EXPECT_EQ(bytes_text(int64_t{3} << 39), "1.5 TiB");
}

}  // namespace
}  // namespace moejit::cli
