// SPDX-License-Identifier: Apache-2.0
// Measures what a call of a prepared layer costs the host outside of the driver, per launch. Uses
// the fake libcuda, which measures the time spent inside it. Prints figures and judges nothing.
#include "tests/driver/driver_layer.h"
#include "tests/fakes/fake_cuda.h"
#include "tests/support/temp_dir.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <dlfcn.h>
#include <fmt/core.h>
#include <x86intrin.h>

namespace moejit::testing {
namespace {

using Clock = std::chrono::steady_clock;
using TicksInside = uint64_t (*)();

constexpr int kWarmUps = 1000, kSamples = 20'000;

double nanoseconds_per_tick() {
  const auto start = Clock::now();
  const uint64_t first = __rdtsc();
  while (Clock::now() - start < std::chrono::milliseconds(100)) continue;
  const std::chrono::duration<double, std::nano> elapsed = Clock::now() - start;
  return elapsed.count() / static_cast<double>(__rdtsc() - first);
}

// Returns the median cost of the fake's own timing for one call, outside of the time that it counts
// as inside.
double overhead_of_call(TicksInside ticks_inside, void* library) {
  const auto get_version = reinterpret_cast<int (*)(int*)>(::dlsym(library, "cuDriverGetVersion"));
  constexpr int kCalls = 64;
  std::vector<double> samples;
  for (int i = 0; i < kSamples; ++i) {
    const uint64_t inside = ticks_inside(), start = __rdtsc();
    for (int call = 0, version = 0; call < kCalls; ++call) get_version(&version);
    const uint64_t whole = __rdtsc() - start;
    samples.push_back(static_cast<double>(whole - (ticks_inside() - inside)) / kCalls);
  }
  std::ranges::nth_element(samples, samples.begin() + kSamples / 2);
  return samples[kSamples / 2];
}

struct Apparatus {
  CudaControl& cuda;
  TicksInside ticks_inside;
  double overhead;  // for a call, in ticks
  double scale;     // nanoseconds per tick
};

template <typename Call>
void measure(std::string_view name, const Apparatus& with, const Call& call) {
  auto& [cuda, ticks_inside, overhead, scale] = with;
  const int64_t before = cuda->launches, calls_before = cuda->calls;
  if (const auto result = call(); !result)
    return fmt::print(stderr, "{}: {}\n", name, to_string(result.error()));
  const auto launches = static_cast<double>(cuda->launches - before);
  const auto driver_calls = static_cast<double>(cuda->calls - calls_before);
  for (int i = 0; i < kWarmUps; ++i) static_cast<void>(call());
  std::vector<double> samples;
  for (int i = 0; i < kSamples; ++i) {
    const uint64_t inside = ticks_inside(), start = __rdtsc();
    static_cast<void>(call());
    const uint64_t whole = __rdtsc() - start;
    const auto outside = static_cast<double>(whole - (ticks_inside() - inside));
    samples.push_back((outside - driver_calls * overhead) * scale / launches);
  }
  std::ranges::sort(samples);
  fmt::print("{:<16} {:>8.0f} {:>12.1f} {:>10.0f} {:>10.0f}\n", name, launches,
             driver_calls / launches, samples[kSamples / 2], samples[kSamples * 99 / 100]);
}

int run() {
  const TempDir folder("launch-bench");
  const std::string control = (folder / "cuda").string(),
                    nvrtc_control = (folder / "nvrtc").string();
  ::setenv("MOEJIT_CUDA_DRIVER", MOEJIT_FAKE_CUDA, 1);
  ::setenv("FAKE_CUDA_CONTROL", control.c_str(), 1);
  ::setenv("MOEJIT_NVRTC", MOEJIT_FAKE_NVRTC, 1);
  ::setenv("FAKE_NVRTC_CONTROL", nvrtc_control.c_str(), 1);
  CudaControl cuda(control);
  MappedControl nvrtc(nvrtc_control);
  cuda->takes_time = 1;
  const auto device = runtime::open_cuda_device();
  const auto engine = runtime::Engine::create({.use_cache = false});
  if (!device || !engine) return 1;
  const auto layer = DriverLayer::create(**engine, **device, *nvrtc, {});
  if (!layer) {
    fmt::print(stderr, "{}\n", to_string(layer.error()));
    return 1;
  }
  void* const library = ::dlopen(MOEJIT_FAKE_CUDA, RTLD_NOW | RTLD_LOCAL);
  const auto ticks_inside =
      reinterpret_cast<TicksInside>(::dlsym(library, "fake_cuda_ticks_inside"));
  const Apparatus apparatus{.cuda = cuda,
                            .ticks_inside = ticks_inside,
                            .overhead = overhead_of_call(ticks_inside, library),
                            .scale = nanoseconds_per_tick()};
  const auto tensors = (*layer)->tensors();
  runtime::PreparedPlan& prepared = (*layer)->prepared();
  const runtime::CallMemory memory = (*layer)->memory();
  fmt::print("host time outside of the driver, ns per launch, {} calls each\n", kSamples);
  fmt::print("(taken off: {:.0f} ns for each call of the driver, which taking the time costs)\n",
             apparatus.overhead * apparatus.scale);
  fmt::print("{:<16} {:>8} {:>12} {:>10} {:>10}\n", "call", "launches", "driver calls", "p50",
             "p99");
  measure("update_weights", apparatus,
          [&] { return prepared.call("update_weights", tensors, {}, nullptr); });
  measure("forward", apparatus, [&] { return prepared.call("forward", tensors, memory, nullptr); });
  measure("backward", apparatus,
          [&] { return prepared.call("backward", tensors, memory, nullptr); });
  return 0;
}

}  // namespace
}  // namespace moejit::testing

int main() { return moejit::testing::run(); }
