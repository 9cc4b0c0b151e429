// SPDX-License-Identifier: Apache-2.0
#include "compiler/kernel_source.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <gtest/gtest.h>
#include <set>

namespace moejit::compiler {
namespace {

const KernelSource kSource{.entry = "moejit_quantize", .text = "text\n", .target = {}};
const std::vector<std::string> kToolchain = {"compiler=nvrtc", "version=13.0",
                                             "options=--fmad=false", "headers=abc"};

Digest key_of(const KernelSource& source, const std::vector<std::string>& toolchain = kToolchain) {
  return kernel_key(source, toolchain).digest;
}

TEST(KernelKey, ChangesWithEveryInput) {
  std::set<Digest> keys = {key_of(kSource)};
  const auto expect_new = [&](const Digest& key, std::string_view what) {
    EXPECT_TRUE(keys.insert(key).second) << what;
  };
  KernelSource source = kSource;
  source.entry += "x";
  expect_new(key_of(source), "entry");
  source = kSource;
  source.text += " ";
  expect_new(key_of(source), "text");
  source = kSource;
  source.target.arch = "sm_90";
  expect_new(key_of(source), "architecture");
  source.target = simulator_target();
  expect_new(key_of(source), "target");
  for (size_t i = 0; i < kToolchain.size(); ++i) {
    std::vector<std::string> toolchain = kToolchain;
    toolchain[i] += "x";
    expect_new(key_of(kSource, toolchain), kToolchain[i]);
    toolchain.erase(toolchain.begin() + static_cast<std::ptrdiff_t>(i));
    expect_new(key_of(kSource, toolchain), "without " + kToolchain[i]);
  }
  expect_new(key_of(kSource, {"compiler", "=nvrtc"}), "fields cut elsewhere");
  std::vector<std::string> reordered = kToolchain;
  std::swap(reordered[0], reordered[1]);
  expect_new(key_of(kSource, reordered), "order");
}

TEST(KernelKey, IgnoresTheProcessAroundIt) {
  const Digest key = key_of(kSource);
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path("/");
  ::setenv("MOEJIT_CACHE_DIR", "/elsewhere", 1);
  ::setenv("LC_ALL", "de_DE.UTF-8", 1);
  EXPECT_EQ(key_of(kSource), key);
  ::unsetenv("LC_ALL");
  ::unsetenv("MOEJIT_CACHE_DIR");
  std::filesystem::current_path(before);
}

// Caches are shared between machines and releases: a key that changes needs a reason.
TEST(KernelKey, IsTheSameOnEveryMachine) {
  EXPECT_EQ(key_of(kSource).hex(),
            "cb81d0bce20b2a10663e36ba003a969e540d8ce26b558cdbdacabd053898f765");
}

TEST(KernelKey, ListsItsFieldsWithoutTheSourceText) {
  const KernelKey key = kernel_key(kSource, kToolchain);
  const auto value_of = [&](std::string_view name) {
    const auto found = std::ranges::find(key.fields, name, &HashedField::name);
    return found == key.fields.end() ? std::string("absent") : found->value;
  };
  EXPECT_EQ(value_of("target"), "cuda:sm_90a");
  EXPECT_EQ(value_of("entry"), "moejit_quantize");
  EXPECT_EQ(value_of("source"), sha256("text\n").hex());
  EXPECT_EQ(value_of("options"), "--fmad=false");
}

}  // namespace
}  // namespace moejit::compiler
