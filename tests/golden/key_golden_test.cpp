// SPDX-License-Identifier: Apache-2.0
// The keys of every kernel of every layer in docs/examples/layers, for both targets, forward and
// with gradients, compared with keys.txt: for a toolchain that is made up, so that they are the
// same on all machines and with all compilers of ours. A key that changes makes every cache of
// every user miss, so that it needs a reason; `key_golden_test --update` writes the file anew.

#include "compiler/compiler.h"
#include "compiler/kernel_source.h"
#include "tests/support/matchers.h"
#include "tests/support/update_main.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <fmt/core.h>
#include <fstream>
#include <gtest/gtest.h>
#include <iterator>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace moejit::testing {
namespace {

namespace fs = std::filesystem;

const fs::path kLayers = fs::path(MOEJIT_SOURCE_DIR) / "docs/examples/layers";
const fs::path kKeys = fs::path(MOEJIT_SOURCE_DIR) / "tests/golden/keys.txt";
const std::vector<std::string> kToolchain = {"compiler=golden 1.0", "option=-a", "option=-b",
                                             "header:moejit_device/golden.cuh=0"};

std::string read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// "<layer> <passes> <target> <kernels> <digest of their keys in the order of the plan>", or why
// there is no plan.
std::string line_of(const compiler::Layer& layer, const std::string& name,
                    const std::string& target) {
  const std::string head =
      fmt::format("{} {} {}", name, layer.passes.size() > 1 ? "training" : "forward", target);
  const compiler::Target parsed = compiler::parse_target(target).value();
  const auto plan = compiler::plan_layer(layer, parsed);
  if (!plan) return fmt::format("{} {}\n", head, to_string(plan.error().code));
  std::string keys;
  for (const compiler::KernelPlan& kernel : plan->kernels) {
    const auto source = compiler::emit_kernel(kernel, parsed);
    EXPECT_TRUE(succeeded(source));
    if (source) keys += compiler::kernel_key(*source, kToolchain).digest.hex();
  }
  return fmt::format("{} {} {}\n", head, plan->kernels.size(), sha256(keys).hex());
}

std::vector<std::string> lines() {
  std::vector<fs::path> files;
  for (const auto& file : fs::directory_iterator(kLayers)) files.push_back(file.path());
  std::ranges::sort(files);
  std::vector<std::string> result;
  for (const fs::path& file : files) {
    auto layer = compiler::parse_layer(read_file(file), file.string());
    EXPECT_TRUE(succeeded(layer));
    if (!layer) continue;
    using Passes = decltype(layer->passes);
    for (const Passes& passes : {Passes{compiler::Pass::kForward},
                                 Passes{compiler::Pass::kForward, compiler::Pass::kBackward}}) {
      layer->passes = passes;
      for (const char* target : {"cuda:sm_90a", "sim"})
        result.push_back(line_of(*layer, file.stem().string(), target));
    }
  }
  return result;
}

TEST(Keys, AreTheGoldenOnes) {
  const std::vector<std::string> now = lines();
  EXPECT_GE(now.size(), 50u);
  std::string text;
  for (const std::string& line : now) text += line;
  EXPECT_EQ(text, read_file(kKeys))
      << "caches of users would miss; after a wanted change run key_golden_test --update";
}

// Text of any kind, much of it what C++, the preprocessor or fmt would take for their own.
std::string random_label(std::mt19937& random) {
  constexpr std::array kParts = {
      "*/",   "/*",     "//",     "#error",     "\\\n",   "\"",   "\\",  "%s", "{}",
      "?\?/", "\n",     "\t",     " ",          "a",      "Z9",   ")",   ";",  "}",
      "R\"(", "\u00e4", "\u4e2d", "\U0001F600", "\u202e", "asm(", "\x01"};
  std::string label;
  for (auto parts = random() % 24; parts > 0; --parts) label += kParts[random() % kParts.size()];
  return label;
}

// A label reaches neither source nor key.
TEST(Keys, AreThoseOfALayerOfAnyName) {
  auto layer = compiler::parse_layer(read_file(kLayers / "tiny.json"), "tiny.json").value();
  const std::string plain = line_of(layer, "tiny", "sim");
  const char* const runs = std::getenv("LABEL_RUNS");
  std::mt19937 random(1);
  for (int i = runs != nullptr ? std::atoi(runs) : 500; i > 0; --i) {
    layer.name = random_label(random);
    ASSERT_EQ(line_of(layer, "tiny", "sim"), plain) << layer.name;
  }
}

void update() {
  std::ofstream file(kKeys, std::ios::binary);
  for (const std::string& line : lines()) file << line;
}

}  // namespace
}  // namespace moejit::testing

int main(int argc, char** argv) {
  return moejit::testing::run_tests_or_update(argc, argv, &moejit::testing::update);
}
