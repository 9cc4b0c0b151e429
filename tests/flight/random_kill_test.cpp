// SPDX-License-Identifier: Apache-2.0
// Processes that are killed at any moment, in which they read, compile, publish or wait. Whatever
// was published stays whole, nobody hangs, and who comes next compiles what is missing and no more.
// The environment variable KILL_RUNS says how many are killed by each test; 40 where it is not set.
// With it, figures are printed.
#include "tests/flight/node_fixture.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <optional>
#include <random>

namespace moejit::testing {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

class RandomKillTest : public NodeTest {
 protected:
  struct Figures {
    int killed = 0;                       // by us, before their end
    int over = 0;                         // too fast for that
    int hung = 0;                         // did not end
    int restarts = 0;                     // that were let to their end
    int64_t verified = 0;                 // entries, each time we looked
    int64_t published = 0, compiled = 0;  // before and by the restarts
  };

  static int runs() {
    const char* const text = std::getenv("KILL_RUNS");  // NOLINT(concurrency-mt-unsafe)
    return text != nullptr ? std::atoi(text) : 40;
  }

  void print(const char* what) const {
    if (std::getenv("KILL_RUNS") == nullptr) return;  // NOLINT(concurrency-mt-unsafe)
    std::printf(
        "%s: %d killed, %d were over, %d hung; %lld entries verified; %d restarts found %lld "
        "kernels and compiled %lld\n",
        what, figures_.killed, figures_.over, figures_.hung,
        static_cast<long long>(figures_.verified), figures_.restarts,
        static_cast<long long>(figures_.published), static_cast<long long>(figures_.compiled));
  }

  // Lets compiles take 2 ms. How long one of them takes then that nobody kills; the first of two
  // may be slow.
  microseconds duration_of(const Crowd& crowd) {
    control()->microseconds = 2000;
    control()->go = 1;
    auto least = microseconds::max();
    for (int i = 0; i < 2; ++i) {
      wipe();
      const auto begin = std::chrono::steady_clock::now();
      EXPECT_EQ(end_of(start(crowd, ++seed_, run_dir())), 0);
      const auto end = std::chrono::steady_clock::now();
      least = std::min(least, std::chrono::duration_cast<microseconds>(end - begin));
    }
    wipe();
    return least;
  }
  void wait_at_most(microseconds longest) {
    const auto most = static_cast<std::uint64_t>(longest.count());
    std::this_thread::sleep_for(microseconds(random_() % most));
  }

  void wipe() {
    std::filesystem::remove_all(cache_dir());
    last_published_ = 0;
  }

  int look() {
    const int published = check_cache();
    figures_.verified += published;
    EXPECT_GE(published, last_published_);  // nothing is lost
    return last_published_ = published;
  }

  void note_end(int end) {
    figures_.killed += end == kKilled ? 1 : 0;
    figures_.over += end >= 0 ? 1 : 0;
    figures_.hung += end == kHung ? 1 : 0;
    ASSERT_NE(end, kHung);
  }

  // One that nobody kills compiles exactly what is not there.
  void restart(const Crowd& crowd) {
    const int published = look();
    const int64_t before = control()->begun;
    ASSERT_EQ(end_of(start(crowd, ++seed_, run_dir())), 0);
    ASSERT_EQ(control()->begun - before, crowd.kernels - published);
    ASSERT_EQ(look(), crowd.kernels);
    ++figures_.restarts;
    figures_.published += published;
    figures_.compiled += control()->begun - before;
    wipe();
  }

  // After each fifth process one is let to its end; some find what the one before published.
  void go_on(int run, const Crowd& crowd) {
    if (run % 5 == 0) return restart(crowd);
    if (run % 2 == 0) wipe();
  }

  // The processes that `parent` started and that live.
  static std::vector<pid_t> children_of(pid_t parent) {
    std::vector<pid_t> found;
    for (const auto& folder : std::filesystem::directory_iterator("/proc")) {
      const std::string name = folder.path().filename();
      if (name.find_first_not_of("0123456789") != std::string::npos) continue;
      const auto state = state_of(std::stoi(name));
      if (state && state->first == parent && state->second != 'Z') found.push_back(std::stoi(name));
    }
    return found;
  }
  // Parent and state of a process; none where it is gone.
  static std::optional<std::pair<pid_t, char>> state_of(pid_t process) {
    std::ifstream file("/proc/" + std::to_string(process) + "/stat");
    std::string text;
    if (!std::getline(file, text) || text.rfind(')') == std::string::npos) return std::nullopt;
    text.erase(0, text.rfind(')') + 2);
    return std::pair(static_cast<pid_t>(std::stoi(text.substr(2))), text[0]);
  }
  static bool is_gone(pid_t process) {
    const auto state = state_of(process);
    return !state || state->second == 'Z';
  }

  std::mt19937 random_{7};
  Figures figures_;
  int last_published_ = 0;
};

TEST_F(RandomKillTest, LosesNothingThatWasPublished) {
  const Crowd one{.processes = 1, .threads = 4, .kernels = 16};
  const microseconds duration = duration_of(one);
  for (int run = 1; run <= runs(); ++run) {
    const pid_t process = start(one, ++seed_, run_dir());
    wait_at_most(duration);
    kill(process, SIGKILL);
    ASSERT_NO_FATAL_FAILURE(note_end(end_of(process)));
    look();
    ASSERT_NO_FATAL_FAILURE(go_on(run, one));
  }
  EXPECT_GT(figures_.killed, runs() / 8);
  print("processes");
}

// Processes that compile in processes of their own.
class RandomKillWithWorkersTest : public RandomKillTest {
 protected:
  void SetUp() override {
    RandomKillTest::SetUp();
    ::setenv("MOEJIT_COMPILE_WORKER", MOEJIT_TOOL, 1);
  }
  void TearDown() override {
    ::unsetenv("MOEJIT_COMPILE_WORKER");
    RandomKillTest::TearDown();
  }
};

TEST_F(RandomKillWithWorkersTest, LeavesNoneBehind) {
  control()->microseconds = 5'000'000;
  control()->go = 1;
  const pid_t process = start({.processes = 1, .threads = 1, .kernels = 1}, ++seed_, run_dir());
  while (control()->begun == 0) std::this_thread::sleep_for(milliseconds(1));
  const std::vector<pid_t> workers = children_of(process);
  ASSERT_EQ(workers.size(), 1u);
  kill(process, SIGKILL);
  EXPECT_EQ(end_of(process), kKilled);
  while (!is_gone(workers.front())) std::this_thread::sleep_for(milliseconds(1));
  EXPECT_EQ(control()->finished, 0);  // it did not go on to its end
}

TEST_F(RandomKillWithWorkersTest, TakesItsOwnWithIt) {
  const Crowd one{.processes = 1, .threads = 2, .kernels = 3};
  const microseconds duration = duration_of(one);
  for (int run = 1; run <= runs() / 4; ++run) {
    const pid_t process = start(one, ++seed_, run_dir());
    wait_at_most(duration);
    const std::vector<pid_t> workers = children_of(process);
    kill(process, SIGKILL);
    ASSERT_NO_FATAL_FAILURE(note_end(end_of(process)));
    for (const pid_t worker : workers)
      while (!is_gone(worker)) std::this_thread::sleep_for(milliseconds(1));
    look();
    ASSERT_NO_FATAL_FAILURE(go_on(run, one));
  }
  print("processes with workers");
}

TEST_F(RandomKillWithWorkersTest, SurvivesTheDeathOfItsOwn) {
  const Crowd one{.processes = 1, .threads = 2, .kernels = 3};
  const microseconds duration = duration_of(one);
  int killed = 0;
  for (int run = 1; run <= runs() / 4; ++run) {
    const pid_t process = start(one, ++seed_, run_dir());
    wait_at_most(duration);
    // On a busy machine none may live just then: the next one does as well.
    std::vector<pid_t> workers = children_of(process);
    for (; workers.empty() && !is_gone(process); workers = children_of(process))
      std::this_thread::sleep_for(microseconds(200));
    bool is_hit = false;
    for (const pid_t worker : workers) is_hit |= kill(worker, SIGKILL) == 0;
    killed += is_hit ? 1 : 0;
    // It says which kernels it did not get (1), or had its answer already.
    const int end = end_of(process);
    ASSERT_TRUE(end == 0 || (end == 1 && is_hit)) << end;
    look();
    ASSERT_NO_FATAL_FAILURE(go_on(run, one));
  }
  EXPECT_GT(killed, 0);
  figures_.killed = killed;
  print("workers");
}

}  // namespace
}  // namespace moejit::testing
