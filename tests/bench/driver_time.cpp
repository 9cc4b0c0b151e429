// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/driver_time.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <dlfcn.h>
#include <vector>
#include <x86intrin.h>

namespace moejit::testing {
namespace {

using Clock = std::chrono::steady_clock;

double elapsed_ns(Clock::time_point start) {
  return std::chrono::duration<double, std::nano>(Clock::now() - start).count();
}

double nanoseconds_per_tick() {
  const auto start = Clock::now();
  const uint64_t first = __rdtsc();
  while (Clock::now() - start < std::chrono::milliseconds(100)) continue;
  return elapsed_ns(start) / static_cast<double>(__rdtsc() - first);
}

template <typename Function>
void find_symbol(void* library, const char* name, Function*& function) {
  function = reinterpret_cast<Function*>(::dlsym(library, name));
}

}  // namespace

std::optional<DriverTime> DriverTime::find() {
  const char* const path = std::getenv("MOEJIT_CUDA_DRIVER");  // NOLINT(concurrency-mt-unsafe)
  void* const library = path == nullptr ? nullptr : ::dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return {};
  DriverTime found;
  find_symbol(library, "fake_cuda_ticks_inside", found.ticks_inside_);
  find_symbol(library, "fake_cuda_calls", found.calls_);
  if (found.ticks_inside_ == nullptr) {
    find_symbol(library, "timed_cuda_nanoseconds", found.nanoseconds_);
    find_symbol(library, "timed_cuda_calls", found.calls_);
  }
  if (found.calls_ == nullptr) return {};
  if (found.ticks_inside_ != nullptr) found.ns_per_tick_ = nanoseconds_per_tick();
  found.find_overhead(library);
  return found;
}

DriverTime::Sum DriverTime::read() const {
  const double inside = ticks_inside_ != nullptr
                            ? static_cast<double>(ticks_inside_()) * ns_per_tick_
                            : static_cast<double>(nanoseconds_());
  return {inside, calls_()};
}

void DriverTime::find_overhead(void* library) {
  int (*get_current)(void**) = nullptr;
  find_symbol(library, "cuCtxGetCurrent", get_current);
  constexpr int kCalls = 256, kSamples = 500;
  std::vector<double> samples;
  for (int i = 0; i < kSamples; ++i) {
    const double inside = read().nanoseconds;
    const auto start = Clock::now();
    void* context = nullptr;
    for (int call = 0; call < kCalls; ++call) static_cast<void>(get_current(&context));
    samples.push_back((elapsed_ns(start) - (read().nanoseconds - inside)) / kCalls);
  }
  std::ranges::nth_element(samples, samples.begin() + kSamples / 2);
  overhead_ns_ = samples[kSamples / 2];
}

}  // namespace moejit::testing
