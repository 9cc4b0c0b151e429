// SPDX-License-Identifier: Apache-2.0
#include "compiler/nvrtc/compile.h"
#include "compiler/nvrtc/compile_reports.h"
#include "compiler/nvrtc/nvrtc_api.h"
#include "tests/support/matchers.h"
#include "tests/unit/nvrtc/small_kernel.h"

#include <gtest/gtest.h>

namespace moejit::compiler {
namespace {

using testing::succeeded;

TEST(PhaseReport, ReadsTheMillisecondsOfEachPhase) {
  const auto phases = phases_of(
      "File name, phase name, metric, unit\n"
      "k.cu, CUDA C++ Frontend, 77, ms\n"
      "k.cu, NVVM Optimizer, 1031, ms\n"
      "k.cu, PTX Translation, 1009, ms");
  ASSERT_TRUE(phases.has_value());
  EXPECT_DOUBLE_EQ(phases->front_end, 0.077);
  EXPECT_DOUBLE_EQ(phases->optimizer, 1.031);
  EXPECT_DOUBLE_EQ(phases->assembler, 1.009);
}

TEST(PhaseReport, TellsNothingWhereAPhaseIsMissingOrHasAnotherUnit) {
  EXPECT_FALSE(phases_of(""));
  EXPECT_FALSE(phases_of("k.cu, CUDA C++ Frontend, 77, ms\nk.cu, NVVM Optimizer, 1031, ms\n"));
  EXPECT_FALSE(
      phases_of("k.cu, CUDA C++ Frontend, 77, ms\nk.cu, NVVM Optimizer, 1031, ms\n"
                "k.cu, PTX Translation, 1, s\n"));
  EXPECT_FALSE(
      phases_of("k.cu, CUDA C++ Frontend, 77, ms\nk.cu, NVVM Optimizer, soon, ms\n"
                "k.cu, PTX Translation, 1, ms\n"));
}

TEST(PhaseReport, IsThereForEveryKernelThatNvrtcCompiles) {
  const auto api = nvrtc();
  if (!api) GTEST_SKIP() << to_string(api.error());
  if (!(*api)->is_at_least(13, 0)) GTEST_SKIP() << "NVRTC is older than 13.0";
  const auto compiled = compile_with_nvrtc_and_time(small_kernel());
  ASSERT_TRUE(succeeded(compiled));
  ASSERT_TRUE(compiled->time.cpu.has_value());
  EXPECT_GT(*compiled->time.cpu, 0.0);
  ASSERT_TRUE(compiled->time.phases.has_value());
  const CompilePhases& phases = *compiled->time.phases;
  EXPECT_GT(phases.front_end + phases.optimizer + phases.assembler, 0.0);
  EXPECT_LE(phases.front_end + phases.optimizer + phases.assembler, compiled->time.total + 0.01);
}

}  // namespace
}  // namespace moejit::compiler
