// SPDX-License-Identifier: Apache-2.0
// Sixteen threads that launch. The fake driver orders none of them, so that under the thread
// sanitizer (preset tsan) what the product leaves unordered shows.
#include "tests/driver/driver_fixture.h"

#include <barrier>
#include <thread>

namespace moejit::testing {
namespace {

constexpr int kThreads = 16, kRounds = 50;

class ThreadsTest : public DriverTest {
 protected:
  template <typename Work>
  static void run_together(const Work& work) {
    std::barrier start(kThreads);
    std::vector<std::jthread> threads;
    for (int thread = 0; thread < kThreads; ++thread)
      threads.emplace_back([&, thread] {
        start.arrive_and_wait();
        work(thread);
      });
  }
};

TEST_F(ThreadsTest, LaunchTheSameKernels) {
  const auto engine = make_engine();
  const auto device = open();
  const auto layer = make_layer(*engine, *device);
  run_together([&](int) {
    for (int round = 0; round < kRounds; ++round) EXPECT_TRUE(succeeded(layer->run_all()));
  });
  EXPECT_EQ(cuda()->launches, kThreads * kRounds * layer->launches());
}

TEST_F(ThreadsTest, LaunchDifferentKernelsOnStreamsOfTheirOwn) {
  const CUcontext own = create_context(0);
  const auto engine = make_engine();
  auto device = open();
  std::vector<std::unique_ptr<DriverLayer>> layers;
  for (int thread = 0; thread < 4; ++thread)
    layers.push_back(make_layer(*engine, *device, {.hidden = 256 + 128 * thread}));
  std::array<CUstream, kThreads> streams{};
  for (CUstream& stream : streams)
    ASSERT_EQ(api().stream_create(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  run_together([&](int thread) {
    DriverLayer& layer = *layers[static_cast<std::size_t>(thread % 4)];
    for (int round = 0; round < kRounds; ++round)
      EXPECT_TRUE(succeeded(layer.run_all(streams[static_cast<std::size_t>(thread)])));
  });
  layers.clear();
  device.reset();
  destroy_context(own);
}

TEST_F(ThreadsTest, PrepareRecordLaunchAndLetGoAtTheSameTime) {
  cuda()->devices = 2;
  const auto engine = make_engine();
  const std::unique_ptr<runtime::Device> devices[] = {open(0), open(1)};
  for (const int32_t hidden : {256, 384})
    DriverLayer::describe_kernels(DriverLayer::plan({.hidden = hidden}), *nvrtc());
  run_together([&](int thread) {
    for (int round = 0; round < kRounds / 5; ++round) {
      const auto plan = DriverLayer::plan({.hidden = 256 + 128 * (round % 2)});
      runtime::Device& device = *devices[(thread + round) % 2];
      const auto layer = runtime::PreparedPlan::prepare(plan, *engine, device);
      ASSERT_TRUE(succeeded(layer));
      ASSERT_FALSE((*layer)->call("forward", {}, {}, nullptr));  // nothing is given
    }
  });
  EXPECT_LE(cuda()->libraries_loaded, 2 * engine->counters().compiled);
}

}  // namespace
}  // namespace moejit::testing
