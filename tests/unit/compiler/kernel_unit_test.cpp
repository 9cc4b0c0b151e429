// SPDX-License-Identifier: Apache-2.0
#include "compiler/host/host_compiler.h"

#include <algorithm>
#include <fmt/core.h>
#include <gtest/gtest.h>

namespace moejit::compiler {
namespace {

using Units = std::vector<std::vector<std::size_t>>;

KernelSource source(const std::string& entry, const std::string& text) {
  return {.entry = entry, .text = text, .target = simulator_target()};
}

// A kernel that compiles, with another statement in its sixth line.
KernelSource kernel(const std::string& entry, const std::string& statement = "") {
  return source(entry, fmt::format("#include \"moejit_device/ptx/thread.cuh\"\n"
                                   "using namespace moejit::device;\n"
                                   "struct Params {{ int32_t value; }};\n"
                                   "constexpr int32_t kThreads = 32;\n"
                                   "MOEJIT_KERNEL(kThreads, 1, {}, Params) {{\n"
                                   "  {}\n"
                                   "}}\n",
                                   entry, statement));
}

std::vector<KernelSource> kernels(int count, const std::string& text) {
  std::vector<KernelSource> sources;
  for (int i = 0; i < count; ++i) sources.push_back(source(fmt::format("k{}", i), text));
  return sources;
}

std::vector<std::size_t> sizes_of(const Units& units) {
  std::vector<std::size_t> sizes;
  for (const auto& unit : units) sizes.push_back(unit.size());
  return sizes;
}

bool holds(const KernelBinary& binary, std::string_view text) {
  const auto* const bytes = reinterpret_cast<const char*>(binary.bytes.data());
  return std::string_view(bytes, binary.bytes.size()).find(text) != std::string_view::npos;
}

TEST(KernelUnits, HaveTheSameIncludesInTheSameOrder) {
  const std::vector sources{
      source("a", "#include \"x.cuh\"\n#include \"y.cuh\"\nint a;\n"),
      source("b", "#include \"y.cuh\"\n"),
      source("c", "#include \"x.cuh\"\n#include \"y.cuh\"\n"),
      source("d", "#include \"y.cuh\"\n#include \"x.cuh\"\n"),
      source("e", "#include \"y.cuh\"\nint e;\n"),
      source("f", "#include \"x.cuh\"\n#line 1 \"f.cu\"\n#include \"y.cuh\"\n")};
  EXPECT_EQ(units_of(sources, 1), (Units{{0, 2, 5}, {1, 4}, {3}}));
}

TEST(KernelUnits, LeaveTextsAloneWhoseDirectivesReachBeyondThem) {
  for (const char* line :
       {"#define A 1", "  #undef A", "# include \"x.cuh\"", "#include <cmath>", "#if 1"}) {
    const std::vector sources{source("a", "int a;\n"), source("b", std::string(line) + "\n"),
                              source("c", "int c;\n")};
    EXPECT_EQ(units_of(sources, 1), (Units{{0, 2}, {1}})) << line;
  }
}

TEST(KernelUnits, HaveDifferentEntries) {
  const std::vector sources{source("a", "int a;"), source("a", "int b;"), source("c", "int c;")};
  EXPECT_EQ(units_of(sources, 1), (Units{{0, 2}, {1}}));
}

TEST(KernelUnits, AreEvenAndFeedAllJobs) {
  EXPECT_EQ(sizes_of(units_of(kernels(27, ""), 1)), (std::vector<std::size_t>{27}));
  EXPECT_EQ(sizes_of(units_of(kernels(28, ""), 1)), (std::vector<std::size_t>{14, 14}));
  EXPECT_EQ(sizes_of(units_of(kernels(10, ""), 4)), (std::vector<std::size_t>{3, 3, 3, 1}));
  EXPECT_EQ(sizes_of(units_of(kernels(3, ""), 64)), (std::vector<std::size_t>{1, 1, 1}));
  EXPECT_TRUE(units_of({}, 2).empty());
}

TEST(KernelUnits, KeepEveryTextBehindTheIncludes) {
  const std::vector sources{source("a", "#include \"x.cuh\"\nint a;\n"),
                            source("b", "#include \"x.cuh\"\nint b;\n")};
  EXPECT_EQ(text_of_unit(sources),
            "#include \"x.cuh\"\n"
            "namespace moejit_text_0 {\n"
            "#line 1 \"kernel.cu\"\n"
            "#include \"x.cuh\"\n"
            "int a;\n"
            "\n}\n"
            "namespace moejit_alias_0 = ::moejit_text_0;\n"
            "namespace moejit_text_1 {\n"
            "#line 1 \"kernel.cu\"\n"
            "#include \"x.cuh\"\n"
            "int b;\n"
            "\n}\n"
            "namespace moejit_alias_1 = ::moejit_text_1;\n");
}

TEST(CompileUnit, MakesAnObjectOfEachKernelAlone) {
  const std::vector sources{kernel("moejit_one"), kernel("moejit_two")};
  const auto binaries = compile_unit_for_simulator(sources);
  ASSERT_EQ(binaries.size(), 2u);
  for (std::size_t i = 0; i < 2; ++i) {
    ASSERT_TRUE(binaries[i]) << to_string(binaries[i].error());
    EXPECT_EQ(binaries[i]->entry, sources[i].entry);
    EXPECT_TRUE(holds(*binaries[i], sources[i].entry + "_description"));
    EXPECT_FALSE(holds(*binaries[i], sources[1 - i].entry));
  }
}

TEST(CompileUnit, BlamesTheKernelThatDoesNotCompile) {
  const std::vector sources{kernel("moejit_one"), kernel("moejit_two", "int a = \"text\";"),
                            kernel("moejit_three")};
  const auto binaries = compile_unit_for_simulator(sources);
  ASSERT_EQ(binaries.size(), 3u);
  EXPECT_TRUE(binaries[0]);
  EXPECT_TRUE(binaries[2]);
  ASSERT_FALSE(binaries[1]);
  EXPECT_EQ(to_string(binaries[1].error()), to_string(compile_for_simulator(sources[1]).error()));
  EXPECT_EQ(binaries[1].error().code, ErrorCode::kCompileFailed);
  EXPECT_NE(binaries[1].error().message.find("kernel moejit_two"), std::string::npos);
  EXPECT_NE(binaries[1].error().detail.find("kernel.cu:6:"), std::string::npos);
}

// Together these two have as many braces of each kind.
TEST(CompileUnit, LetsNoTextCloseTheBraceOfAnother) {
  KernelSource open = kernel("moejit_open"), closed = kernel("moejit_closed");
  open.text += "namespace left_open {\n";
  closed.text += "}\n";
  for (const auto& binary : compile_unit_for_simulator(std::vector{open, closed}))
    EXPECT_FALSE(binary);
}

}  // namespace
}  // namespace moejit::compiler
