// SPDX-License-Identifier: Apache-2.0
// Kernels for the simulator that one call asks for are compiled together. The C++ compiler is the
// system's, behind a script that counts and can be slow.
#include "compiler/kernel_source.h"
#include "compiler/support/file.h"
#include "runtime/engine.h"
#include "tests/support/matchers.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fmt/core.h>
#include <thread>
#include <utility>

namespace moejit::testing {
namespace {

using runtime::Engine;
using runtime::EngineOptions;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

compiler::KernelSource kernel(int number, const std::string& statement = "") {
  const std::string entry = fmt::format("moejit_unit_{}", number);
  return {.entry = entry,
          .text = fmt::format("#include \"moejit_device/ptx/thread.cuh\"\n"
                              "struct Params {{ int value; }};\n"
                              "MOEJIT_KERNEL(32, 1, {}, Params) {{\n  {}\n}}\n",
                              entry, statement),
          .target = compiler::simulator_target()};
}

std::vector<compiler::KernelSource> kernels(int count) {
  std::vector<compiler::KernelSource> sources;
  for (int i = 0; i < count; ++i) sources.push_back(kernel(i));
  return sources;
}

class SimulatorUnits : public ::testing::Test {
 protected:
  void SetUp() override { use_compiler("0"); }
  void TearDown() override { ::unsetenv("MOEJIT_CXX"); }

  // Each compile takes that many seconds longer.
  void use_compiler(const std::string& seconds) {
    const std::string path = folder_ / "c++";
    const std::string script = fmt::format(
        "#!/bin/sh\ncase \"$*\" in *kernel.cu*) echo 1 >> {}; sleep {};; esac\nexec c++ \"$@\"\n",
        log().string(), seconds);
    ASSERT_TRUE(write_file(path, script));
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
    ::setenv("MOEJIT_CXX", path.c_str(), 1);
  }
  std::unique_ptr<Engine> engine(EngineOptions options = {}) {
    options.cache_dir = folder_ / "cache";
    options.packs = std::vector<std::string>{};
    options.run_dir = folder_ / "run";
    options.compile_jobs = 1;
    options.warn = [this](std::string_view text) { warnings_.emplace_back(text); };
    return Engine::create(options).value();
  }
  std::filesystem::path log() const { return folder_ / "log"; }
  int64_t compiles() const {
    const std::string text = read_text_file(log().string()).value_or("");
    return std::ranges::count(text, '\n');
  }
  void wait_until_compiles(int64_t count) const {
    while (compiles() < count) std::this_thread::sleep_for(milliseconds(1));
  }

  TestDir folder_;
  std::vector<std::string> warnings_;
};

TEST_F(SimulatorUnits, AreCompiledAtOnceAndCachedOneByOne) {
  ASSERT_TRUE(succeeded(engine()->obtain_all(kernels(4))));
  EXPECT_EQ(compiles(), 1);
  const auto later = engine();
  for (int i = 3; i >= 0; --i) {
    const auto obtained = later->obtain(kernel(i));
    ASSERT_TRUE(succeeded(obtained));
    EXPECT_EQ(obtained->origin, runtime::KernelOrigin::kCache);
    EXPECT_EQ(obtained->binary->entry, kernel(i).entry);
  }
  EXPECT_EQ(compiles(), 1);
}

TEST_F(SimulatorUnits, CompileOnlyWhatTheCacheLacks) {
  ASSERT_TRUE(succeeded(engine()->obtain(kernel(1))));
  const auto later = engine();
  ASSERT_TRUE(succeeded(later->obtain_all(kernels(3))));
  EXPECT_EQ(compiles(), 2);
  EXPECT_EQ(later->counters().compiled, 2);
  EXPECT_EQ(later->counters().from_cache, 1);
}

TEST_F(SimulatorUnits, BlameTheKernelThatDoesNotCompileAndKeepTheOthers) {
  const auto one = engine();
  std::vector<compiler::KernelSource> sources = kernels(3);
  sources[1] = kernel(1, "int a = \"text\";");
  const auto failed = one->obtain_all(sources);
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code, ErrorCode::kCompileFailed);
  EXPECT_NE(failed.error().message.find("kernel moejit_unit_1 "), std::string::npos);
  EXPECT_NE(failed.error().detail.find("kernel.cu:4:"), std::string::npos);
  const int64_t so_far = compiles();
  ASSERT_TRUE(succeeded(one->obtain(sources[0])));
  ASSERT_TRUE(succeeded(one->obtain(sources[2])));
  EXPECT_FALSE(one->obtain(sources[1]));
  EXPECT_EQ(compiles(), so_far);
}

// Each engine stands for a process: nothing but files leads from one to the other.
TEST_F(SimulatorUnits, AreMadeOnceByProcessesThatStartTogether) {
  use_compiler("0.3");
  const auto first = engine(), second = engine();
  std::jthread other([&] { EXPECT_TRUE(succeeded(first->obtain_all(kernels(4)))); });
  EXPECT_TRUE(succeeded(second->obtain_all(kernels(4))));
  other.join();
  EXPECT_EQ(compiles(), 1);
  EXPECT_EQ(first->counters().compiled + second->counters().compiled, 4);
}

// Bytes depend on the unit, so that others under the same key are no fault of the compiler.
TEST_F(SimulatorUnits, MayHaveOtherBytesThanKernelsCompiledAlone) {
  use_compiler("0.3");
  const auto first = engine({.lock_patience = milliseconds(0)});
  const auto second = engine({.lock_patience = milliseconds(0)});
  std::jthread other([&] { EXPECT_TRUE(succeeded(first->obtain(kernel(1)))); });
  wait_until_compiles(1);
  EXPECT_TRUE(succeeded(second->obtain_all(kernels(2))));
  other.join();
  EXPECT_EQ(compiles(), 2);
  EXPECT_NE(first->obtain(kernel(1))->binary->bytes, second->obtain(kernel(1))->binary->bytes);
  EXPECT_EQ(first->counters().nondeterministic + second->counters().nondeterministic, 0);
  EXPECT_TRUE(warnings_.empty()) << warnings_.front();
}

// The unit looks again when its turn comes, and compiles what is missing by then.
TEST_F(SimulatorUnits, GiveEachItsKernelThoughAnotherProcessMadeOneMeanwhile) {
  use_compiler("1");
  const auto first = engine(), second = engine();
  std::jthread busy([&] { EXPECT_TRUE(succeeded(first->obtain(kernel(9)))); });
  wait_until_compiles(1);  // the only thread is busy
  use_compiler("0");
  bool is_made = false;
  const auto all = first->obtain_all(kernels(3), {}, [&](std::size_t) {
    if (std::exchange(is_made, true)) return;
    EXPECT_TRUE(succeeded(second->obtain(kernel(0))));
  });
  ASSERT_TRUE(succeeded(all));
  for (int i = 0; i < 3; ++i) {
    const auto& binary = (*all)[static_cast<std::size_t>(i)].binary;
    ASSERT_NE(binary, nullptr) << i;
    EXPECT_EQ(binary->entry, kernel(i).entry);
  }
}

TEST_F(SimulatorUnits, AreGivenUpWhenNobodyWantsThem) {
  use_compiler("0.3");
  const auto one = engine();
  std::jthread other([&] { EXPECT_TRUE(succeeded(one->obtain(kernel(9)))); });
  wait_until_compiles(1);  // the only thread is busy
  const auto late = one->obtain_all(kernels(3), {.deadline = steady_clock::now()});
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().code, ErrorCode::kInterrupted);
  other.join();
  ASSERT_TRUE(succeeded(one->obtain(kernel(8))));  // the thread is behind the unit's turn now
  EXPECT_EQ(compiles(), 2);
  EXPECT_EQ(one->counters().compiled, 2);
}

TEST_F(SimulatorUnits, MakeWhatSomebodyStillWaitsFor) {
  use_compiler("0.3");
  const auto one = engine();
  std::jthread busy([&] { EXPECT_TRUE(succeeded(one->obtain(kernel(9)))); });
  wait_until_compiles(1);
  std::jthread patient;
  const auto late =
      one->obtain_all(kernels(3), {.deadline = steady_clock::now()}, [&](std::size_t) {
        // It boards before the caller gives up.
        patient = std::jthread([&] { EXPECT_TRUE(succeeded(one->obtain(kernel(1)))); });
        while (one->counters().from_memory == 0) std::this_thread::sleep_for(milliseconds(1));
      });
  EXPECT_FALSE(late);
  busy.join();
  patient.join();
  EXPECT_EQ(compiles(), 2);
  EXPECT_EQ(one->counters().compiled, 2);  // kernels 9 and 1
}

}  // namespace
}  // namespace moejit::testing
