// SPDX-License-Identifier: Apache-2.0
#include "compiler/host/host_compiler.h"

#include "compiler/support/file.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <gtest/gtest.h>
#include <sstream>
#include <unistd.h>

namespace moejit::compiler {
namespace {

// Returns the options that a compiler of this version gets.
std::vector<std::string> options_for(const std::string& version) {
  const KernelSource source{.entry = "moejit_test", .text = "", .target = {}};
  const std::array fields{"compiler=" + version};
  const auto identity = host_toolchain_identity(source, fields).value().value();
  const auto options = std::find_if(identity.begin(), identity.end(), [](const std::string& field) {
    return field.starts_with("options=");
  });
  std::istringstream words(options == identity.end() ? "" : options->substr(8));
  std::vector<std::string> split;
  for (std::string word; words >> word;) split.push_back(word);
  return split;
}

bool has(const std::vector<std::string>& options, std::string_view option) {
  return std::find(options.begin(), options.end(), option) != options.end();
}

// clang ends with an error at names of passes that it does not have, and for it -Og is -O1.
TEST(HostCompiler, ChoosesPassesOfGccAlone) {
  for (const char* gcc : {"g++ (Debian 12.2.0-14+deb12u1) 12.2.0", "c++ (GCC) 14.1.1"}) {
    EXPECT_TRUE(has(options_for(gcc), "-fno-tree-dominator-opts")) << gcc;
    EXPECT_TRUE(has(options_for(gcc), "-Og")) << gcc;
    EXPECT_FALSE(has(options_for(gcc), "-O1")) << gcc;
  }
  for (const char* clang : {"Debian clang version 14.0.6", "clang version 18.1.3"}) {
    EXPECT_FALSE(has(options_for(clang), "-fno-tree-dominator-opts")) << clang;
    EXPECT_FALSE(has(options_for(clang), "-ftree-sra")) << clang;
    EXPECT_TRUE(has(options_for(clang), "-O1")) << clang;
    EXPECT_TRUE(has(options_for(clang), "-ffp-contract=off")) << clang;
  }
}

// Two compilers that call themselves the same, such as wrappers that add options, share no kernel.
TEST(HostCompiler, TellsCompilersOfOneNameApart) {
  std::string folder = (std::filesystem::temp_directory_path() / "moejit-cxx-XXXXXX").string();
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  const auto field_of = [&](const std::string& name, const std::string& script) {
    const std::string path = folder + "/" + name;
    EXPECT_TRUE(moejit::write_file(path, "#!/bin/sh\n" + script + "\n"));
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
    ::setenv("MOEJIT_CXX", path.c_str(), 1);
    const auto identity =
        host_toolchain_identity({.entry = "moejit_test", .text = "", .target = {}}).value();
    EXPECT_TRUE(is_host_compiler_field(identity.front()));
    return identity.front();
  };
  const std::string plain = field_of("plain", "echo 'c++ (Test) 1.0'; exec c++ \"$@\"");
  EXPECT_TRUE(plain.starts_with("compiler=c++ (Test) 1.0 [")) << plain;
  EXPECT_EQ(field_of("copy", "echo 'c++ (Test) 1.0'; exec c++ \"$@\""), plain);
  EXPECT_NE(field_of("slow", "echo 'c++ (Test) 1.0'; exec c++ \"$@\" -O0"), plain);
  EXPECT_NE(field_of("more", "printf 'c++ (Test) 1.0\\nTarget: other\\n'; exec c++ \"$@\""), plain);
  ::unsetenv("MOEJIT_CXX");
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace moejit::compiler
