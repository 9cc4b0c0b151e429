// SPDX-License-Identifier: Apache-2.0
#include "cli/terminal/step_progress.h"

#include <array>
#include <gtest/gtest.h>
#include <unistd.h>

namespace moejit::cli {
namespace {

TEST(StepProgress, MakesTheRestSlowerWhereTheBeginningWas) {
  EXPECT_EQ(remaining_seconds(0.0, 0.0, 10.0, 4.0, 20.0), 26.0);
  EXPECT_EQ(remaining_seconds(5.0, 10.0, 10.0, 4.0, 20.0), 56.0);   // 2 * 10 - 4 + 2 * 20
  EXPECT_EQ(remaining_seconds(5.0, 2.5, 10.0, 4.0, 20.0), 11.0);    // half: 5 - 4 + 10
  EXPECT_EQ(remaining_seconds(5.0, 5.0, 10.0, 400.0, 20.0), 20.0);  // overdue, but not endless
}

TEST(StepProgress, RoundsDurationsToWhatAnEstimateIsGoodFor) {
  EXPECT_EQ(duration_text(0.2), "1 s");
  EXPECT_EQ(duration_text(7.4), "7 s");
  EXPECT_EQ(duration_text(12.4), "10 s");
  EXPECT_EQ(duration_text(54.0), "55 s");
  EXPECT_EQ(duration_text(56.0), "1 min");
  EXPECT_EQ(duration_text(200.0), "3 min");
  EXPECT_EQ(duration_text(7200.0), "2 h");
}

// What stands on descriptor 2 while one lives.
class CapturedErrors {
 public:
  CapturedErrors() {
    EXPECT_EQ(::pipe(ends_.data()), 0);
    saved_ = ::dup(STDERR_FILENO);
    ::dup2(ends_[1], STDERR_FILENO);
  }
  ~CapturedErrors() {
    ::dup2(saved_, STDERR_FILENO);
    for (const int end : {saved_, ends_[0], ends_[1]}) ::close(end);
  }
  CapturedErrors(const CapturedErrors&) = delete;
  CapturedErrors& operator=(const CapturedErrors&) = delete;

  // Waits for one.
  std::string line() {
    std::string text;
    for (char c = 0; ::read(ends_[0], &c, 1) == 1 && c != '\n';) text += c;
    return text;
  }

 private:
  std::array<int, 2> ends_{};
  int saved_ = -1;
};

TEST(StepProgress, TellsTheStepAndWhatIsLeftOfIt) {
  CapturedErrors errors;
  std::string first, second, last;
  {
    const Terminal terminal;
    StepProgress progress(terminal, {{"data", 1e5}, {"route"}, {"gemm_fc1", 1e6}, {"route"}},
                          std::chrono::milliseconds(1));
    progress.start("data");
    first = errors.line();
    progress.start("gemm_fc1");
    while (second.find("gemm_fc1") == std::string::npos) second = errors.line();
    progress.start("route");  // the one behind
    while (last.find("route") == std::string::npos) last = errors.line();
  }
  EXPECT_EQ(first, "moejit: 1/4 data, about 306 h left");
  EXPECT_EQ(second, "moejit: 3/4 gemm_fc1, about 278 h left");
  EXPECT_EQ(last, "moejit: 4/4 route");
}

TEST(StepProgress, SaysNothingOfQuickCommands) {
  ::testing::internal::CaptureStderr();
  {
    const Terminal terminal;
    StepProgress progress(terminal, {{"data"}}, std::chrono::hours(1));
    progress.start("data");
  }
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
}

}  // namespace
}  // namespace moejit::cli
