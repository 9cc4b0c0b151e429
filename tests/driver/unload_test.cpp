// SPDX-License-Identifier: Apache-2.0
// When kernels are unloaded: not while anybody may still run them, and not never.
#include "runtime/driver/kernel_libraries.h"
#include "tests/driver/driver_fixture.h"

#include <fstream>
#include <malloc.h>

namespace moejit::testing {
namespace {

using runtime::KernelLibraries;

class UnloadTest : public DriverTest {
 protected:
  void SetUp() override {
    DriverTest::SetUp();
    own_ = create_context(0);
    free_before_ = free_bytes();
    device_ = open();
    engine_ = make_engine();
    ASSERT_EQ(api().stream_create(&stream_, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  }
  void TearDown() override {
    device_.reset();
    if (own_ != nullptr) destroy_context(own_);
    DriverTest::TearDown();
  }
  // A kernel of the fake NVRTC; every number makes another one.
  compiler::KernelBinary binary(int number) {
    const std::string entry = "moejit_unload_" + std::to_string(number);
    std::memset(static_cast<void*>(nvrtc()->params.data()), 0, sizeof(nvrtc()->params));
    std::memcpy(nvrtc()->params[0].entry.data(), entry.c_str(), entry.size() + 1);
    nvrtc()->params[0].bytes = 64;
    const auto made = engine_->binary({.entry = entry, .text = entry, .target = {}});
    EXPECT_TRUE(succeeded(made));
    return **made;
  }
  Result<void> launch(const runtime::LoadedKernel& kernel) {
    static const std::array<std::byte, 64> params{};
    return device_->launch({.kernel = &kernel, .ctas = 1, .threads = 32, .params = params},
                           stream_);
  }
  static std::size_t free_bytes() {
    std::size_t free = 0, total = 0;
    EXPECT_EQ(api().mem_get_info(&free, &total), CUDA_SUCCESS);
    return free;
  }
  static int64_t loaded() { return cuda()->libraries_loaded - cuda()->libraries_unloaded; }

  CUcontext own_ = nullptr;
  std::size_t free_before_ = 0;  // of the GPU's memory
  std::unique_ptr<runtime::Device> device_;
  std::unique_ptr<runtime::Engine> engine_;
  CUstream stream_ = nullptr;
};

TEST_F(UnloadTest, LettingGoOfALayerCallsNothingOfTheDriver) {
  const auto layer = make_layer(*engine_, *device_);
  const int64_t before = cuda()->calls;
  layer->destroy();
  EXPECT_EQ(cuda()->calls, before);
}

TEST_F(UnloadTest, ALayerThatIsPreparedAgainLoadsNothing) {
  make_layer(*engine_, *device_);
  const int64_t before = cuda()->libraries_loaded;
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(succeeded(make_layer(*engine_, *device_)->run_all()));
  EXPECT_EQ(cuda()->libraries_loaded, before);
}

TEST_F(UnloadTest, WaitsForLaunchesInFlightBeforeItUnloads) {
  cuda()->keeps_launches_in_flight = 1;
  {
    const auto layer = make_layer(*engine_, *device_);
    EXPECT_TRUE(succeeded(layer->run_all(stream_)));
    layer->destroy();
    EXPECT_EQ(calls_of(CudaCall::ctx_synchronize), 0);
  }
  device_.reset();
  EXPECT_EQ(calls_of(CudaCall::ctx_synchronize), 1);
  EXPECT_EQ(loaded(), 0);  // and TearDown() looks for what was unloaded too early
}

TEST_F(UnloadTest, KeepsABoundedNumberOfIdleKernels) {
  constexpr int kMost = static_cast<int>(KernelLibraries::kMostIdle);
  cuda()->keeps_launches_in_flight = 1;
  for (int number = 0; number < 3 * kMost; ++number) {
    const auto kernel = device_->load(binary(number));
    ASSERT_TRUE(succeeded(kernel));
    ASSERT_TRUE(succeeded(launch(**kernel)));
    ASSERT_LE(loaded(), kMost + 1);
  }
  EXPECT_LE(calls_of(CudaCall::ctx_synchronize), 5);  // half of them at a time
}

TEST_F(UnloadTest, UnloadsTheOldestFirst) {
  constexpr int kMost = static_cast<int>(KernelLibraries::kMostIdle);
  for (int number = 0; number <= kMost + 1; ++number) ASSERT_TRUE(device_->load(binary(number)));
  const int64_t before = cuda()->libraries_loaded;
  ASSERT_TRUE(device_->load(binary(kMost)));
  EXPECT_EQ(cuda()->libraries_loaded, before);
  ASSERT_TRUE(device_->load(binary(0)));
  EXPECT_EQ(cuda()->libraries_loaded, before + 1);
}

TEST_F(UnloadTest, KeepsAKernelThatIsInUseAgain) {
  constexpr int kMost = static_cast<int>(KernelLibraries::kMostIdle);
  ASSERT_TRUE(device_->load(binary(0)));  // it is idle now
  const auto kernel = device_->load(binary(0));
  ASSERT_TRUE(succeeded(kernel));
  for (int number = 1; number < 2 * kMost; ++number) ASSERT_TRUE(device_->load(binary(number)));
  EXPECT_GT(cuda()->libraries_unloaded, 0);
  EXPECT_TRUE(succeeded(launch(**kernel)));
  const int64_t before = cuda()->libraries_loaded;
  ASSERT_TRUE(device_->load(binary(0)));
  EXPECT_EQ(cuda()->libraries_loaded, before);
}

TEST_F(UnloadTest, KeepsWhatAGraphLaunches) {
  constexpr int kMost = static_cast<int>(KernelLibraries::kMostIdle);
  CUgraphExec executable = nullptr;
  {
    const auto layer = make_layer(*engine_, *device_);
    ASSERT_EQ(api().stream_begin_capture(stream_, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
    ASSERT_TRUE(succeeded(layer->run_all(stream_)));
    CUgraph graph = nullptr;
    ASSERT_EQ(api().stream_end_capture(stream_, &graph), CUDA_SUCCESS);
    ASSERT_EQ(api().graph_instantiate(&executable, graph, 0), CUDA_SUCCESS);
    ASSERT_EQ(api().graph_destroy(graph), CUDA_SUCCESS);
  }
  for (int number = 0; number < 2 * kMost; ++number) ASSERT_TRUE(device_->load(binary(number)));
  EXPECT_GT(cuda()->libraries_unloaded, 0);
  EXPECT_EQ(api().graph_launch(executable, stream_), CUDA_SUCCESS);
  EXPECT_EQ(api().graph_exec_destroy(executable), CUDA_SUCCESS);
  device_.reset();
  EXPECT_EQ(loaded(), 0);
}

TEST_F(UnloadTest, KeepsWhatAGraphLaunchesAlsoWhenTheDeviceIsGone) {
  const auto before = cuda()->libraries_loaded.load();
  auto layer = make_layer(*engine_, *device_);
  ASSERT_EQ(api().stream_begin_capture(stream_, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
  ASSERT_TRUE(succeeded(layer->forward(stream_)));
  CUgraph graph = nullptr;
  ASSERT_EQ(api().stream_end_capture(stream_, &graph), CUDA_SUCCESS);
  CUgraphExec executable = nullptr;
  ASSERT_EQ(api().graph_instantiate(&executable, graph, 0), CUDA_SUCCESS);
  ASSERT_EQ(api().graph_destroy(graph), CUDA_SUCCESS);
  layer.reset();
  device_.reset();
  EXPECT_EQ(api().graph_launch(executable, stream_), CUDA_SUCCESS);
  EXPECT_EQ(api().graph_exec_destroy(executable), CUDA_SUCCESS);
  // Nobody is left to unload them.
  kept_libraries_ = loaded();
  EXPECT_GT(kept_libraries_, 0);
  EXPECT_LE(kept_libraries_, cuda()->libraries_loaded - before);
}

TEST_F(UnloadTest, UnloadsNothingWhereTheGpuCannotBeWaitedFor) {
  {
    const auto layer = make_layer(*engine_, *device_);
    EXPECT_TRUE(succeeded(layer->run_all(stream_)));
  }
  cuda()->fail_with = CUDA_ERROR_ILLEGAL_ADDRESS;
  cuda()->is_failure_sticky = 1;
  cuda()->fail_at = cuda()->calls + 1;
  EXPECT_FALSE(device_->synchronize(stream_));
  device_.reset();
  EXPECT_EQ(cuda()->libraries_unloaded, 0);
  kept_libraries_ = cuda()->libraries_loaded;
}

TEST_F(UnloadTest, MakesRoomForAKernelWhereMemoryRanOut) {
  nvrtc()->code_bytes = 64 << 10;
  cuda()->memory_bytes = 1 << 20;  // for 15 of them
  for (int number = 0; number < 40; ++number) ASSERT_TRUE(device_->load(binary(number)));
  std::vector<std::unique_ptr<runtime::LoadedKernel>> kernels;
  for (int number = 0;; ++number) {
    ASSERT_LT(number, 40);
    auto kernel = device_->load(binary(number));
    if (kernel) {
      kernels.push_back(std::move(*kernel));
      continue;
    }
    EXPECT_EQ(kernel.error().code, ErrorCode::kOutOfMemory);
    break;
  }
  EXPECT_GE(kernels.size(), 14u);
  kernels.clear();
  EXPECT_TRUE(succeeded(device_->load(binary(39))));
}

// Resident memory of this process.
int64_t resident_bytes() {
  ::malloc_trim(0);
  std::ifstream file("/proc/self/statm");
  int64_t total = 0, resident = 0;
  file >> total >> resident;
  return resident * 4096;
}

TEST_F(UnloadTest, AHundredThousandLoadsAndUnloadsLeaveNothingBehind) {
  constexpr int kKernels = 1000, kCycles = 100'000;
  std::vector<compiler::KernelBinary> binaries;
  for (int number = 0; number < kKernels; ++number) binaries.push_back(binary(number));
  const auto cycle = [&](int count) {
    for (int i = 0; i < count; ++i) {
      const auto kernel = device_->load(binaries[static_cast<std::size_t>(i % kKernels)]);
      ASSERT_TRUE(succeeded(kernel));
      ASSERT_TRUE(succeeded(launch(**kernel)));
    }
  };
  cuda()->images = FakeCudaControl::kImages;  // the fake notes no more of them
  cycle(2 * kKernels);
  const int64_t before = resident_bytes();
  const int64_t loaded_before = cuda()->libraries_loaded;
  cycle(kCycles);
  EXPECT_EQ(cuda()->libraries_loaded - loaded_before, kCycles);  // each was unloaded meanwhile
  EXPECT_LE(loaded(), static_cast<int64_t>(KernelLibraries::kMostIdle) + 1);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // whose own memory grows
  EXPECT_LT(resident_bytes() - before, 1 << 20);                     // ten bytes a cycle
#else
  static_cast<void>(before);
#endif
  device_.reset();
  EXPECT_EQ(free_bytes(), free_before_);
  EXPECT_EQ(loaded(), 0);
}

}  // namespace
}  // namespace moejit::testing
