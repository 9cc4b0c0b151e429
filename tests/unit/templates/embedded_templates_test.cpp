// SPDX-License-Identifier: Apache-2.0
#include "templates/embedded_templates.h"

#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <iterator>
#include <string>
#include <vector>

namespace moejit::templates {
namespace {

constexpr std::string_view kSim[] = {"moejit_sim"};

std::string read(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<std::string> names(const std::vector<IncludedFile>& closure) {
  std::vector<std::string> names;
  for (const IncludedFile& included : closure) names.push_back(included.include_name);
  return names;
}

TEST(EmbeddedFiles, AreTheFilesOfTheSourceFolderByteForByte) {
  ASSERT_FALSE(embedded_files().empty());
  const std::filesystem::path root = std::filesystem::path(MOEJIT_SOURCE_DIR) / "templates";
  for (const EmbeddedFile& file : embedded_files()) {
    EXPECT_EQ(file.text, read(root / file.include_name)) << file.include_name;
  }
}

TEST(EmbeddedFiles, AreSortedAndFoundByExactName) {
  std::string_view previous;
  for (const EmbeddedFile& file : embedded_files()) {
    EXPECT_LT(previous, file.include_name);
    EXPECT_EQ(find_embedded(file.include_name), &file);
    EXPECT_EQ(file.sha256.size(), 64u);
    previous = file.include_name;
  }
  EXPECT_EQ(find_embedded("moejit_device/no_such.cuh"), nullptr);
  EXPECT_EQ(find_embedded(""), nullptr);
}

TEST(ResolveInclude, ServesPtxFromTheSimulatorOnlyForTheSimulator) {
  int served = 0;
  for (const EmbeddedFile& file : embedded_files()) {
    const std::string prefix = "moejit_sim/ptx/";
    if (!file.include_name.starts_with(prefix)) continue;
    const std::string name =
        "moejit_device/ptx/" + std::string(file.include_name.substr(prefix.size()));
    EXPECT_EQ(resolve_include(name, kSim), &file);
    EXPECT_NE(resolve_include(name, {}), &file);
    ++served;
  }
  if (served == 0) GTEST_SKIP() << "no simulator headers are embedded";
}

TEST(IncludeClosure, OfASourceWithoutIncludesIsEmpty) {
  const auto closure = include_closure("int x;\n#include <standard>\n", {});
  ASSERT_TRUE(closure.has_value());
  EXPECT_TRUE(closure->empty());
}

TEST(IncludeClosure, HoldsIncludesOfIncludesOnceAndSorted) {
  // Every embedded file at once, last first and twice: the closure is the same set, sorted.
  std::string source;
  for (int round = 0; round < 2; ++round) {
    for (auto file = embedded_files().rbegin(); file != embedded_files().rend(); ++file) {
      if (!file->include_name.starts_with("moejit_device/")) continue;
      source += "  #  include \"" + std::string(file->include_name) + "\"\n";
    }
  }
  const auto closure = include_closure(source, {});
  ASSERT_TRUE(closure.has_value()) << to_string(closure.error());
  std::vector<std::string> wanted;
  for (const EmbeddedFile& file : embedded_files()) {
    if (file.include_name.starts_with("moejit_device/")) wanted.emplace_back(file.include_name);
  }
  EXPECT_EQ(names(*closure), wanted);
}

TEST(IncludeClosure, FollowsTheIncludesOfAHeader) {
  for (const EmbeddedFile& file : embedded_files()) {
    const std::string source = "#include \"" + std::string(file.include_name) + "\"";
    const auto closure = include_closure(source, {});
    ASSERT_TRUE(closure.has_value()) << to_string(closure.error());
    const bool includes_others = file.text.find("\n#include \"") != std::string_view::npos;
    EXPECT_EQ(closure->size() > 1, includes_others) << file.include_name;
  }
}

TEST(IncludeClosure, NamesAHeaderThatDoesNotExist) {
  const auto closure = include_closure("#include \"moejit_device/absent.cuh\"\n", kSim);
  ASSERT_FALSE(closure.has_value());
  EXPECT_EQ(closure.error().stage, Stage::kEmit);
  EXPECT_EQ(closure.error().message,
            "include \"moejit_device/absent.cuh\" in the kernel source: no such embedded header");
}

}  // namespace
}  // namespace moejit::templates
