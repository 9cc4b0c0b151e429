// SPDX-License-Identifier: Apache-2.0
// One process: who waits, who is remembered, what comes first. With the fake NVRTC.
#include "cache/kernel_cache.h"
#include "compiler/kernel_source.h"
#include "runtime/prepared_plan.h"
#include "tests/flight/flight_fixture.h"

#include <atomic>
#include <chrono>
#include <thread>

namespace moejit::testing {
namespace {

using runtime::Engine;
using runtime::EngineOptions;
using runtime::KernelOrigin;
using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;

class EngineFlightTest : public FlightTest {
 protected:
  static std::vector<compiler::KernelSource> kernels(int count, int first = 0) {
    std::vector<compiler::KernelSource> sources;
    for (int i = 0; i < count; ++i) sources.push_back(flight_kernel(first + i));
    return sources;
  }
  static void wait_until_begun(int64_t count) {
    while (control()->begun < count) std::this_thread::sleep_for(milliseconds(1));
  }
  static void wait_until_idle() {
    while (control()->running > 0) std::this_thread::sleep_for(milliseconds(1));
  }
};

TEST_F(EngineFlightTest, AsksTheCompilerOnceAboutASourceThatDoesNotCompile) {
  control()->result = 6;  // NVRTC_ERROR_COMPILATION
  const auto one = engine();
  std::string first;
  for (int i = 0; i < 3; ++i) {
    const auto result = one->obtain(flight_kernel(1));
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().code, ErrorCode::kCompileFailed);
    if (i == 0) first = to_string(result.error());
    EXPECT_EQ(to_string(result.error()), first);
  }
  EXPECT_EQ(control()->begun, 1);
  EXPECT_EQ(one->counters().remembered_failures, 2);
  // In memory only.
  control()->result = 0;
  EXPECT_TRUE(succeeded(engine()->obtain(flight_kernel(1))));
}

TEST_F(EngineFlightTest, TriesAgainAfterAFailureOfTheCompiler) {
  const auto one = engine();
  const std::pair<int, ErrorCode> failures[] = {{1, ErrorCode::kOutOfMemory},
                                                {7, ErrorCode::kCompilerMissing},
                                                {11, ErrorCode::kCompilerFault}};
  for (const auto& [result, code] : failures) {
    control()->result = result;
    const auto failed = one->obtain(flight_kernel(1));
    ASSERT_FALSE(failed);
    EXPECT_EQ(failed.error().code, code);
  }
  control()->result = 0;
  EXPECT_TRUE(succeeded(one->obtain(flight_kernel(1))));
  EXPECT_EQ(control()->begun, 4);
  EXPECT_EQ(one->counters().remembered_failures, 0);
}

TEST_F(EngineFlightTest, ForgetsAPrefetchThatFailed) {
  control()->result = 1;  // NVRTC_ERROR_OUT_OF_MEMORY
  const auto one = engine();
  one->prefetch(kernels(1));
  while (control()->finished == 0) std::this_thread::sleep_for(milliseconds(1));
  control()->result = 0;
  // The first may still get what the prefetch ended with.
  bool is_made = false;
  for (int i = 0; i < 1000 && !is_made; ++i) {
    is_made = one->obtain(flight_kernel(0)).has_value();
    std::this_thread::sleep_for(milliseconds(1));
  }
  EXPECT_TRUE(is_made);
  EXPECT_EQ(control()->begun, 2);
}

TEST_F(EngineFlightTest, TellsEverybodyWhyAKernelPrefetchedMeanwhileDoesNotCompile) {
  control()->result = 6;  // NVRTC_ERROR_COMPILATION
  control()->microseconds = 50'000;
  const auto one = engine();
  Result<runtime::ObtainedKernel> first;
  std::jthread other([&] { first = one->obtain(flight_kernel(0)); });
  wait_until_begun(1);
  one->prefetch(kernels(1));
  const auto boarded = one->obtain(flight_kernel(0));
  other.join();
  const auto later = one->obtain(flight_kernel(0));
  for (const auto& result : {first, boarded, later}) {
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().code, ErrorCode::kCompileFailed);
    EXPECT_EQ(to_string(result.error()), to_string(first.error()));
  }
  EXPECT_EQ(control()->begun, 1);
}

TEST_F(EngineFlightTest, TellsWhyAPrefetchFailedThatWaitedForAnotherEngine) {
  control()->result = 6;  // NVRTC_ERROR_COMPILATION
  control()->microseconds = 50'000;
  const auto first = engine();
  const auto second = engine();
  std::jthread other([&] { EXPECT_FALSE(first->obtain(flight_kernel(0))); });
  wait_until_begun(1);
  second->prefetch(kernels(1));
  for (int i = 0; i < 2; ++i) {
    const auto result = second->obtain(flight_kernel(0));
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().code, ErrorCode::kCompileFailed);
  }
  other.join();
  EXPECT_EQ(control()->begun, 2);  // only files lead from one engine to the other
  EXPECT_EQ(second->counters().without_lock, 0);
}

TEST_F(EngineFlightTest, CompilesNoMoreAtATimeThanItMay) {
  control()->is_held = 1;
  control()->microseconds = 5000;
  const auto one = engine({.compile_jobs = 3});
  EXPECT_EQ(one->compile_jobs(), 3);
  std::vector<std::jthread> threads;
  for (int i = 0; i < 20; ++i)
    threads.emplace_back([&, i] { EXPECT_TRUE(succeeded(one->obtain(flight_kernel(i)))); });
  while (control()->running < 3) std::this_thread::sleep_for(milliseconds(1));
  control()->is_held = 0;
  threads.clear();
  EXPECT_EQ(control()->begun, 20);
  EXPECT_EQ(control()->most_running, 3);
}

TEST_F(EngineFlightTest, TakesTheNumberOfJobsFromTheEnvironment) {
  ::setenv("MOEJIT_COMPILE_JOBS", "5", 1);
  EXPECT_EQ(engine()->compile_jobs(), 5);
  EXPECT_EQ(engine({.compile_jobs = 2})->compile_jobs(), 2);
  ::setenv("MOEJIT_COMPILE_JOBS", "many", 1);
  const auto refused = Engine::create({.cache_dir = cache_dir()});
  ::unsetenv("MOEJIT_COMPILE_JOBS");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidValue);
  EXPECT_EQ(refused.error().message,
            "MOEJIT_COMPILE_JOBS is \"many\", wanted a number from 1 to 1024");
}

TEST_F(EngineFlightTest, CompilesFirstWhatSomebodyWaitsFor) {
  control()->microseconds = 20000;
  const auto one = engine({.compile_jobs = 1});
  one->prefetch(kernels(8));
  wait_until_begun(1);
  EXPECT_TRUE(succeeded(one->obtain(flight_kernel(20))));  // not prefetched
  EXPECT_TRUE(succeeded(one->obtain(flight_kernel(7))));   // the last in the queue
  EXPECT_EQ(control()->order[1], 20);
  EXPECT_TRUE(succeeded(one->obtain_all(kernels(8))));
  EXPECT_EQ(control()->begun, 9);
  EXPECT_EQ(control()->begun_of[7], 1);
  EXPECT_LT(control()->order[2] + control()->order[3], 1 + 7 + 1);  // 7 came before 2
}

TEST_F(EngineFlightTest, MakesWhatWasPrefetchedThoughNobodyAsks) {
  const auto one = engine();
  one->prefetch(kernels(4));
  while (control()->finished < 4) std::this_thread::sleep_for(milliseconds(1));
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(succeeded(one->obtain(flight_kernel(i))));
  EXPECT_EQ(control()->begun, 4);
}

TEST_F(EngineFlightTest, MakesWhatWasPrefetchedThoughAWaiterHasLeft) {
  control()->microseconds = 20000;
  const auto one = engine({.compile_jobs = 1});
  one->prefetch(kernels(2));
  wait_until_begun(1);
  EXPECT_FALSE(one->obtain(flight_kernel(1), {.deadline = steady_clock::now()}));
  for (int i = 0; i < 10000 && control()->finished < 2; ++i)
    std::this_thread::sleep_for(milliseconds(1));
  EXPECT_EQ(control()->finished, 2);
  EXPECT_EQ(control()->cancelled, 0);
}

TEST_F(EngineFlightTest, MakesWhatWasPrefetchedMeanwhileThoughTheWaiterHasLeft) {
  control()->microseconds = 50'000;
  const auto one = engine();
  std::stop_source stop;
  std::jthread waiter(
      [&] { EXPECT_FALSE(one->obtain(flight_kernel(0), {.stop = stop.get_token()})); });
  wait_until_begun(1);
  one->prefetch(kernels(1));
  stop.request_stop();
  waiter.join();
  wait_until_idle();
  EXPECT_EQ(control()->cancelled, 0);
  EXPECT_TRUE(succeeded(one->obtain(flight_kernel(0))));
  EXPECT_EQ(control()->begun, 1);
}

TEST_F(EngineFlightTest, LeavesAtTheDeadlineAndGivesUpTheCompile) {
  control()->microseconds = 60'000'000;
  const auto one = engine();
  const auto late =
      one->obtain(flight_kernel(1), {.deadline = steady_clock::now() + milliseconds(30)});
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().code, ErrorCode::kInterrupted);
  wait_until_idle();
  EXPECT_EQ(control()->cancelled, 1);
  control()->microseconds = 0;
  EXPECT_TRUE(succeeded(one->obtain(flight_kernel(1))));
  EXPECT_EQ(one->counters().remembered_failures, 0);
}

TEST_F(EngineFlightTest, StopsWhenAskedTo) {
  control()->microseconds = 60'000'000;
  const auto one = engine();
  std::stop_source stop;
  std::jthread canceller([&] {
    wait_until_begun(1);
    stop.request_stop();
  });
  const auto stopped = one->obtain_all(kernels(5), {.stop = stop.get_token()});
  ASSERT_FALSE(stopped);
  EXPECT_EQ(stopped.error().code, ErrorCode::kInterrupted);
  wait_until_idle();
  EXPECT_EQ(control()->finished, 0);
}

TEST_F(EngineFlightTest, GoesOnForThoseWhoStillWait) {
  control()->microseconds = 100'000;
  const auto one = engine();
  std::jthread patient([&] { EXPECT_TRUE(succeeded(one->obtain(flight_kernel(1)))); });
  wait_until_begun(1);
  EXPECT_FALSE(one->obtain(flight_kernel(1), {.deadline = steady_clock::now()}));
  patient.join();
  EXPECT_EQ(control()->cancelled, 0);
  EXPECT_EQ(control()->begun, 1);
}

TEST_F(EngineFlightTest, GivesUpWhatIsRunningWhenItIsDestroyed) {
  control()->microseconds = 60'000'000;
  auto one = engine({.compile_jobs = 2});
  one->prefetch(kernels(6));
  wait_until_begun(2);
  one.reset();
  EXPECT_EQ(control()->cancelled, 2);
  EXPECT_EQ(control()->begun, 2);
}

TEST_F(EngineFlightTest, TellsProgressInOrder) {
  const auto one = engine();
  std::vector<std::size_t> done;
  const auto all =
      one->obtain_all(kernels(3), {}, [&](std::size_t count) { done.push_back(count); });
  ASSERT_TRUE(succeeded(all));
  EXPECT_EQ(done, (std::vector<std::size_t>{0, 1, 2, 3}));
  EXPECT_EQ((*all)[2].binary->entry, "moejit_flight_2");
  EXPECT_EQ((*all)[2].origin, KernelOrigin::kCompiler);
}

TEST_F(EngineFlightTest, FindsByKeyWhatIsInMemory) {
  const auto one = engine();
  const Digest key = compiler::kernel_key(flight_kernel(1), {}).digest;
  EXPECT_EQ(one->find(key), nullptr);
  ASSERT_TRUE(succeeded(one->obtain(flight_kernel(1))));
  ASSERT_NE(one->find(key), nullptr);
  EXPECT_EQ(one->find(key)->entry, "moejit_flight_1");
}

TEST_F(EngineFlightTest, NoticesACompilerThatMakesOtherBytesForTheSameSource) {
  control()->is_inconsistent = 1;
  control()->microseconds = 100'000;
  // Neither waits for the other.
  auto first = engine({.lock_patience = milliseconds(0)});
  auto second = engine({.lock_patience = milliseconds(0)});
  std::jthread other([&] { EXPECT_TRUE(succeeded(first->obtain(flight_kernel(1)))); });
  wait_until_begun(1);
  std::this_thread::sleep_for(milliseconds(30));
  control()->microseconds = 300'000;  // so that the second has to find what the first published
  EXPECT_TRUE(succeeded(second->obtain(flight_kernel(1))));
  other.join();
  EXPECT_EQ(control()->begun, 2);
  EXPECT_EQ(first->counters().nondeterministic + second->counters().nondeterministic, 1);
  ASSERT_EQ(warnings_.size(), 1u);
  EXPECT_NE(warnings_[0].find("was compiled twice, with different bytes"), std::string::npos);
  // What was published first stays.
  const auto& loser = first->counters().nondeterministic == 1 ? first : second;
  const auto& winner = first->counters().nondeterministic == 1 ? second : first;
  const auto read = engine()->obtain(flight_kernel(1));
  ASSERT_TRUE(succeeded(read));
  EXPECT_EQ(read->binary->bytes, winner->obtain(flight_kernel(1))->binary->bytes);
  EXPECT_NE(read->binary->bytes, loser->obtain(flight_kernel(1))->binary->bytes);
  first.reset();  // their counts go to the folder now
  second.reset();
  EXPECT_EQ(cache::KernelCache::open(cache_dir())
                .value()
                ->statistics()
                .counted.total[cache::Count::kNondeterministic],
            1);
}

TEST_F(EngineFlightTest, SaysOnceThatThereAreNoLocks) {
  ASSERT_TRUE(write_file(run_dir(), "not a folder"));
  const auto one = engine();
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(succeeded(one->obtain(flight_kernel(i))));
  EXPECT_EQ(one->counters().without_lock, 3);
  ASSERT_EQ(warnings_.size(), 1u);
  EXPECT_NE(warnings_[0].find("processes of this node may compile the same kernel"),
            std::string::npos);
}

TEST_F(EngineFlightTest, TakesNoLocksForKernelsThatStayInMemory) {
  const auto one = engine({.use_cache = false});
  EXPECT_TRUE(succeeded(one->obtain(flight_kernel(1))));
  EXPECT_FALSE(std::filesystem::exists(run_dir()));
}

TEST_F(EngineFlightTest, WaitsForAnotherEngineThatCompilesTheSame) {
  control()->microseconds = 50'000;
  const auto first = engine();
  const auto second = engine();
  std::jthread other([&] { EXPECT_TRUE(succeeded(first->obtain(flight_kernel(1)))); });
  wait_until_begun(1);
  const auto waited = second->obtain(flight_kernel(1));
  other.join();
  ASSERT_TRUE(succeeded(waited));
  EXPECT_EQ(waited->origin, KernelOrigin::kCache);
  EXPECT_EQ(control()->begun, 1);
}

}  // namespace
}  // namespace moejit::testing
