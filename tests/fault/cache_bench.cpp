// SPDX-License-Identifier: Apache-2.0
// Prints what a cache costs, in time and in CPU time; nothing is asserted. `cache_bench FOLDER
// [ENTRIES]` fills a folder, which should be new, with entries of 4 KiB (default: 100000) and one
// of 64 KiB.
#include "cache/eviction.h"
#include "cache/kernel_cache.h"

#include <algorithm>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <fmt/core.h>
#include <fstream>
#include <functional>
#include <string>
#include <sys/stat.h>
#include <vector>

namespace moejit::cache {
namespace {

struct Cost {
  double seconds = 0, cpu_seconds = 0;
};

double now(clockid_t clock) {
  timespec time{};
  ::clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

Cost cost_of(const std::function<void()>& work) {
  const Cost begin{now(CLOCK_MONOTONIC), now(CLOCK_THREAD_CPUTIME_ID)};
  work();
  return {now(CLOCK_MONOTONIC) - begin.seconds, now(CLOCK_THREAD_CPUTIME_ID) - begin.cpu_seconds};
}

void print_quantiles(const std::string& what, std::vector<Cost> costs) {
  std::ranges::sort(costs, {}, &Cost::cpu_seconds);
  const double cpu = costs[costs.size() / 2].cpu_seconds;
  std::ranges::sort(costs, {}, &Cost::seconds);
  fmt::print("{:<36} p50 {:8.1f} us  p99 {:8.1f} us  CPU p50 {:8.1f} us\n", what,
             costs[costs.size() / 2].seconds * 1e6, costs[costs.size() * 99 / 100].seconds * 1e6,
             cpu * 1e6);
}

Digest key(int i) { return sha256(fmt::format("{}", i)); }

// Without the syncs of put(), which are another figure; a day old.
void fill(const std::string& folder, int entries) {
  const std::vector<std::byte> payload(3900);
  for (int i = 0; i < entries; ++i) {
    const std::string hex = key(i).hex();
    const std::string path = folder + "/v2/" + hex.substr(0, 2);
    ::mkdir(path.c_str(), 0700);
    const auto file = encode_entry(key(i), "{}", payload);
    const std::string name = path + "/" + hex.substr(2);
    std::ofstream(name, std::ios::binary)
        .write(reinterpret_cast<const char*>(file.data()), std::ssize(file));
    const timespec day_ago{::time(nullptr) - 86400, 0};
    const timespec times[2] = {day_ago, day_ago};
    ::utimensat(AT_FDCWD, name.c_str(), times, 0);
  }
}

void run(const std::string& folder, int entries) {
  CacheSettings settings;
  settings.limits = {.max_bytes = kUnlimited, .max_files = kUnlimited};
  const auto open = [&] { return KernelCache::open(folder, {}, settings).value(); };
  open();
  fill(folder, entries);
  const Digest large = sha256("large");
  open()->put(large, "{}", std::vector<std::byte>(65536));

  std::vector<Cost> costs;
  for (int i = 0; i < 200; ++i)
    costs.push_back(cost_of([&] { (void)open()->get(sha256("absent")); }));
  print_quantiles(fmt::format("open and first miss, {} entries", entries), costs);
  const auto cache = open();
  costs.clear();
  for (int i = 0; i < 5000; ++i) costs.push_back(cost_of([&] { (void)cache->get(large); }));
  print_quantiles("verified hit of 64 KiB", costs);
  costs.clear();
  for (int i = 0; i < 5000; ++i) costs.push_back(cost_of([&] { (void)cache->get(key(-1 - i)); }));
  print_quantiles("miss", costs);
  costs.clear();
  const std::vector<std::byte> code(65536);
  for (int i = 0; i < 200; ++i)
    costs.push_back(cost_of([&] { cache->put(sha256(fmt::format("new{}", i)), "{}", code); }));
  print_quantiles("publication of 64 KiB", costs);

  double bytes = 0;
  const Cost verified = cost_of([&] {
    for (const EntryInfo& entry : cache->list()) bytes += static_cast<double>(entry.file_bytes);
  });
  fmt::print("{:<36} {:.2f} s, {:.0f} MB/s, CPU {:.2f} s\n", "verification of everything",
             verified.seconds, bytes / verified.seconds * 1e-6, verified.cpu_seconds);
  settings.limits.max_files = entries / 2;
  Collected collected;
  const Cost evicted = cost_of([&] { collected = open()->collect_garbage(); });
  fmt::print("{:<36} {:.2f} s for {} entries, CPU {:.2f} s\n", "eviction to half", evicted.seconds,
             collected.evicted_files, evicted.cpu_seconds);
}

}  // namespace
}  // namespace moejit::cache

int main(int argc, char** argv) {
  if (argc < 2) {
    fmt::print(stderr, "cache_bench FOLDER [ENTRIES]\n");
    return 2;
  }
  moejit::cache::run(argv[1], argc > 2 ? std::atoi(argv[2]) : 100000);
  return 0;
}
