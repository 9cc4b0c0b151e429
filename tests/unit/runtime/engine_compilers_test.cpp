// SPDX-License-Identifier: Apache-2.0
// Which compiler's kernels an engine takes from its folder, with entries of compilers that nobody
// has. Nothing is compiled.
#include "compiler/compiler.h"
#include "runtime/engine.h"
#include "runtime/kernel_compilers.h"
#include "runtime/kernel_entry.h"
#include "tests/support/matchers.h"
#include "tests/unit/runtime/quantize_source.h"

#include <algorithm>
#include <cstdlib>
#include <fmt/core.h>
#include <gtest/gtest.h>

namespace moejit::runtime {
namespace {

using moejit::testing::succeeded;

const CompilerFields kOld = {"compiler=c++ 9.4.0"};
const CompilerFields kNew = {"compiler=c++ 12.2.0"};

TEST(OwnKey, IsFormedAnewOnlyForAnotherCompiler) {
  const compiler::KernelSource source = quantize_source("sim");
  const auto formed = own_key(source, std::nullopt);
  if (!formed) GTEST_SKIP() << to_string(formed.error());
  EXPECT_EQ(formed->key.digest, compiler::kernel_key(source)->digest);
  OwnKey known = *formed;
  known.key.digest = sha256("handed on");
  EXPECT_EQ(own_key(source, known)->key.digest, sha256("handed on"));
  known.compiler = kOld;  // told by files, and another one was opened
  const auto anew = own_key(source, known);
  ASSERT_TRUE(succeeded(anew));
  EXPECT_EQ(anew->key.digest, formed->key.digest);
  EXPECT_EQ(anew->compiler, formed->compiler);
}

class EngineCompilers : public ::testing::Test {
 protected:
  void SetUp() override { setenv("MOEJIT_CXX", "/nonexistent", 1); }
  void TearDown() override { unsetenv("MOEJIT_CXX"); }

  std::string folder() const { return (dir_ / "cache").string(); }
  std::unique_ptr<cache::KernelCache> open_folder() const {
    return cache::KernelCache::open(folder()).value();
  }
  // Puts code of a compiler into the folder; an earlier version of moejit records none.
  void put(const CompilerFields& compiler, const std::string& code, bool is_recorded = true) const {
    const auto key = key_with(source_, compiler).value();
    compiler::KernelBinary binary{
        .entry = source_.entry, .target = source_.target, .bytes = {}, .usage = {}};
    for (const char c : code) binary.bytes.push_back(static_cast<std::byte>(c));
    const auto folder = open_folder();
    if (is_recorded) record_compiler(*folder, compiler);
    ASSERT_TRUE(folder->put(key.digest, kernel_metadata(binary, key), binary.bytes));
  }
  Result<ObtainedKernel> obtain(const compiler::KernelSource& source,
                                EngineOptions options = {}) const {
    options.cache_dir = folder();
    options.packs.emplace();
    return Engine::create(options).value()->obtain(source);
  }
  // The code that an engine finds, or its error.
  std::string found(const EngineOptions& options = {}) const {
    const auto kernel = obtain(source_, options);
    if (!kernel) return kernel.error().message;
    EXPECT_EQ(kernel->origin, KernelOrigin::kCache);
    return {reinterpret_cast<const char*>(kernel->binary->bytes.data()),
            kernel->binary->bytes.size()};
  }

  moejit::testing::TestDir dir_;
  const compiler::KernelSource source_ = quantize_source("sim");
};

TEST_F(EngineCompilers, TheNewestServesWhereThereIsNone) {
  put(kOld, "old");
  EXPECT_EQ(found(), "old");
  put(kNew, "new");
  EXPECT_EQ(found(), "new");
  EXPECT_EQ(found({.frozen = true}), "new");
}

TEST_F(EngineCompilers, ThoseOfEntriesWithoutRecordsServeToo) {
  put(kOld, "old", false);
  record_compiler(*open_folder(), kNew);  // whose entries are gone
  EXPECT_EQ(found(), "old");
  EXPECT_EQ(recorded_compilers(*open_folder()), (std::vector{kNew, kOld}));
}

TEST_F(EngineCompilers, ThatOfThisMachineIsAskedFirstAndAloneUnlessFrozen) {
  unsetenv("MOEJIT_CXX");
  const auto identity = compiler::toolchain_identity(source_);
  if (!identity) GTEST_SKIP() << identity.error().message;
  put({"compiler=z++ 99"}, "other");
  EXPECT_EQ(found({.frozen = true}), "other");
  EXPECT_NE(found({.frozen = true, .own_compiler_only = true}), "other");
  put(compiler::compiler_fields(source_.target, *identity), "own");
  EXPECT_EQ(found({.frozen = true}), "own");
  EXPECT_EQ(found(), "own");
}

TEST_F(EngineCompilers, AreNamedWhereNoneHasTheKernel) {
  put(kOld, "old");
  put(kNew, "new");
  const auto other = quantize_source("sim", 256);
  const std::string wanted = fmt::format(
      "({}, with kernels of c++ 12.2.0, c++ 9.4.0) has no kernel {} for sim by any compiler",
      folder(), other.entry);
  const auto frozen = obtain(other, {.frozen = true, .build_arguments = "a.json"});
  ASSERT_FALSE(frozen);
  EXPECT_EQ(frozen.error().code, ErrorCode::kCacheMiss);
  EXPECT_EQ(frozen.error().message, "the frozen cache " + wanted);
  EXPECT_EQ(frozen.error().hint,
            fmt::format("make it beforehand, on a machine with a compiler and the same moejit: "
                        "moejit build a.json --target sim --cache-dir {}",
                        folder()));
  const auto missing = obtain(other);
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, ErrorCode::kCompilerMissing);
  EXPECT_TRUE(missing.error().message.ends_with("; and the cache " + wanted))
      << missing.error().message;
}

TEST(KernelCompilers, AreInOrderOfTheirVersionsWhateverTheOrderOfFiles) {
  std::vector<CompilerFields> compilers = {
      {"compiler=nvrtc 12.9", "compiler_build_id=ff", "builtins_build_id=00"},
      {"compiler=nvrtc 13.0", "compiler_build_id=aa", "builtins_build_id=00"},
      {"compiler=nvrtc 12.10", "compiler_build_id=aa", "builtins_build_id=00"},
      {"compiler=nvrtc 13.0", "compiler_build_id=bb", "builtins_build_id=00"},
      {"compiler=nvrtc 13.0", "compiler_build_id=bb", "builtins_build_id=11"}};
  std::vector<std::string> names;
  for (int round = 0; round < 120; ++round) {
    std::ranges::next_permutation(compilers);
    auto ordered = compilers;
    ordered.push_back(compilers[0]);
    order_compilers(ordered);
    std::string text;
    for (const CompilerFields& compiler : ordered)
      text += compiler_name(compiler) + compiler[1].substr(17) + compiler[2].substr(17) + " ";
    ASSERT_EQ(text,
              "nvrtc 13.0=bb=11 nvrtc 13.0=bb=00 nvrtc 13.0=aa=00 nvrtc 12.10=aa=00 "
              "nvrtc 12.9=ff=00 ");
  }
}

TEST_F(EngineCompilers, HasNoOwnKeyWithoutACompilerEvenIfOneIsHandedOn) {
  const OwnKey known{.key = key_with(source_, kOld).value(), .compiler = kOld};
  EXPECT_EQ(own_key(source_, known).error().code, ErrorCode::kCompilerMissing);
}

}  // namespace
}  // namespace moejit::runtime
