// SPDX-License-Identifier: Apache-2.0
// Forks of a process whose threads load and unload kernels of the simulator: the child prepares a
// layer of its own. The dynamic linker's lock, held by a thread that the child does not have, would
// make it wait for ever.
#include "tests/flight/forked_child.h"
#include "tests/unit/c_api/sim_layer.h"

#include <atomic>
#include <chrono>
#include <gtest/gtest.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace moejit::testing {
namespace {

// Prepares a layer whose kernels are in the cache, and destroys it.
moejit_error_code prepare_once(moejit_engine* engine) {
  moejit_device* device = nullptr;
  moejit_plan* layer = nullptr;
  moejit_error_code code = moejit_device_open_simulator(nullptr, &device);
  if (code == MOEJIT_OK)
    code = moejit_plan_create(kTinyLayer, sizeof(kTinyLayer) - 1, "sim", nullptr, &layer);
  if (code == MOEJIT_OK) code = moejit_plan_prepare(layer, engine, device);
  moejit_plan_destroy(layer);
  moejit_device_destroy(device);
  return code;
}

TEST(CApiFork, ChildLoadsKernelsWhileThreadsOfTheParentDo) {
  const moejit_engine_options options = engine_options();
  moejit_engine* engine = nullptr;
  ASSERT_TRUE(is_ok(moejit_engine_create(&options, &engine)));
  ASSERT_TRUE(is_ok(prepare_once(engine)));
  std::atomic<bool> is_over{false};
  std::vector<std::jthread> threads;
  for (int i = 0; i < 3; ++i)
    threads.emplace_back([&] {
      while (!is_over) ASSERT_EQ(prepare_once(engine), MOEJIT_OK);
    });
  for (int run = 0; run < 20; ++run) {
    std::this_thread::sleep_for(std::chrono::microseconds(run * 173));
    const pid_t child = ::fork();
    if (child == 0) {
      ::alarm(60);  // ends a child that hangs
      ::_exit(!kWatchesChildren || prepare_once(engine) == MOEJIT_OK ? 0 : 1);
    }
    expect_success_of(child, run);
    if (::testing::Test::HasFatalFailure()) break;
  }
  is_over = true;
  threads.clear();
  moejit_engine_destroy(engine);
}

}  // namespace
}  // namespace moejit::testing
