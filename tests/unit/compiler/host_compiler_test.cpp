// SPDX-License-Identifier: Apache-2.0
#include "compiler/host/host_compiler.h"

#include <algorithm>
#include <array>
#include <gtest/gtest.h>
#include <sstream>

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

// clang ends with an error at names of passes that it does not have.
TEST(HostCompiler, LeavesOutPassesOfGccAlone) {
  for (const char* gcc : {"g++ (Debian 12.2.0-14+deb12u1) 12.2.0", "c++ (GCC) 14.1.1"}) {
    EXPECT_TRUE(has(options_for(gcc), "-fno-tree-dominator-opts")) << gcc;
  }
  for (const char* clang : {"Debian clang version 14.0.6", "clang version 18.1.3"}) {
    EXPECT_FALSE(has(options_for(clang), "-fno-tree-dominator-opts")) << clang;
    EXPECT_TRUE(has(options_for(clang), "-ffp-contract=off")) << clang;
  }
}

}  // namespace
}  // namespace moejit::compiler
