// SPDX-License-Identifier: Apache-2.0
// With the real compiler of the target sim, the one that is always there.
#include "runtime/engine.h"

#include "cache/kernel_cache.h"
#include "compiler/kernel_source.h"
#include "compiler/support/file.h"
#include "tests/support/matchers.h"
#include "tests/unit/runtime/quantize_source.h"

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <thread>

namespace moejit::runtime {
namespace {

using moejit::testing::succeeded;

class EngineTest : public ::testing::Test {
 protected:
  std::string folder() const { return (dir_ / "cache").string(); }
  std::unique_ptr<Engine> engine(EngineOptions options = {}) {
    if (options.use_cache) options.cache_dir = folder();
    options.warn = [this](std::string_view message) { warnings_.emplace_back(message); };
    auto result = Engine::create(options);
    EXPECT_TRUE(succeeded(result));
    return std::move(*result);
  }
  std::string file_of(const compiler::KernelSource& source) const {
    const std::string hex = compiler::kernel_key(source)->digest.hex();
    return folder() + "/v2/" + hex.substr(0, 2) + "/" + hex.substr(2);
  }

  moejit::testing::TestDir dir_;
  const compiler::KernelSource source_ = quantize_source("sim");
  std::vector<std::string> warnings_;
};

TEST_F(EngineTest, CompilesOnceForAllEnginesOfAFolder) {
  const auto first = engine();
  const auto made = first->binary(source_);
  ASSERT_TRUE(succeeded(made));
  ASSERT_TRUE(succeeded(first->binary(source_)));
  EXPECT_EQ(first->counters().compiled, 1);
  EXPECT_EQ(first->counters().from_memory, 1);
  const auto second = engine();
  const auto read = second->binary(source_);
  ASSERT_TRUE(succeeded(read));
  EXPECT_EQ(**read, **made);
  EXPECT_EQ(second->counters().compiled, 0);
  EXPECT_EQ(second->counters().from_cache, 1);
  EXPECT_TRUE(warnings_.empty());
  EXPECT_EQ(second->cache_description(), folder());
}

TEST_F(EngineTest, TellsWhereAKernelCameFromAndHowLongItTook) {
  const auto first = engine();
  const auto made = first->obtain(source_);
  ASSERT_TRUE(succeeded(made));
  EXPECT_EQ(made->origin, KernelOrigin::kCompiler);
  ASSERT_TRUE(made->compile_time.has_value());
  EXPECT_GT(made->compile_time->total, 0.0);
  const auto again = first->obtain(source_);
  ASSERT_TRUE(succeeded(again));
  EXPECT_EQ(again->origin, KernelOrigin::kMemory);
  EXPECT_FALSE(again->compile_time.has_value());
  const auto read = engine()->obtain(source_);
  ASSERT_TRUE(succeeded(read));
  EXPECT_EQ(read->origin, KernelOrigin::kCache);
  EXPECT_FALSE(read->compile_time.has_value());
}

TEST_F(EngineTest, MakesACorruptKernelAnewAndSaysSoOnce) {
  ASSERT_TRUE(succeeded(engine()->binary(source_)));
  auto file = read_file(file_of(source_)).value();
  file[file.size() / 2] ^= std::byte{1};
  ASSERT_TRUE(write_file(file_of(source_), file));
  const auto second = engine();
  ASSERT_TRUE(succeeded(second->binary(source_)));
  EXPECT_EQ(second->counters().corrupt, 1);
  EXPECT_EQ(second->counters().compiled, 1);
  EXPECT_EQ(warnings_.size(), 1u);
  const auto third = engine();
  ASSERT_TRUE(succeeded(third->binary(source_)));
  EXPECT_EQ(third->counters().from_cache, 1);
  EXPECT_EQ(warnings_.size(), 1u);
}

TEST_F(EngineTest, KeepsTheFolderWithinTheLimitsOfItsOptions) {
  const auto fill = [&] {
    const auto cache = cache::KernelCache::open(folder(), {}, {}).value();  // default limits
    for (int i = 0; i < 10; ++i) {
      const Digest key = sha256(fmt::format("{}", i));
      ASSERT_TRUE(cache->put(key, "{}", std::vector<std::byte>(1000)));
      const std::string hex = key.hex();
      std::filesystem::last_write_time(
          folder() + "/v2/" + hex.substr(0, 2) + "/" + hex.substr(2),
          std::filesystem::file_time_type::clock::now() - std::chrono::hours(1));
    }
  };
  const auto files_after = [&](EngineOptions options) {
    fill();
    std::filesystem::remove(file_of(source_));
    EXPECT_TRUE(succeeded(engine(std::move(options))->binary(source_)));
    return cache::KernelCache::open(folder()).value()->keys().size();
  };
  EXPECT_EQ(files_after({.cache_max_files = 4}), 4u);
  EXPECT_EQ(files_after({.cache_max_bytes = 1}), 1u);  // the new one, which is young
  ASSERT_EQ(::setenv("MOEJIT_CACHE_MAX_FILES", "4", 1), 0);
  EXPECT_EQ(files_after({}), 4u);
  EXPECT_EQ(files_after({.cache_max_files = cache::kUnlimited}), 11u);
  ASSERT_EQ(::unsetenv("MOEJIT_CACHE_MAX_FILES"), 0);
}

TEST_F(EngineTest, RefusesLimitsThatNothingFits) {
  const auto message_of = [](const EngineOptions& options) {
    const auto refused = Engine::create(options);
    EXPECT_FALSE(refused);
    EXPECT_EQ(refused.error().code, ErrorCode::kInvalidValue);
    return refused.error().message;
  };
  EXPECT_EQ(message_of({.cache_max_bytes = 0}),
            "the engine option cache_max_bytes is 0, wanted at least 1");
  EXPECT_EQ(message_of({.cache_max_files = -1}),
            "the engine option cache_max_files is -1, wanted at least 1");
}

// A variable that does not count may have any value.
TEST_F(EngineTest, ReadsNoVariableOfWhichTheOptionIsSet) {
  ASSERT_EQ(::setenv("MOEJIT_LOCK_SECONDS", "soon", 1), 0);
  ASSERT_EQ(::setenv("MOEJIT_COMPILE_JOBS", "few", 1), 0);
  const auto created = Engine::create(
      {.use_cache = false, .compile_jobs = 3, .lock_patience = std::chrono::hours(1'000'000)});
  EXPECT_EQ(Engine::create({.compile_jobs = 3}).error().code, ErrorCode::kInvalidValue);
  EXPECT_EQ(Engine::create({.lock_patience = std::chrono::seconds(1)}).error().code,
            ErrorCode::kInvalidValue);
  ASSERT_EQ(::unsetenv("MOEJIT_LOCK_SECONDS"), 0);
  ASSERT_EQ(::unsetenv("MOEJIT_COMPILE_JOBS"), 0);
  ASSERT_TRUE(succeeded(created));
  EXPECT_EQ((*created)->compile_jobs(), 3);
}

TEST_F(EngineTest, WritesTheSameFileEveryTime) {
  ASSERT_TRUE(succeeded(engine()->binary(source_)));
  const auto first = read_file(file_of(source_)).value();
  std::filesystem::remove(file_of(source_));
  ASSERT_TRUE(succeeded(engine()->binary(source_)));
  EXPECT_EQ(read_file(file_of(source_)).value(), first);
}

TEST_F(EngineTest, NeverCompilesWhenFrozen) {
  const auto frozen = engine({.frozen = true});
  const auto missed = frozen->binary(source_);
  ASSERT_FALSE(missed);
  EXPECT_EQ(missed.error().code, ErrorCode::kCacheMiss);
  EXPECT_EQ(missed.error().message,
            fmt::format("the frozen cache ({}) has no kernel {} for sim (key {})", folder(),
                        source_.entry, compiler::kernel_key(source_)->digest.hex()));
  EXPECT_EQ(missed.error().hint,
            "make it beforehand: moejit build LAYER --target sim --cache-dir " + folder());
  ASSERT_TRUE(succeeded(engine()->binary(source_)));
  EXPECT_TRUE(succeeded(frozen->binary(source_)));
}

TEST_F(EngineTest, MakesAKernelOnceForManyThreads) {
  const auto shared = engine();
  std::atomic<int> failures{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i)
    threads.emplace_back([&] { failures += shared->binary(source_) ? 0 : 1; });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failures, 0);
  EXPECT_EQ(shared->counters().compiled, 1);
  EXPECT_EQ(shared->counters().from_memory, 7);
}

TEST_F(EngineTest, RemembersThatASourceDoesNotCompile) {
  compiler::KernelSource broken = source_;
  broken.text += "#error broken on purpose\n";
  const auto shared = engine();
  for (int i = 0; i < 2; ++i) {
    const auto result = shared->binary(broken);
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().code, ErrorCode::kCompileFailed);
  }
  EXPECT_EQ(shared->counters().compiled, 0);
  EXPECT_EQ(shared->counters().remembered_failures, 1);
}

TEST_F(EngineTest, RefusesANamedFolderThatItCannotUse) {
  ASSERT_TRUE(write_file(folder(), "not a folder"));
  const auto result = Engine::create({.cache_dir = folder()});
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::kCacheUnusable);
}

TEST_F(EngineTest, KeepsKernelsInMemoryWhereTheCallerWantsNoCache) {
  const auto memory = engine({.use_cache = false});
  EXPECT_EQ(memory->cache_description(), "memory only: the caller asked for it");
  EXPECT_FALSE(std::filesystem::exists(folder()));
}

}  // namespace
}  // namespace moejit::runtime
