// SPDX-License-Identifier: Apache-2.0
#include "cli/commands/run_report.h"

#include "cli/terminal/terminal.h"
#include "tests/unit/cli/two_kernel_bench.h"

#include <gtest/gtest.h>
#include <optional>
#include <string>
#include <vector>

namespace moejit::cli {
namespace {

constexpr uint32_t kUnknownBit = 1U << 12;

// Returns the error with which a run ends whose ranks have these status words.
std::optional<Error> end_of_run(std::vector<uint32_t> status, bool is_group, bool is_strict) {
  compiler::Plan plan = two_kernel_plan();
  if (is_group) plan.group.emplace();
  RunCommand command;
  command.is_json = true;
  command.is_strict = is_strict;
  Terminal terminal;
  const auto end = finish_run(
      plan, {.tokens = std::vector<int64_t>(status.size(), 8), .status = std::move(status)},
      command, terminal);
  return end ? std::nullopt : std::optional(end.error());
}

TEST(StatusOfARun, IsAnErrorIfStrictWhateverItsBits) {
  for (const bool is_group : {false, true}) {
    const std::vector<uint32_t> one =
        is_group ? std::vector{0U, kUnknownBit} : std::vector{kUnknownBit};
    EXPECT_FALSE(end_of_run(one, is_group, false));
    const auto error = end_of_run(one, is_group, true);
    ASSERT_TRUE(error) << is_group;
    EXPECT_EQ(error->code, ErrorCode::kDeviceStatus);
    EXPECT_EQ(error->message, is_group ? "rank 1: the status word has bits 0x1000"
                                       : "the status word has bits 0x1000");
    EXPECT_FALSE(end_of_run(std::vector<uint32_t>(one.size()), is_group, true));
  }
}

TEST(StatusOfARun, TellsKnownBitsAndOthers) {
  const auto error = end_of_run({2U | kUnknownBit}, false, true);
  ASSERT_TRUE(error);
  EXPECT_EQ(error->message,
            "more permuted rows than max_permuted_rows, or than x has, the rest dropped; the "
            "status word has bits 0x1000");
  EXPECT_EQ(error->hint, "raise max_permuted_rows, or correct tokens_per_expert");
}

}  // namespace
}  // namespace moejit::cli
