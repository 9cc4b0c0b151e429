// SPDX-License-Identifier: Apache-2.0
// With trees of files as the system would show them.
#include "runtime/compile_budget.h"

#include "tests/support/matchers.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <sched.h>

namespace moejit::runtime {
namespace {

namespace fs = std::filesystem;

class CompileBudgetTest : public ::testing::Test {
 protected:
  void put(const std::string& path, const std::string& text) {
    const fs::path file = dir_ / path.substr(1);
    fs::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  CompileBudget budget() const { return compile_budget((dir_ / "").string()); }

  moejit::testing::TestDir dir_;
};

TEST_F(CompileBudgetTest, IsOneJobForEachCoreWhereNothingIsKnown) {
  const CompileBudget none = budget();
  cpu_set_t set;
  ASSERT_EQ(sched_getaffinity(0, sizeof(set), &set), 0);
  EXPECT_EQ(none.cores, CPU_COUNT(&set));
  EXPECT_EQ(none.jobs, none.cores);
  EXPECT_FALSE(none.cpu_quota);
  EXPECT_FALSE(none.memory_bytes);
}

TEST_F(CompileBudgetTest, KeepsToTheCoresThatTheThreadMayRunOn) {
  cpu_set_t all;
  ASSERT_EQ(sched_getaffinity(0, sizeof(all), &all), 0);
  cpu_set_t one;
  CPU_ZERO(&one);
  for (std::size_t core = 0; core < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++core)
    if (CPU_ISSET(core, &all)) CPU_SET(core, &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
  EXPECT_EQ(budget().cores, 1);
  EXPECT_EQ(sched_setaffinity(0, sizeof(all), &all), 0);
}

TEST_F(CompileBudgetTest, RoundsAQuotaUp) {
  put("/proc/self/cgroup", "0::/\n");
  put("/sys/fs/cgroup/cpu.max", "150000 100000\n");
  EXPECT_EQ(budget().jobs, std::min(budget().cores, 2));
}

TEST_F(CompileBudgetTest, TakesTheTightestQuotaUpToTheRootOfVersion2) {
  put("/proc/self/cgroup", "0::/pods/pod7/main\n");
  put("/sys/fs/cgroup/pods/pod7/main/cpu.max", "max 100000\n");
  put("/sys/fs/cgroup/pods/pod7/cpu.max", "50000 100000\n");
  put("/sys/fs/cgroup/pods/cpu.max", "800000 100000\n");
  EXPECT_EQ(budget().cpu_quota, 0.5);
  EXPECT_EQ(budget().jobs, 1);
}

TEST_F(CompileBudgetTest, TakesWhatMemoryIsLeftInVersion2) {
  put("/proc/meminfo", "MemTotal:       64000000 kB\nMemAvailable:   32000000 kB\n");
  put("/proc/self/cgroup", "0::/\n");
  put("/sys/fs/cgroup/memory.max", "1073741824\n");
  put("/sys/fs/cgroup/memory.current", "805306368\n");
  put("/sys/fs/cgroup/memory.stat", "anon 1\ninactive_file 268435456\n");
  EXPECT_EQ(budget().memory_bytes, int64_t{512} << 20);
  EXPECT_EQ(budget().jobs, 1);
}

TEST_F(CompileBudgetTest, KnowsVersion1WherePathsAreThoseOfTheHost) {
  put("/proc/self/cgroup", "4:memory:/docker/abc\n3:cpu,cpuacct:/docker/abc\n0::/\n");
  put("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "150000\n");
  put("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
  put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "2147483648\n");
  put("/sys/fs/cgroup/memory/memory.usage_in_bytes", "1073741824\n");
  EXPECT_EQ(budget().cpu_quota, 1.5);
  EXPECT_EQ(budget().memory_bytes, int64_t{1} << 30);
}

TEST_F(CompileBudgetTest, IsNotLimitedByAQuotaOfMinusOne) {
  put("/proc/self/cgroup", "3:cpu,cpuacct:/\n");
  put("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
  put("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_FALSE(budget().cpu_quota);
}

TEST_F(CompileBudgetTest, IsOneJobWhereMemoryIsShort) {
  put("/proc/meminfo", "MemAvailable:   1000 kB\n");
  EXPECT_EQ(budget().jobs, 1);
}

TEST_F(CompileBudgetTest, ReadsAsASentence) {
  EXPECT_EQ(to_string({.cores = 16, .cpu_quota = 2.0, .memory_bytes = int64_t{3} << 30, .jobs = 2}),
            "2 jobs: 16 cores, CPU quota 2.0, 3.0 GiB of memory");
  EXPECT_EQ(to_string(CompileBudget{}), "1 job: 1 core");
}

}  // namespace
}  // namespace moejit::runtime
