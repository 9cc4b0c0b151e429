// SPDX-License-Identifier: Apache-2.0
// Kernels that ptxas compiles with a shrug and that may be several times too slow: who writes
// kernels gets an error, who has a layer a kernel and a warning.

#include "compiler/nvrtc/compile.h"
#include "compiler/nvrtc/compile_reports.h"
#include "compiler/nvrtc/nvrtc_api.h"
#include "compiler/worker/messages.h"
#include "runtime/engine.h"
#include "tests/support/matchers.h"
#include "tests/unit/nvrtc/contains.h"
#include "tests/unit/nvrtc/small_kernel.h"

#include <gtest/gtest.h>
#include <string>

namespace moejit::compiler {
namespace {

using testing::succeeded;

// A kernel of one warpgroup with WGMMA on 8 columns (4 sums a thread).
KernelSource wgmma_kernel(const std::string& body, const std::string& launch_bounds = "128, 1") {
  return {.entry = "moejit_wgmma_kernel",
          .text =
              "struct Params { float* out; unsigned long long a, b; int steps; };\n"
              "__device__ __forceinline__ void multiply(float (&d)[4], unsigned long long a,\n"
              "                                         unsigned long long b) {\n"
              "  asm volatile(\"wgmma.mma_async.sync.aligned.m64n8k32.f32.e4m3.e4m3\"\n"
              "               \" {%0, %1, %2, %3}, %4, %5, 1, 1, 1;\"\n"
              "               : \"+f\"(d[0]), \"+f\"(d[1]), \"+f\"(d[2]), \"+f\"(d[3])\n"
              "               : \"l\"(a), \"l\"(b));\n"
              "}\n"
              "#define FENCE asm volatile(\"wgmma.fence.sync.aligned;\" ::: \"memory\")\n"
              "#define COMMIT asm volatile(\"wgmma.commit_group.sync.aligned;\" ::: \"memory\")\n"
              "#define WAIT(n) \\\n"
              "  asm volatile(\"wgmma.wait_group.sync.aligned \" #n \";\" ::: \"memory\")\n"
              "extern \"C\" __global__ void __launch_bounds__(" +
              launch_bounds +
              ")\n"
              "    moejit_wgmma_kernel(const __grid_constant__ Params params) {\n"
              "  float d[4] = {};\n" +
              body +
              "  for (int i = 0; i < 4; ++i) params.out[4 * threadIdx.x + i] = d[i];\n"
              "}\n",
          .target = {}};
}

class CompileGuard : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto api = nvrtc();
    if (!api) GTEST_SKIP() << to_string(api.error());
  }

  void expect_refused(const KernelSource& source, const std::string& words) {
    const auto binary = compile_with_nvrtc(source);
    ASSERT_FALSE(binary.has_value());
    const Error& error = binary.error();
    EXPECT_EQ(error.code, ErrorCode::kCompileFailed);
    EXPECT_TRUE(error.message.starts_with("kernel " + source.entry + ": ")) << error.message;
    EXPECT_TRUE(contains(error.message, words)) << error.message;
    EXPECT_FALSE(contains(error.message, "\n")) << error.message;
    EXPECT_FALSE(error.hint.empty());
    EXPECT_TRUE(contains(error.detail, "ptxas info")) << error.detail;
    EXPECT_TRUE(contains(error.detail, "   1 | ")) << error.detail;
  }
};

TEST_F(CompileGuard, LetsAChainOfWgmmaPass) {
  EXPECT_TRUE(succeeded(compile_with_nvrtc(wgmma_kernel(
      "  FENCE;\n"
      "  for (int k = 0; k < 4; ++k) multiply(d, params.a + 2 * k, params.b + 2 * k);\n"
      "  COMMIT;\n"
      "  WAIT(0);\n"))));
}

TEST_F(CompileGuard, RefusesSumsThatAreReadWhileAGroupIsOpenAcrossALoop) {
  expect_refused(wgmma_kernel("  float total[4] = {};\n"
                              "  for (int k = 0; k < params.steps; ++k) {\n"
                              "    FENCE;\n"
                              "    multiply(d, params.a + k, params.b + k);\n"
                              "    COMMIT;\n"
                              "    WAIT(1);\n"
                              "    for (int i = 0; i < 4; ++i) total[i] += d[i];\n"
                              "  }\n"
                              "  WAIT(0);\n"
                              "  for (int i = 0; i < 4; ++i) d[i] = total[i];\n"),
                 "instructions are serialized");
}

TEST_F(CompileGuard, RefusesSumsThatAreWrittenBetweenIssueAndWait) {
  expect_refused(wgmma_kernel("  for (int k = 0; k < params.steps; ++k) {\n"
                              "    FENCE;\n"
                              "    multiply(d, params.a + k, params.b + k);\n"
                              "    COMMIT;\n"
                              "    d[1] += params.out[k];\n"
                              "    WAIT(0);\n"
                              "  }\n"),
                 "instructions are serialized");
}

TEST_F(CompileGuard, RefusesSetmaxnregThatPtxasIgnores) {
  // Without launch bounds ptxas does not know the registers that a thread starts with.
  KernelSource source{.entry = "moejit_roles",
                      .text =
                          "struct Params { float* out; };\n"
                          "extern \"C\" __global__ void moejit_roles(Params params) {\n"
                          "  if (threadIdx.x < 128) {\n"
                          "    asm volatile(\"setmaxnreg.dec.sync.aligned.u32 40;\");\n"
                          "    params.out[0] = 1;\n"
                          "  } else {\n"
                          "    asm volatile(\"setmaxnreg.inc.sync.aligned.u32 232;\");\n"
                          "    params.out[1] = 2;\n"
                          "  }\n"
                          "}\n",
                      .target = {}};
  expect_refused(source, "'setmaxnreg' ignored");
}

// 200 values that stay alive over a barrier, in the 64 registers that eight CTAs leave a thread.
constexpr const char* kSpilling =
    "  float value[200];\n"
    "#pragma unroll\n"
    "  for (int i = 0; i < 200; ++i) value[i] = params.out[i * 128 + threadIdx.x];\n"
    "  __syncthreads();\n"
    "#pragma unroll\n"
    "  for (int i = 0; i < 200; ++i) params.out[i * 128 + threadIdx.x] = value[i] * value[199 - "
    "i];\n";

TEST_F(CompileGuard, RefusesSpillsBesideWgmma) {
  expect_refused(
      wgmma_kernel("  FENCE;\n  multiply(d, params.a, params.b);\n  COMMIT;\n  WAIT(0);\n" +
                       std::string(kSpilling),
                   "128, 8"),
      "bytes spill stores");
}

TEST_F(CompileGuard, LetsLayersHaveASpillingKernelWithAWarning) {
  KernelSource source =
      wgmma_kernel("  FENCE;\n  multiply(d, params.a, params.b);\n  COMMIT;\n  WAIT(0);\n" +
                       std::string(kSpilling),
                   "128, 8");
  const std::string fused = "moejit_gemm_fc1_activation_quantize_swiglu";
  source.text.replace(source.text.find(source.entry), source.entry.size(), fused);
  source.entry = fused;
  std::vector<std::string> warnings;
  const auto engine = runtime::Engine::create(
      {.use_cache = false, .warn = [&](std::string_view text) { warnings.emplace_back(text); }});
  ASSERT_TRUE(succeeded(engine));
  const auto binary = (*engine)->binary(source);
  ASSERT_TRUE(succeeded(binary));
  EXPECT_GT((*binary)->usage->spill_store_bytes, 0);
  ASSERT_EQ(warnings.size(), 1);
  EXPECT_TRUE(contains(warnings[0], "its 64 registers are too few")) << warnings[0];
  EXPECT_TRUE(contains(warnings[0], "its results are right, but it is slow")) << warnings[0];
  EXPECT_TRUE(contains(warnings[0], "\"fuse_activation\": false")) << warnings[0];
}

TEST(WorkerReply, CarriesALoss) {
  const KernelSource source{.entry = "k", .text = "", .target = {}};
  const Error loss{Stage::kCompile, ErrorCode::kCompileFailed, "kernel k: slow", "do", "log"};
  const auto reply =
      decode_reply(encode_reply(CompiledKernel{
                       {.entry = "k", .target = {}, .bytes = {}, .usage = {}}, {}, loss}),
                   source);
  ASSERT_TRUE(reply.has_value());
  ASSERT_TRUE(succeeded(*reply));
  ASSERT_TRUE((*reply)->loss.has_value());
  EXPECT_EQ(to_string(*(*reply)->loss), to_string(loss));
}

TEST_F(CompileGuard, LetsOtherKernelsSpill) {
  KernelSource source = wgmma_kernel(kSpilling, "128, 8");
  const auto first = source.text.find("__device__");
  source.text.erase(first, source.text.find("extern \"C\"") - first);
  const auto binary = compile_with_nvrtc(source);
  ASSERT_TRUE(succeeded(binary));
  EXPECT_GT(binary->usage->spill_store_bytes, 0);
}

TEST(AssemblerReport, IsQuotedWithoutItsPrefix) {
  const auto complaint = complaint_of(
      "ptxas info    : (C7519) warpgroup.arrive is injected in around line 62\n"
      "ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are "
      "serialized due to the presence of Extern calls in the function 'k'\n"
      "ptxas info    : 0 bytes gmem\n",
      {}, false);
  ASSERT_TRUE(complaint.has_value());
  EXPECT_EQ(complaint->what,
            "ptxas would make it slow: (C7510) Potential Performance Loss: wgmma.mma_async "
            "instructions are serialized due to the presence of Extern calls in the function 'k'");
  EXPECT_TRUE(contains(complaint->hint, "wgmma_wait()")) << complaint->hint;
}

TEST(AssemblerReport, CountsWhateverPtxasCallsALoss) {
  EXPECT_TRUE(complaint_of("warning : Potential Performance Loss: of a new kind", {}, false));
}

TEST(AssemblerReport, HoldsNothingAgainstNotesWithoutALoss) {
  const std::string log =
      "ptxas info    : (C7519) warpgroup.arrive is injected in around line 62 by compiler\n"
      "ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n";
  EXPECT_FALSE(complaint_of(log, {}, true));
  EXPECT_FALSE(complaint_of("", {}, true));
}

TEST(AssemblerReport, NamesSpillsOnlyWhereTheyAreForbidden) {
  const ResourceUsage usage{.registers = 168, .spill_store_bytes = 8, .spill_load_bytes = 12};
  EXPECT_FALSE(complaint_of("", usage, false));
  const auto complaint = complaint_of("", usage, true);
  ASSERT_TRUE(complaint.has_value());
  EXPECT_EQ(complaint->what,
            "its 168 registers are too few: 8 bytes spill stores, 12 bytes spill loads, wanted "
            "none in a kernel that multiplies");
  // A value that is only reloaded counts too.
  EXPECT_TRUE(complaint_of("", {.registers = 168, .spill_load_bytes = 4}, true));
}

}  // namespace
}  // namespace moejit::compiler
