// SPDX-License-Identifier: Apache-2.0
// One of the processes of flight_test: some threads that ask for the same kernels, each in another
// order. Ends with 0 where all of them got each one.
//   flight_process CACHE_DIR RUN_DIR CONTROL THREADS KERNELS SEED
#include "runtime/engine.h"
#include "tests/fakes/fake_nvrtc.h"
#include "tests/flight/flight_kernels.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <thread>

namespace {

using moejit::runtime::Engine;

// Kernels that could not be had, or had other code than their sources give.
int ask_for_all(Engine& engine, int kernels, unsigned seed) {
  int failures = 0;
  for (const int number : moejit::testing::shuffled(kernels, seed)) {
    const auto source = moejit::testing::flight_kernel(number);
    const auto kernel = engine.obtain(source);
    if (!kernel) std::fprintf(stderr, "%s\n", to_string(kernel.error()).c_str());
    if (!kernel || kernel->binary->entry != source.entry) ++failures;
  }
  return failures;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 7) return 2;
  const int threads = std::atoi(argv[4]);
  const int kernels = std::atoi(argv[5]);
  const auto seed = static_cast<unsigned>(std::atoi(argv[6]));
  const moejit::testing::MappedControl control(argv[3]);
  const auto engine = Engine::create({.cache_dir = argv[1], .run_dir = argv[2]});
  if (!engine) {
    std::fprintf(stderr, "%s\n", to_string(engine.error()).c_str());
    return 3;
  }
  ++control->ready;
  while (control->go == 0) std::this_thread::sleep_for(std::chrono::microseconds(200));
  std::atomic<int> failures{0};
  std::vector<std::thread> all;
  for (int i = 0; i < threads; ++i)
    all.emplace_back([&, i] {
      failures += ask_for_all(**engine, kernels, seed * 1000 + static_cast<unsigned>(i));
    });
  for (std::thread& thread : all) thread.join();
  return failures == 0 ? 0 : 1;
}
