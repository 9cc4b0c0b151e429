// SPDX-License-Identifier: Apache-2.0
// Whose context a device works in, and that each of several GPUs gets what is its own.
#include "tests/driver/driver_fixture.h"

#include <thread>

namespace moejit::testing {
namespace {

class ContextsTest : public DriverTest {};

TEST_F(ContextsTest, AdoptsTheCurrentContextAndLeavesItToItsOwner) {
  cuda()->devices = 2;
  const CUcontext own = create_context(1);
  {
    const auto device = open();
    EXPECT_EQ(device->gpu_facts().ordinal, 1);
    const auto engine = make_engine();
    const auto layer = make_layer(*engine, *device);
    EXPECT_TRUE(succeeded(layer->run_all()));
  }
  EXPECT_EQ(cuda()->primaries_retained, 0);
  EXPECT_EQ(cuda()->contexts_created, 1);  // that of the test
  EXPECT_EQ(cuda()->contexts_destroyed, 0);
  EXPECT_EQ(current_context(), own);
  destroy_context(own);
}

TEST_F(ContextsTest, RetainsThePrimaryContextWhereNoneIsCurrent) {
  {
    const auto device = open();
    EXPECT_EQ(cuda()->primaries_retained, 1);
    EXPECT_EQ(cuda()->primaries_released, 0);
    EXPECT_EQ(current_context(), nullptr);
  }
  EXPECT_EQ(cuda()->primaries_released, 1);
  EXPECT_EQ(cuda()->contexts_created, 0);
}

TEST_F(ContextsTest, MakesItsContextCurrentOnceForAllKernelsOfACall) {
  const auto engine = make_engine();
  const auto device = open();
  const auto layer = make_layer(*engine, *device);
  ASSERT_TRUE(succeeded(layer->update_weights()));
  const int64_t pushed = cuda()->pushed;
  EXPECT_TRUE(succeeded(layer->forward()));
  EXPECT_EQ(cuda()->pushed - pushed, 1);
  EXPECT_EQ(cuda()->popped, cuda()->pushed);
  EXPECT_EQ(current_context(), nullptr);
}

TEST_F(ContextsTest, TakesTheGpuThatIsAskedForWhateverIsCurrent) {
  cuda()->devices = 2;
  const CUcontext own = create_context(0);
  {
    const auto second = open(1);
    EXPECT_EQ(second->gpu_facts().ordinal, 1);
    EXPECT_EQ(cuda()->primaries_retained, 1);
    const auto first = open(0);
    EXPECT_EQ(first->gpu_facts().ordinal, 0);
    EXPECT_EQ(cuda()->primaries_retained, 1);  // the current context will do
  }
  destroy_context(own);
}

TEST_F(ContextsTest, NamesAGpuThatThisProcessDoesNotSee) {
  cuda()->devices = 2;
  for (const int32_t ordinal : {2, -2}) {
    const auto device = runtime::open_cuda_device(ordinal);
    ASSERT_FALSE(device);
    EXPECT_EQ(device.error().code, ErrorCode::kNoDevice);
  }
}

TEST_F(ContextsTest, KeepsThePrimaryContextUntilTheLastLayerIsGone) {
  const auto engine = make_engine();
  auto device = open();
  auto layer = make_layer(*engine, *device);
  layer->destroy();
  EXPECT_EQ(cuda()->primaries_released, 0);
  layer.reset();
  device.reset();
  EXPECT_EQ(cuda()->primaries_released, 1);
}

class GpusTest : public ContextsTest, public ::testing::WithParamInterface<int> {};

TEST_P(GpusTest, RunsEachLayerOnItsOwnGpuThoughThreadsTakeTurns) {
  const int gpus = GetParam();
  constexpr int kThreads = 8, kRounds = 20;
  cuda()->devices = gpus;
  const auto engine = make_engine();
  std::vector<std::unique_ptr<runtime::Device>> devices;
  std::vector<std::unique_ptr<DriverLayer>> layers;
  for (int gpu = 0; gpu < gpus; ++gpu) {
    devices.push_back(open(gpu));
    layers.push_back(make_layer(*engine, *devices.back()));
  }
  // Compiled once, and one image in the engine's memory.
  EXPECT_EQ(nvrtc()->finished, engine->counters().compiled);
  EXPECT_LE(engine->counters().compiled, static_cast<int64_t>(layers[0]->kernels()));
  EXPECT_EQ(cuda()->libraries_loaded, gpus * engine->counters().compiled);
  EXPECT_EQ(calls_of(CudaCall::kernel_set_attribute), cuda()->libraries_loaded);

  std::vector<std::jthread> threads;
  for (int thread = 0; thread < kThreads; ++thread)
    threads.emplace_back([&, thread] {
      for (int round = 0; round < kRounds; ++round) {
        const auto gpu = static_cast<std::size_t>((thread + round) % gpus);
        EXPECT_TRUE(succeeded(layers[gpu]->run_all()));
        EXPECT_EQ(current_context(), nullptr);
      }
    });
  threads.clear();
  const int64_t runs = kThreads * kRounds / gpus;
  for (int gpu = 0; gpu < gpus; ++gpu)
    EXPECT_EQ(cuda()->launches_on[static_cast<std::size_t>(gpu)], runs * layers[0]->launches());
  EXPECT_EQ(cuda()->contexts_created, 0);
}

TEST_P(GpusTest, GivesAThreadBackTheContextThatItHad) {
  const int gpus = GetParam();
  cuda()->devices = gpus;
  const auto engine = make_engine();
  const auto last = open(gpus - 1);
  const auto layer = make_layer(*engine, *last);
  const CUcontext own = create_context(0);
  EXPECT_TRUE(succeeded(layer->run_all()));
  EXPECT_EQ(current_context(), own);
  EXPECT_EQ(cuda()->launches_on[0], 0);
  EXPECT_EQ(cuda()->launches_on[static_cast<std::size_t>(gpus - 1)], layer->launches());
  destroy_context(own);
}

INSTANTIATE_TEST_SUITE_P(Counts, GpusTest, ::testing::Values(2, 4),
                         [](const auto& test) { return std::to_string(test.param) + "Gpus"; });

TEST_F(ContextsTest, LoadsEqualKernelsOnceForAllLayersOfADevice) {
  const auto engine = make_engine();
  const auto device = open();
  const auto first = make_layer(*engine, *device);
  const int64_t loaded = cuda()->libraries_loaded;
  EXPECT_EQ(loaded, engine->counters().compiled);
  std::vector<std::unique_ptr<DriverLayer>> more;
  for (int i = 0; i < 5; ++i) more.push_back(make_layer(*engine, *device));
  EXPECT_EQ(cuda()->libraries_loaded, loaded);
  for (const auto& layer : more) EXPECT_TRUE(succeeded(layer->run_all()));
}

TEST_F(ContextsTest, RefusesAKernelThatAnotherDeviceLoaded) {
  cuda()->devices = 2;
  const auto engine = make_engine();
  const auto first = open(0), second = open(1);
  DriverLayer::describe_kernels(DriverLayer::plan({}), *nvrtc());
  const auto plan = DriverLayer::plan({});
  const auto binary = engine->binary(emit_kernel(plan.kernels[0], plan.target).value());
  ASSERT_TRUE(succeeded(binary));
  const auto loaded = first->load(**binary);
  ASSERT_TRUE(succeeded(loaded));
  const auto launched =
      second->launch({.kernel = loaded->get(), .ctas = 1, .threads = 32}, nullptr);
  ASSERT_FALSE(launched);
  EXPECT_EQ(launched.error().code, ErrorCode::kInternal);
  EXPECT_EQ(cuda()->launches, 0);
}

}  // namespace
}  // namespace moejit::testing
