// SPDX-License-Identifier: Apache-2.0
// An engine with packs behind its cache folder, with the real compiler of the target sim.
#include "cache/pack.h"
#include "cache/pack_writer.h"
#include "compiler/kernel_source.h"
#include "compiler/support/file.h"
#include "runtime/engine.h"
#include "runtime/kernel_pack.h"
#include "tests/support/matchers.h"
#include "tests/unit/runtime/quantize_source.h"

#include <cstdlib>
#include <fmt/core.h>
#include <gtest/gtest.h>

namespace moejit::runtime {
namespace {

using moejit::testing::succeeded;

class EnginePacks : public ::testing::Test {
 protected:
  void TearDown() override {
    for (const char* name : {"MOEJIT_PACKS", "MOEJIT_CXX"}) unsetenv(name);
  }
  std::string path(const std::string& name) const { return (dir_ / name).string(); }
  std::unique_ptr<Engine> engine(EngineOptions options = {}) {
    options.cache_dir = path("cache");
    options.warn = [this](std::string_view message) { warnings_.emplace_back(message); };
    auto result = Engine::create(options);
    EXPECT_TRUE(succeeded(result));
    return std::move(*result);
  }
  // What nothing has to be compiled for: packs do not look into their kernels.
  cache::Entry entry_with(const std::string& code, const compiler::KernelSource& source) const {
    compiler::KernelBinary binary{
        .entry = source.entry, .target = source.target, .bytes = {}, .usage = {}};
    for (const char c : code) binary.bytes.push_back(static_cast<std::byte>(c));
    return kernel_entry(binary, compiler::kernel_key(source).value());
  }
  std::string write(const std::string& name, const std::vector<cache::Entry>& entries) const {
    const auto sorted = cache::unique_entries(entries).value();
    EXPECT_TRUE(cache::write_pack_file(path(name),
                                       cache::encode_pack(sorted, pack_manifest(sorted)).value()));
    return path(name);
  }
  static std::string code_of(const ObtainedKernel& kernel) {
    return {reinterpret_cast<const char*>(kernel.binary->bytes.data()),
            kernel.binary->bytes.size()};
  }
  size_t kernels_in_folder() const {
    size_t files = 0;
    for (const auto& file : std::filesystem::recursive_directory_iterator(path("cache")))
      files += file.is_regular_file() && file.path().filename().string().size() == 62 ? 1 : 0;
    return files;
  }

  moejit::testing::TestDir dir_;
  const compiler::KernelSource source_ = quantize_source("sim");
  std::vector<std::string> warnings_;
};

TEST_F(EnginePacks, ServeWhatTheFolderLacksAndAreNotCopied) {
  std::filesystem::create_directory(path("packs"));
  const std::string pack = write("packs/a.moejitpack", {entry_with("code", source_)});
  const auto written = std::filesystem::last_write_time(path("packs"));
  const auto bytes = read_file(pack).value();
  const auto from_pack = engine({.packs = {{pack}}});
  const auto kernel = from_pack->obtain(source_);
  ASSERT_TRUE(succeeded(kernel));
  EXPECT_EQ(kernel->origin, KernelOrigin::kPack);
  EXPECT_EQ(code_of(*kernel), "code");
  EXPECT_EQ(from_pack->counters().from_packs, 1);
  EXPECT_EQ(from_pack->counters().compiled + from_pack->counters().from_cache, 0);
  EXPECT_EQ(from_pack->pack_paths(), std::vector{pack});
  EXPECT_EQ(kernels_in_folder(), 0u);
  EXPECT_EQ(from_pack->obtain(source_)->origin, KernelOrigin::kMemory);
  ASSERT_TRUE(
      succeeded(from_pack->obtain(quantize_source("sim", 256))));  // compiled: goes to the folder
  EXPECT_EQ(kernels_in_folder(), 1u);
  EXPECT_EQ(std::filesystem::last_write_time(path("packs")), written);
  EXPECT_EQ(read_file(pack).value(), bytes);
}

TEST_F(EnginePacks, AreAskedInOrderAfterTheFolder) {
  const auto other = quantize_source("sim", 256);
  const std::string first = write("1.moejitpack", {entry_with("first", source_)});
  const std::string second =
      write("2.moejitpack", {entry_with("second", source_), entry_with("other", other)});
  const auto both = engine({.packs = {{first, second}}});
  EXPECT_EQ(code_of(both->obtain(source_).value()), "first");
  EXPECT_EQ(code_of(both->obtain(other).value()), "other");
  EXPECT_EQ(code_of(engine({.packs = {{second, first}}})->obtain(source_).value()), "second");
  ASSERT_TRUE(succeeded(engine({.packs = {{}}})->obtain(source_)));  // compiles into the folder
  EXPECT_EQ(engine({.packs = {{first}}})->obtain(source_)->origin, KernelOrigin::kCache);
}

TEST_F(EnginePacks, ComeFromTheEnvironmentWhereTheCallerSaysNothing) {
  const std::string pack = write("a.moejitpack", {entry_with("code", source_)});
  setenv("MOEJIT_PACKS", (":" + pack + ":").c_str(), 1);
  EXPECT_EQ(engine()->pack_paths(), std::vector{pack});
  EXPECT_TRUE(engine({.packs = {{}}})->pack_paths().empty());
  setenv("MOEJIT_PACKS", "a.moejitpack", 1);
  const auto relative = Engine::create({.cache_dir = path("cache")});
  ASSERT_FALSE(relative);
  EXPECT_EQ(relative.error().message, "MOEJIT_PACKS holds \"a.moejitpack\", wanted absolute paths");
}

TEST_F(EnginePacks, AreNotOpenedWhereTheCallerWantsNoCache) {
  setenv("MOEJIT_PACKS", "/nonexistent", 1);
  EXPECT_TRUE(Engine::create({.use_cache = false}));
}

TEST_F(EnginePacks, AreAnErrorWhereTheyCannotBeOpened) {
  const auto missing = Engine::create({.cache_dir = path("cache"), .packs = {{path("none")}}});
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, ErrorCode::kFileNotFound);
}

TEST_F(EnginePacks, WithDamageGiveWayToTheNextAndTellOnce) {
  const std::string good = write("good.moejitpack", {entry_with("code", source_)});
  auto bytes = read_file(good).value();
  // The entry is last, "code" at its 64 bytes, and 16 of a checksum.
  bytes[bytes.size() - 64] ^= std::byte{1};
  ASSERT_TRUE(cache::write_pack_file(path("bad.moejitpack"), bytes));
  const auto both = engine({.packs = {{path("bad.moejitpack"), good}}});
  EXPECT_EQ(code_of(both->obtain(source_).value()), "code");
  EXPECT_EQ(both->counters().corrupt, 1);
  ASSERT_EQ(warnings_.size(), 1u);
  EXPECT_EQ(warnings_[0],
            fmt::format("pack {}: entry {}: its checksum does not match; its kernels are "
                        "looked up elsewhere",
                        path("bad.moejitpack"), compiler::kernel_key(source_)->digest.hex()));
}

TEST_F(EnginePacks, WithDamageAreReportedOnceForAllTheirEntries) {
  const auto other = quantize_source("sim", 256);
  const std::string pack =
      write("bad.moejitpack", {entry_with("code", source_), entry_with("other", other)});
  auto bytes = read_file(pack).value();
  const auto places = cache::Pack::open(pack).value()->places().value();
  for (const cache::Pack::Place& place : places) bytes[place.offset + 60] ^= std::byte{1};
  ASSERT_TRUE(cache::write_pack_file(pack, bytes));
  const auto frozen = engine({.packs = {{pack}}, .frozen = true});
  EXPECT_FALSE(frozen->obtain(source_));
  EXPECT_FALSE(frozen->obtain(other));
  EXPECT_EQ(frozen->counters().corrupt, 2);
  EXPECT_EQ(warnings_.size(), 1u);
}

TEST_F(EnginePacks, WithAnotherKernelUnderTheKeyAreNotBelieved) {
  cache::Entry wrong = entry_with("code", quantize_source("sim", 256));
  wrong.key = compiler::kernel_key(source_)->digest;
  const auto frozen = engine({.packs = {{write("a.moejitpack", {wrong})}}, .frozen = true});
  EXPECT_FALSE(frozen->obtain(source_));
  EXPECT_EQ(warnings_.size(), 1u);
  EXPECT_EQ(frozen->counters().corrupt, 1);
}

TEST_F(EnginePacks, NeedNoCompilerOnThisMachine) {
  const std::string pack = write("a.moejitpack", {entry_with("code", source_)});
  setenv("MOEJIT_CXX", "/nonexistent", 1);
  const auto kernel = engine({.packs = {{pack}}})->obtain(source_);
  ASSERT_TRUE(succeeded(kernel));
  EXPECT_EQ(code_of(*kernel), "code");
  EXPECT_EQ(engine({.packs = {{pack}}})->obtain(quantize_source("sim", 256)).error().code,
            ErrorCode::kCompilerMissing);
}

TEST_F(EnginePacks, TellHowToMakeWhatAFrozenEngineLacks) {
  const std::string pack = write("a.moejitpack", {entry_with("code", quantize_source("sim", 256))});
  const auto frozen =
      engine({.packs = {{pack}}, .frozen = true, .build_arguments = "some/layer.json"});
  const auto missed = frozen->obtain(source_);
  ASSERT_FALSE(missed);
  EXPECT_EQ(missed.error().code, ErrorCode::kCacheMiss);
  EXPECT_EQ(
      missed.error().message,
      fmt::format("the frozen cache ({}; {}) has no kernel {} for sim (key {})", path("cache"),
                  pack, source_.entry, compiler::kernel_key(source_)->digest.hex()));
  EXPECT_EQ(missed.error().hint,
            "make it beforehand: moejit build some/layer.json --target sim --pack "
            "more.moejitpack, and add that to the packs");
}

TEST_F(EnginePacks, SayWhatIsInThem) {
  const std::vector<cache::Entry> entries = {entry_with("code", source_)};
  const std::string manifest = pack_manifest(entries);
  EXPECT_TRUE(manifest.ends_with(R"("kernels":1,"targets":["sim"]})")) << manifest;
  const auto compilers = compilers_of(manifest);
  ASSERT_EQ(compilers.size(), 1u);
  EXPECT_EQ(compilers[0], compiler_fields(source_.target, toolchain_identity(source_).value()));
  for (const char* odd : {"", "[]", "{}", R"({"compilers":1})", R"({"compilers":[1]})", "\xff"})
    EXPECT_TRUE(compilers_of(odd).empty()) << odd;
}

}  // namespace
}  // namespace moejit::runtime
