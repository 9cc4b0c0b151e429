// SPDX-License-Identifier: Apache-2.0
#include "compiler/support/table.h"

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

TEST(Table, ShortensTextToTheWidthOfTheTerminal) {
  Table table({{"kernel"}, {"n", Table::Align::kRight}, {"note"}});
  table.add({"activation_backward_quantize_transpose", "12345678901234567890",
             "some words that are long"});
  EXPECT_EQ(table.text(), table.text(200));
  EXPECT_EQ(table.text(70),
            "kernel                                      n  note\n"
            "activation..._transpose  12345678901234567890  some words that are ...\n");
  for (const std::string& line : table.lines(70)) EXPECT_LE(line.size(), 70u);
  // Never so narrow that nothing is left, and numbers stay whole.
  EXPECT_EQ(table.lines(10)[1], "activ...pose  12345678901234567890  some word...");
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
