// SPDX-License-Identifier: Apache-2.0
#include "compiler/disassembly.h"

#include "compiler/compiler.h"
#include "tests/support/matchers.h"

#include <gtest/gtest.h>
#include <string>

namespace moejit::compiler {
namespace {

using testing::succeeded;

// Lines of nvdisasm 13.5, shortened, and a second kernel.
constexpr const char* kNvdisasm =
    "\t.target\tsm_90a\n"
    "\n"
    "//--------------------- .nv.info                  --------------------------\n"
    "        /*0000*/ \t.byte\t0x04, 0x2f\n"
    "//--------------------- .text.k                   --------------------------\n"
    "\t.section\t.text.k,\"ax\",@progbits\n"
    "        .other          k,@\"STO_CUDA_ENTRY STV_DEFAULT\"\n"
    ".text.k:\n"
    "        /*0000*/                   LDC R1, c[0x0][0x28] ;\n"
    "        /*00b0*/              @!P0 BRA `(.L_x_0) ;\n"
    "        /*0100*/                   QGMMA.64x8x32.F32.E4M3.E4M3 R24, gdesc[UR8], RZ, gsb0 ;\n"
    "        /*0110*/              @P1  QGMMA.64x8x32.F32.E4M3.E4M3 R24, gdesc[UR8], RZ, gsb0 ;\n"
    ".L_x_0:\n"
    "        /*0170*/                   EXIT ;\n"
    "        /*1fff0*/                  NOP;\n"
    "//--------------------- .text.second              --------------------------\n"
    "        /*0000*/                   STL [R1], R2 ;\n"
    "//--------------------- SYMBOLS --------------------------\n"
    "\t.type\t\t.nv.reservedSmem.offset0,@object\n";

// The same of cuobjdump -sass, with encodings.
constexpr const char* kCuobjdump =
    "\n\tcode for sm_90a\n\t.target\tsm_90a\n\n"
    "\t\tFunction : k\n"
    "        /*0000*/                   LDC R1, c[0x0][0x28] ;         /* 0x00000a00ff017b82 */\n"
    "                                                                  /* 0x000fe20000000800 */\n"
    "        /*00b0*/              @!P0 BRA 0x110 ;                    /* 0x0000000000148947 */\n"
    "        /*0100*/                   QGMMA.64x8x32.F32 R24, gdesc[UR8] ; /* 0x0000000008187 */\n"
    "\t\t..........\n"
    "\t\tFunction : second\n"
    "        /*0000*/                   STL [R1], R2 ;                 /* 0x0000000000000000 */\n";

TEST(Disassembly, OfNvdisasmHasTheKernelsAlone) {
  const auto kernels = split_disassembly(kNvdisasm);
  ASSERT_EQ(kernels.size(), 2u);
  EXPECT_EQ(kernels[0].entry, "k");
  EXPECT_EQ(kernels[0].text.find(".byte"), std::string::npos);
  EXPECT_EQ(kernels[0].text.find("STL"), std::string::npos);
  EXPECT_EQ(kernels[1].entry, "second");
  EXPECT_EQ(kernels[1].text, "        /*0000*/                   STL [R1], R2 ;\n");
}

TEST(Disassembly, OfCuobjdumpHasTheKernelsAlone) {
  const auto kernels = split_disassembly(kCuobjdump);
  ASSERT_EQ(kernels.size(), 2u);
  EXPECT_EQ(kernels[0].entry, "k");
  EXPECT_EQ(kernels[1].entry, "second");
  const InstructionCounts wanted = {{"LDC", 1}, {"BRA", 1}, {"QGMMA", 1}};
  EXPECT_EQ(count_instructions(kernels[0].text), wanted);
}

TEST(Disassembly, CountsMnemonicsWithoutPredicateAndModifiers) {
  const InstructionCounts wanted = {{"LDC", 1}, {"BRA", 1}, {"QGMMA", 2}, {"EXIT", 1}, {"NOP", 1}};
  EXPECT_EQ(count_instructions(split_disassembly(kNvdisasm)[0].text), wanted);
}

TEST(Disassembly, OfAnythingElseIsEmpty) {
  EXPECT_TRUE(split_disassembly("").empty());
  EXPECT_TRUE(split_disassembly("nvdisasm fatal   : Object file appears truncated\n").empty());
  EXPECT_TRUE(count_instructions("/*\n/**/ A\n/* 0x00 */ B\n@P0\n/*00").empty());
}

TEST(Disassembler, FindsTheMatrixInstructionsOfAKernel) {
  if (const auto found = disassembler_description(); !found)
    GTEST_SKIP() << to_string(found.error());
  const KernelSource source{
      .entry = "moejit_one_wgmma",
      .text =
          "extern \"C\" __global__ void __launch_bounds__(128, 1)\n"
          "    moejit_one_wgmma(float* out, unsigned long long a, unsigned long long b) {\n"
          "  float d[4] = {};\n"
          "  asm volatile(\"wgmma.fence.sync.aligned;\" ::: \"memory\");\n"
          "  asm volatile(\"wgmma.mma_async.sync.aligned.m64n8k32.f32.e4m3.e4m3\"\n"
          "               \" {%0, %1, %2, %3}, %4, %5, 1, 1, 1;\"\n"
          "               : \"+f\"(d[0]), \"+f\"(d[1]), \"+f\"(d[2]), \"+f\"(d[3])\n"
          "               : \"l\"(a), \"l\"(b));\n"
          "  asm volatile(\"wgmma.commit_group.sync.aligned;\" ::: \"memory\");\n"
          "  asm volatile(\"wgmma.wait_group.sync.aligned 0;\" ::: \"memory\");\n"
          "  for (int i = 0; i < 4; ++i) out[4 * threadIdx.x + i] = d[i];\n"
          "}\n",
      .target = {}};
  const auto compiled = compile_kernel_and_time(source);
  if (!compiled && compiled.error().code == ErrorCode::kCompilerMissing)
    GTEST_SKIP() << to_string(compiled.error());
  ASSERT_TRUE(succeeded(compiled));
  const auto kernels = disassemble(compiled->binary.bytes);
  ASSERT_TRUE(succeeded(kernels));
  ASSERT_EQ(kernels->size(), 1u);
  EXPECT_EQ(kernels->front().entry, source.entry);
  const InstructionCounts counts = count_instructions(kernels->front().text);
  ASSERT_TRUE(counts.contains("QGMMA"));
  EXPECT_EQ(counts.at("QGMMA"), 1);
  EXPECT_FALSE(counts.contains("HMMA"));
}

TEST(Disassembler, RefusesWhatIsNoCubin) {
  if (const auto found = disassembler_description(); !found)
    GTEST_SKIP() << to_string(found.error());
  const std::vector<std::byte> bytes(100);
  const auto kernels = disassemble(bytes);
  ASSERT_FALSE(kernels.has_value());
  EXPECT_EQ(kernels.error().code, ErrorCode::kCompileFailed);
  EXPECT_NE(kernels.error().message.find("exit code"), std::string::npos);
}

}  // namespace
}  // namespace moejit::compiler
