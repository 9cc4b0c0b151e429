// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/driver/driver_api.h"
#include "runtime/engine.h"
#include "tests/driver/driver_layer.h"
#include "tests/fakes/fake_cuda.h"
#include "tests/fakes/fake_nvrtc.h"
#include "tests/support/matchers.h"

#include <cstring>
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <string_view>

namespace moejit::testing {

// The fake libcuda and the fake NVRTC for this process and those it starts, found by the product as
// the real ones are. A process opens each once, so all tests of a program share the control
// records, which are cleared before each.
class DriverTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    if (cuda_ != nullptr) return;
    static const TempDir folder("driver-control");
    const std::string cuda = (folder / "cuda").string(), nvrtc = (folder / "nvrtc").string();
    ::setenv("MOEJIT_CUDA_DRIVER", MOEJIT_FAKE_CUDA, 1);
    ::setenv("FAKE_CUDA_CONTROL", cuda.c_str(), 1);
    ::setenv("MOEJIT_NVRTC", MOEJIT_FAKE_NVRTC, 1);
    ::setenv("FAKE_NVRTC_CONTROL", nvrtc.c_str(), 1);
    cuda_ = new CudaControl(cuda);
    nvrtc_ = new MappedControl(nvrtc);
  }
  void SetUp() override {
    // Nothing but numbers, and nobody else looks now.
    std::memset(static_cast<void*>(&**cuda_), 0, sizeof(FakeCudaControl));
    std::memset(static_cast<void*>(&**nvrtc_), 0, sizeof(FakeNvrtcControl));
  }
  // What every test has to leave, whatever it did.
  void TearDown() override {
    const FakeCudaControl& seen = *cuda();
    EXPECT_EQ(seen.pushed, seen.popped);
    EXPECT_EQ(seen.primaries_retained, seen.primaries_released);
    EXPECT_EQ(seen.shared_taken, seen.shared_released);
    EXPECT_EQ(seen.ranges_reserved, seen.ranges_freed);
    EXPECT_EQ(seen.libraries_loaded, seen.libraries_unloaded + kept_libraries_);
    EXPECT_EQ(seen.unloaded_in_flight, 0);
    EXPECT_EQ(seen.unloaded_in_graph, 0);
    EXPECT_EQ(seen.launched_unloaded, 0);
    EXPECT_EQ(seen.launches_not_readied, 0);
    EXPECT_EQ(seen.launches_undersized, 0);
    EXPECT_EQ(seen.launches_elsewhere, 0);
    EXPECT_EQ(seen.calls_in_callbacks, 0);
    EXPECT_EQ(seen.contexts_reset, 0);
    EXPECT_EQ(seen.user_objects_created, seen.user_objects_destroyed + kept_user_objects_);
  }

  static CudaControl& cuda() { return *cuda_; }
  static MappedControl& nvrtc() { return *nvrtc_; }
  static int64_t calls_of(CudaCall which) {
    return cuda()->calls_of[static_cast<std::size_t>(which)];
  }

  static std::unique_ptr<runtime::Device> open(int32_t ordinal = runtime::kCurrentGpu) {
    auto device = runtime::open_cuda_device(ordinal);
    EXPECT_TRUE(succeeded(device));
    return device ? std::move(*device) : nullptr;
  }
  static std::unique_ptr<runtime::Engine> make_engine() {
    auto engine = runtime::Engine::create({.use_cache = false});
    EXPECT_TRUE(succeeded(engine));
    return std::move(*engine);
  }
  std::unique_ptr<DriverLayer> make_layer(runtime::Engine& engine, runtime::Device& device,
                                          const DriverLayer::Options& options = {}) {
    auto layer = DriverLayer::create(engine, device, *nvrtc(), options);
    EXPECT_TRUE(succeeded(layer));
    return layer ? std::move(*layer) : nullptr;
  }

  // What a host does with the driver itself.
  static const runtime::DriverApi& api() { return *runtime::driver_api().value(); }
  template <typename Function>
  static Function symbol(const char* name) {
    void* const library = ::dlopen(MOEJIT_FAKE_CUDA, RTLD_NOW | RTLD_LOCAL);
    return reinterpret_cast<Function>(::dlsym(library, name));
  }
  static CUcontext create_context(CUdevice device) {  // it becomes current
    EXPECT_TRUE(succeeded(runtime::driver_api()));
    CUcontext context = nullptr;
    EXPECT_EQ(
        symbol<CUresult (*)(CUcontext*, unsigned, CUdevice)>("cuCtxCreate_v2")(&context, 0, device),
        CUDA_SUCCESS);
    return context;
  }
  static void destroy_context(CUcontext context) {
    EXPECT_EQ(symbol<CUresult (*)(CUcontext)>("cuCtxDestroy_v2")(context), CUDA_SUCCESS);
  }
  static void set_current(CUcontext context) {
    EXPECT_EQ(symbol<CUresult (*)(CUcontext)>("cuCtxSetCurrent")(context), CUDA_SUCCESS);
  }
  static CUcontext current_context() {
    CUcontext context = nullptr;
    EXPECT_EQ(api().ctx_get_current(&context), CUDA_SUCCESS);
    return context;
  }

  int64_t kept_libraries_ = 0;     // that stay loaded on purpose
  int64_t kept_user_objects_ = 0;  // of graphs that stay

 private:
  static inline CudaControl* cuda_ = nullptr;
  static inline MappedControl* nvrtc_ = nullptr;
};

}  // namespace moejit::testing
