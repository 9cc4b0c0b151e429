// SPDX-License-Identifier: Apache-2.0
// Measures how long it takes to find a kernel that was made before: in memory, by source, on disk.
// Prints figures and judges nothing.
#include "cache/kernel_cache.h"
#include "cache/pack_writer.h"
#include "compiler/compiler.h"
#include "compiler/kernel_source.h"
#include "runtime/engine.h"
#include "runtime/kernel_entry.h"
#include "runtime/kernel_pack.h"
#include "runtime/kernel_store.h"
#include "tests/support/temp_dir.h"

#include <algorithm>
#include <benchmark/benchmark.h>
#include <chrono>
#include <fmt/core.h>
#include <random>
#include <vector>

namespace moejit {
namespace {

using Clock = std::chrono::steady_clock;

std::vector<Digest> random_keys(int count) {
  std::mt19937_64 random(1);
  std::vector<Digest> keys(static_cast<std::size_t>(count));
  for (Digest& key : keys)
    for (std::uint8_t& byte : key.bytes) byte = static_cast<std::uint8_t>(random());
  return keys;
}

// Times single calls, since threads that share a core would spoil a mean. Each figure includes
// reading the clock.
class Samples {
 public:
  template <typename Function>
  void time(const Function& function) {
    const auto start = Clock::now();
    function();
    const std::chrono::duration<double, std::nano> elapsed = Clock::now() - start;
    nanoseconds_.push_back(elapsed.count());
  }
  void report(benchmark::State& state) {
    std::ranges::sort(nanoseconds_);
    for (const auto& [name, share] : {std::pair("p50_ns", 0.5), std::pair("p99_ns", 0.99)}) {
      const auto at = static_cast<std::size_t>(share * static_cast<double>(nanoseconds_.size()));
      state.counters[name] = benchmark::Counter(nanoseconds_[std::min(at, nanoseconds_.size() - 1)],
                                                benchmark::Counter::kAvgThreads);
    }
  }

 private:
  std::vector<double> nanoseconds_;
};

void clock_alone(benchmark::State& state) {
  Samples samples;
  for (auto _ : state) samples.time([] {});
  samples.report(state);
}
BENCHMARK(clock_alone);

compiler::KernelSource quantize_source() {
  const compiler::KernelPlan kernel{.operation = "quantize",
                                    .spec = compiler::RowChainSpec{.columns = 7168}};
  return emit_kernel(kernel, {}).value();
}

void memory_hit(benchmark::State& state) {
  static const compiler::KernelSource source = quantize_source();
  static const Digest key = compiler::kernel_key(source, {}).digest;
  static const auto engine = runtime::Engine::create({.use_cache = false});
  static const bool is_there = (*engine)->obtain(source).has_value();
  if (!is_there) return state.SkipWithError("no kernel");
  Samples samples;
  for (auto _ : state) samples.time([&] { benchmark::DoNotOptimize((*engine)->find(key)); });
  samples.report(state);
}
BENCHMARK(memory_hit)->Threads(1)->Threads(2)->Threads(16)->Iterations(500'000);

void emit(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(quantize_source());
}
BENCHMARK(emit)->Unit(benchmark::kMicrosecond);

void key_of_source(benchmark::State& state) {
  const compiler::KernelSource source = quantize_source();
  if (const auto key = compiler::kernel_key(source); !key)
    return state.SkipWithError(key.error().message.c_str());
  for (auto _ : state) benchmark::DoNotOptimize(compiler::kernel_key(source));
}
BENCHMARK(key_of_source)->Unit(benchmark::kMicrosecond);

void verified_disk_hit(benchmark::State& state) {
  const testing::TempDir folder("engine-bench");
  const auto cache = cache::KernelCache::open((folder / "cache").string());
  const std::vector<Digest> keys = random_keys(64);
  const std::vector<std::byte> payload(static_cast<std::size_t>(state.range(0)));
  for (const Digest& key : keys) (*cache)->put(key, "{}", payload);
  Samples samples;
  std::size_t i = 0;
  for (auto _ : state)
    samples.time([&] { benchmark::DoNotOptimize((*cache)->get(keys[i++ % keys.size()])); });
  samples.report(state);
}
BENCHMARK(verified_disk_hit)->Arg(64 << 10)->Unit(benchmark::kMicrosecond);

// Measures the step between a hit in folder or pack and loading the kernel.
void kernel_of_entry(benchmark::State& state) {
  const compiler::KernelSource source = quantize_source();
  const auto key = compiler::kernel_key(source);
  if (!key) return state.SkipWithError(key.error().message.c_str());
  const cache::Entry entry = runtime::kernel_entry(
      {source.entry, source.target, std::vector<std::byte>(1), compiler::ResourceUsage{}}, *key);
  for (auto _ : state) benchmark::DoNotOptimize(runtime::kernel_of(entry, source));
}
BENCHMARK(kernel_of_entry)->Unit(benchmark::kMicrosecond);

void miss_on_disk(benchmark::State& state) {
  const testing::TempDir folder("engine-bench");
  const auto cache = cache::KernelCache::open((folder / "cache").string());
  const std::vector<Digest> keys = random_keys(64);
  Samples samples;
  std::size_t i = 0;
  for (auto _ : state)
    samples.time([&] { benchmark::DoNotOptimize((*cache)->get(keys[i++ % keys.size()])); });
  samples.report(state);
}
BENCHMARK(miss_on_disk)->Unit(benchmark::kMicrosecond);

// Measures the lookups before a compile, with a folder and two packs that all lack the kernel. The
// packs have kernels of this compiler; otherwise none would be searched.
void miss_in_folder_and_packs(benchmark::State& state) {
  const testing::TempDir folder("engine-bench");
  const compiler::KernelSource source = quantize_source();
  const auto key = compiler::kernel_key(source);
  if (!key) return state.SkipWithError(key.error().message.c_str());
  const cache::Entry entry = runtime::kernel_entry({source.entry, source.target, {}, {}}, *key);
  const auto pack = cache::encode_pack({&entry, 1}, runtime::pack_manifest({&entry, 1}));
  std::vector<std::string> packs;
  for (const char* name : {"a.moejitpack", "b.moejitpack"}) {
    packs.push_back((folder / name).string());
    if (!cache::write_pack_file(packs.back(), *pack)) return state.SkipWithError("no pack");
  }
  const auto store = runtime::KernelStore::open(
      {.cache_dir = (folder / "cache").string(), .packs = packs, .pack_keys = {}});
  if (!store) return state.SkipWithError(store.error().message.c_str());
  compiler::KernelSource absent = source;
  Samples samples;
  int i = 0;
  for (auto _ : state) {
    absent.text = fmt::format("{}// {}\n", source.text, i++);
    samples.time([&] { benchmark::DoNotOptimize((*store)->find(absent)); });
  }
  samples.report(state);
}
BENCHMARK(miss_in_folder_and_packs)->Unit(benchmark::kMicrosecond);

// Measures the engine's work around a compile without packs: the lookups before and after it has
// the lock, and the key under which the kernel is published.
void miss_without_its_compile(benchmark::State& state) {
  const testing::TempDir folder("engine-bench");
  compiler::KernelSource source = quantize_source();
  const auto store = runtime::KernelStore::open({.cache_dir = (folder / "cache").string(),
                                                 .packs = std::vector<std::string>(),
                                                 .pack_keys = {}});
  if (!store) return state.SkipWithError(store.error().message.c_str());
  const std::string text = source.text;
  Samples samples;
  int i = 0;
  for (auto _ : state) {
    source.text = fmt::format("{}// {}\n", text, i++);
    samples.time([&] {
      auto before = (*store)->find(source);
      auto behind = (*store)->find(source, std::move(before.own));
      benchmark::DoNotOptimize(runtime::own_key(source, std::move(behind.own)));
    });
  }
  samples.report(state);
}
BENCHMARK(miss_without_its_compile)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace moejit
