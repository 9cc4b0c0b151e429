// SPDX-License-Identifier: Apache-2.0
#include "runtime/compile_budget.h"

#include "compiler/support/file.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fmt/core.h>
#include <sched.h>
#include <string_view>
#include <thread>
#include <vector>

namespace moejit::runtime {
namespace {

int32_t usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  const int count = ::sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 0;
  // More than 1024 cores do not fit into the set.
  return count > 0 ? count
                   : static_cast<int32_t>(std::max(1U, std::thread::hardware_concurrency()));
}

std::optional<int64_t> number_in(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(" \t"), text.size()));
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{}) return std::nullopt;
  return number;
}

// Returns the number behind `name` in a file with a name and a number on each line.
std::optional<int64_t> field(std::string_view text, std::string_view name) {
  for (std::size_t at = 0; at < text.size(); at = std::min(text.find('\n', at), text.size()) + 1)
    if (text.substr(at).starts_with(name)) return number_in(text.substr(at + name.size()));
  return std::nullopt;
}

std::string text_of(const std::string& path) { return read_text_file(path).value_or(""); }

std::optional<int64_t> number_of_file(const std::string& path) { return number_in(text_of(path)); }

// Returns the folders of a hierarchy of control groups, from the process's own group upwards.
std::vector<std::string> groups(const std::string& mount, std::string path) {
  std::vector<std::string> folders;
  for (; path.size() > 1; path.resize(path.rfind('/'))) folders.push_back(mount + path);
  folders.push_back(mount);
  return folders;
}

// Returns the process's path in the hierarchy of `controller`; version 2 has one hierarchy, whose
// name is empty.
std::optional<std::string> group_path(std::string_view cgroup, std::string_view controller) {
  while (!cgroup.empty()) {
    const std::string_view line = cgroup.substr(0, cgroup.find('\n'));
    cgroup.remove_prefix(std::min(line.size() + 1, cgroup.size()));
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (first == std::string_view::npos || second == std::string_view::npos) continue;
    std::string_view names = line.substr(first + 1, second - first - 1);
    if (names.empty() && controller.empty()) return std::string(line.substr(second + 1));
    while (!names.empty()) {
      const std::string_view name = names.substr(0, names.find(','));
      if (name == controller) return std::string(line.substr(second + 1));
      names.remove_prefix(std::min(name.size() + 1, names.size()));
    }
  }
  return std::nullopt;
}

template <typename Number>
void lower(std::optional<Number>& least, Number value) {
  least = least ? std::min(*least, value) : value;
}

void read_version_2(const std::string& folder, CompileBudget& budget) {
  const std::string cpu = text_of(folder + "/cpu.max");  // "200000 100000" or "max 100000"
  const auto quota = number_in(cpu);
  const auto period = number_in(std::string_view(cpu).substr(std::min(cpu.find(' '), cpu.size())));
  if (quota && period && *period > 0)
    lower(budget.cpu_quota, static_cast<double>(*quota) / static_cast<double>(*period));
  const auto limit = number_of_file(folder + "/memory.max");
  if (!limit) return;
  const int64_t used = number_of_file(folder + "/memory.current").value_or(0);
  // `idle` counts pages of files, which the kernel drops when memory is needed.
  const int64_t idle = field(text_of(folder + "/memory.stat"), "inactive_file ").value_or(0);
  lower(budget.memory_bytes, std::max<int64_t>(0, *limit - used + idle));
}

void read_cpu_of_version_1(const std::string& folder, CompileBudget& budget) {
  const auto quota = number_of_file(folder + "/cpu.cfs_quota_us");  // -1: none
  const auto period = number_of_file(folder + "/cpu.cfs_period_us");
  if (quota && period && *quota > 0 && *period > 0)
    lower(budget.cpu_quota, static_cast<double>(*quota) / static_cast<double>(*period));
}

void read_memory_of_version_1(const std::string& folder, CompileBudget& budget) {
  const auto limit = number_of_file(folder + "/memory.limit_in_bytes");
  if (!limit) return;
  const int64_t used = number_of_file(folder + "/memory.usage_in_bytes").value_or(0);
  const int64_t idle = field(text_of(folder + "/memory.stat"), "total_inactive_file ").value_or(0);
  lower(budget.memory_bytes, std::max<int64_t>(0, *limit - used + idle));
}

void read_control_groups(const std::string& root, CompileBudget& budget) {
  const std::string cgroup = text_of(root + "/proc/self/cgroup");
  const std::string mounts = root + "/sys/fs/cgroup";
  if (const auto path = group_path(cgroup, ""))
    for (const std::string& mount : {mounts, mounts + "/unified"})
      for (const std::string& folder : groups(mount, *path)) read_version_2(folder, budget);
  if (const auto path = group_path(cgroup, "cpu"))
    for (const std::string& mount : {mounts + "/cpu", mounts + "/cpu,cpuacct"})
      for (const std::string& folder : groups(mount, *path)) read_cpu_of_version_1(folder, budget);
  if (const auto path = group_path(cgroup, "memory"))
    for (const std::string& folder : groups(mounts + "/memory", *path))
      read_memory_of_version_1(folder, budget);
}

}  // namespace

CompileBudget compile_budget(const std::string& root) {
  CompileBudget budget{.cores = usable_cores()};
  if (const auto free = field(text_of(root + "/proc/meminfo"), "MemAvailable:"))
    budget.memory_bytes = *free * 1024;
  read_control_groups(root, budget);
  int64_t jobs = budget.cores;
  if (budget.cpu_quota) jobs = std::min(jobs, static_cast<int64_t>(std::ceil(*budget.cpu_quota)));
  if (budget.memory_bytes) jobs = std::min(jobs, *budget.memory_bytes / kCompileMemoryBytes);
  budget.jobs = static_cast<int32_t>(std::max<int64_t>(1, jobs));
  return budget;
}

std::string to_string(const CompileBudget& budget) {
  std::string text = fmt::format("{} job{}: {} core{}", budget.jobs, budget.jobs == 1 ? "" : "s",
                                 budget.cores, budget.cores == 1 ? "" : "s");
  if (budget.cpu_quota) text += fmt::format(", CPU quota {:.1f}", *budget.cpu_quota);
  if (budget.memory_bytes)
    text += fmt::format(", {:.1f} GiB of memory",
                        static_cast<double>(*budget.memory_bytes) / (1 << 30));
  return text;
}

}  // namespace moejit::runtime
