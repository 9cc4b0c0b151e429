// SPDX-License-Identifier: Apache-2.0
#include "cli/terminal/output.h"

#include <gtest/gtest.h>

namespace moejit::cli {
namespace {

TEST(WrapHelp, BreaksBetweenWordsBelowTheDescription) {
  EXPECT_EQ(
      wrap_help("Options:\n  --jobs INT   Kernels compiled at a time; as memory allows\n", 40),
      "Options:\n"
      "  --jobs INT   Kernels compiled at a\n"
      "               time; as memory allows\n");
}

TEST(WrapHelp, LeavesExamplesAndShortLinesAlone) {
  const std::string text =
      "Usage: moejit\n\nExamples:\n  moejit run a_very_long_name.json --target sim --check\n";
  EXPECT_EQ(wrap_help(text, 40), text);
  EXPECT_EQ(wrap_help("any text that is longer than the width of 0", 0),
            "any text that is longer than the width of 0");
}

TEST(WrapHelp, KeepsWordsWhole) {
  const std::string word(60, 'x');
  EXPECT_EQ(wrap_help("  --option  " + word + " y\n", 40),
            "  --option  " + word + "\n            y\n");
}

}  // namespace
}  // namespace moejit::cli
