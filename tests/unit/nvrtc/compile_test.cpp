// SPDX-License-Identifier: Apache-2.0
#include "compiler/nvrtc/compile.h"

#include "compiler/nvrtc/compile_options.h"
#include "compiler/nvrtc/nvrtc_api.h"
#include "tests/support/matchers.h"
#include "tests/unit/nvrtc/contains.h"
#include "tests/unit/nvrtc/small_kernel.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <string>
#include <thread>
#include <vector>

namespace moejit::compiler {
namespace {

using testing::succeeded;

class Nvrtc : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto api = nvrtc();
    if (!api) GTEST_SKIP() << to_string(api.error());
  }
};

TEST_F(Nvrtc, MakesACubinWithItsResourceUse) {
  const auto binary = compile_with_nvrtc(small_kernel());
  ASSERT_TRUE(succeeded(binary));
  EXPECT_EQ(binary->entry, "moejit_small_kernel");
  EXPECT_GT(binary->bytes.size(), 64u);
  ASSERT_TRUE(binary->usage.has_value());
  EXPECT_GT(binary->usage->registers, 0);
  EXPECT_GT(binary->usage->code_bytes, 0);
  EXPECT_EQ(binary->usage->stack_bytes, 0);
  EXPECT_EQ(binary->usage->static_shared_bytes, 0);
}

TEST_F(Nvrtc, GivesEqualBytesForEqualSourcesInAnyThread) {
  const auto first = compile_with_nvrtc(small_kernel());
  ASSERT_TRUE(succeeded(first));
  std::vector<Result<KernelBinary>> others(3);
  std::vector<std::thread> threads;
  for (auto& other : others) {
    threads.emplace_back([&other] { other = compile_with_nvrtc(small_kernel()); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& other : others) {
    ASSERT_TRUE(succeeded(other));
    EXPECT_EQ(*other, *first);
  }
}

TEST_F(Nvrtc, ReportsSpillsAndSharedMemory) {
  // 200 values that stay alive over a barrier do not fit into 128 threads' share of registers when
  // eight CTAs are asked for.
  KernelSource source = small_kernel(
      "  __shared__ float shared_values[100];\n"
      "  float value[200];\n"
      "  for (int i = 0; i < 200; ++i) value[i] = params.out[i * 128 + threadIdx.x];\n"
      "  shared_values[threadIdx.x % 100] = value[7];\n"
      "  __syncthreads();\n"
      "  for (int i = 0; i < 200; ++i) params.out[i * 128 + threadIdx.x] = value[i] * value[199 - "
      "i]"
      " + shared_values[i % 100];\n");
  source.text.replace(source.text.find("128, 1,"), 7, "128, 8,");
  const auto binary = compile_with_nvrtc(source);
  ASSERT_TRUE(succeeded(binary));
  EXPECT_GT(binary->usage->spill_store_bytes, 0);
  EXPECT_GT(binary->usage->spill_load_bytes, 0);
  EXPECT_GT(binary->usage->stack_bytes, 0);
  EXPECT_EQ(binary->usage->static_shared_bytes, 400);
}

TEST_F(Nvrtc, TellsABrokenSourceWithLogAndNumberedLines) {
  const auto binary = compile_with_nvrtc(small_kernel("  this is no code;\n"));
  ASSERT_FALSE(binary.has_value());
  const Error& error = binary.error();
  EXPECT_EQ(error.code, ErrorCode::kCompileFailed);
  EXPECT_EQ(error.stage, Stage::kCompile);
  EXPECT_TRUE(contains(error.message, "kernel moejit_small_kernel")) << error.message;
  EXPECT_TRUE(contains(error.detail, "moejit_small_kernel.cu(5): error")) << error.detail;
  EXPECT_TRUE(contains(error.detail, "   5 |   this is no code;\n")) << error.detail;
  EXPECT_TRUE(contains(error.detail, "--fmad=false")) << error.detail;
}

TEST_F(Nvrtc, RefusesASourceWithAnotherEntry) {
  KernelSource source = small_kernel();
  source.entry = "moejit_other";
  const auto binary = compile_with_nvrtc(source);
  ASSERT_FALSE(binary.has_value());
  EXPECT_TRUE(contains(binary.error().message, "moejit_small_kernel")) << binary.error().message;
}

TEST_F(Nvrtc, IdentifiesCompilerOptionsAndHeadersWithoutPaths) {
  const auto identity = nvrtc_identity(small_kernel());
  ASSERT_TRUE(succeeded(identity));
  std::string all;
  for (const std::string& field : *identity) all += field + "\n";
  EXPECT_TRUE(contains(all, "compiler=nvrtc 1")) << all;
  EXPECT_TRUE(contains(all, "option=--gpu-architecture=sm_90a\n")) << all;
  EXPECT_TRUE(contains(all, "header:moejit_device/ptx/memory.cuh=")) << all;
  EXPECT_FALSE(contains(all, "grouped_gemm")) << all;
  EXPECT_FALSE(contains(all, (*nvrtc())->path)) << all;
}

TEST(CompileOptions, StateTheArithmeticAndTheExactArchitecture) {
  const auto options = compile_options(Target{}, 13, 0);
  for (const char* wanted : {"--gpu-architecture=sm_90a", "--std=c++20", "--fmad=false",
                             "--ftz=false", "--prec-div=true", "--prec-sqrt=true", "--no-cache"}) {
    EXPECT_EQ(std::count(options.begin(), options.end(), wanted), 1) << wanted;
  }
}

TEST(CompileOptions, LeaveOutWhatAnOlderVersionDoesNotKnow) {
  const auto has_no_cache = [](int major, int minor) {
    const auto options = compile_options(Target{}, major, minor);
    return std::count(options.begin(), options.end(), "--no-cache") == 1;
  };
  EXPECT_FALSE(has_no_cache(12, 8));
  EXPECT_TRUE(has_no_cache(12, 9));
  EXPECT_TRUE(has_no_cache(13, 1));
}

TEST(CompileOptions, LeaveOutWhatNobodyUsesWhereTheVersionCan) {
  const auto is_minimal = [](int major) {
    const auto options = compile_options(Target{}, major, 0);
    return std::count(options.begin(), options.end(), "--minimal") == 1;
  };
  EXPECT_FALSE(is_minimal(12));
  EXPECT_TRUE(is_minimal(13));
}

}  // namespace
}  // namespace moejit::compiler
