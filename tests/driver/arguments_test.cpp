// SPDX-License-Identifier: Apache-2.0
// What is found out about a launch before the driver sees it.
#include "runtime/driver/driver_api.h"
#include "tests/driver/driver_fixture.h"

#include <array>

namespace moejit::testing {
namespace {

class ArgumentsTest : public DriverTest {
 protected:
  void SetUp() override {
    DriverTest::SetUp();
    ::setenv("MOEJIT_CHECK_POINTERS", "1", 1);
    cuda()->devices = 2;
    device_ = open(0);
    ::unsetenv("MOEJIT_CHECK_POINTERS");
    engine_ = make_engine();
  }
  void TearDown() override {
    device_.reset();
    DriverTest::TearDown();
  }
  // Nothing was launched, and the error names the tensor.
  void expect_mismatch(const Result<void>& result, std::string_view what) {
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().code, ErrorCode::kTensorMismatch);
    EXPECT_NE(result.error().message.find("tensor x: "), std::string::npos)
        << result.error().message;
    EXPECT_NE(result.error().message.find(what), std::string::npos) << result.error().message;
    EXPECT_EQ(calls_of(CudaCall::launch_kernel_ex), 0);
  }

  std::unique_ptr<runtime::Device> device_;
  std::unique_ptr<runtime::Engine> engine_;
};

TEST_F(ArgumentsTest, AcceptsWhatLiesInMemoryOfTheGpu) {
  const auto layer = make_layer(*engine_, *device_);
  EXPECT_TRUE(succeeded(layer->run_all()));
  EXPECT_GT(calls_of(CudaCall::pointer_get_attributes), 20);
}

TEST_F(ArgumentsTest, AsksTheDriverNothingUnlessToldTo) {
  const auto device = open(0);
  const auto layer = make_layer(*engine_, *device);
  EXPECT_TRUE(succeeded(layer->run_all()));
  EXPECT_EQ(calls_of(CudaCall::pointer_get_attributes), 0);
}

TEST_F(ArgumentsTest, RefusesPageableMemoryOfTheHost) {
  const auto layer = make_layer(*engine_, *device_);
  alignas(256) static std::array<std::byte, 1 << 20> host;
  layer->replace("x", host.data());
  expect_mismatch(layer->forward(), "is no address that CUDA knows");
}

TEST_F(ArgumentsTest, RefusesMemoryOfAnotherGpu) {
  const auto layer = make_layer(*engine_, *device_);
  const auto other = open(1);
  const auto memory = other->allocate(1 << 20);
  ASSERT_TRUE(succeeded(memory));
  layer->replace("x", *memory);
  expect_mismatch(layer->forward(), "is memory of GPU 1, wanted GPU 0");
  other->release(*memory);
}

TEST_F(ArgumentsTest, RefusesMemoryThatEndsTooEarly) {
  const auto layer = make_layer(*engine_, *device_);
  layer->replace("x", static_cast<std::byte*>(layer->address("x")) + 16);
  expect_mismatch(layer->forward(), "before the end of its allocation, wanted 32768");
}

TEST_F(ArgumentsTest, RefusesAnAddressThatIsNotAligned) {
  const auto layer = make_layer(*engine_, *device_);
  layer->replace("x", static_cast<std::byte*>(layer->address("x")) + 8);
  expect_mismatch(layer->forward(), "is not a multiple of 16");
}

TEST_F(ArgumentsTest, RefusesBlocksThatAreNotAlignedAsAGpuWants) {
  const auto layer = make_layer(*engine_, *device_);
  const auto refusal = [&](const runtime::CallMemory& memory) {
    const auto result = layer->prepared().call("forward", layer->tensors(), memory, nullptr);
    return result ? "" : result.error().message;
  };
  runtime::CallMemory memory = layer->memory();
  memory.workspace = static_cast<std::byte*>(memory.workspace) + 64;
  EXPECT_NE(refusal(memory).find("the workspace's address"), std::string::npos);
  EXPECT_NE(refusal(memory).find("is not a multiple of 128"), std::string::npos);
  memory = layer->memory();
  memory.saved = static_cast<std::byte*>(memory.saved) + 64;
  EXPECT_NE(refusal(memory).find("the saved block's address"), std::string::npos);
  EXPECT_EQ(calls_of(CudaCall::launch_kernel_ex), 0);
}

TEST_F(ArgumentsTest, RefusesMachineCodeThatTakesOtherParameters) {
  for (const int64_t off : {-8, 8}) {
    const auto engine = make_engine();
    std::memset(static_cast<void*>(&*nvrtc()), 0, sizeof(FakeNvrtcControl));
    const auto layer = DriverLayer::create(*engine, *device_, *nvrtc(), {.param_bytes_off = off});
    ASSERT_FALSE(layer);
    EXPECT_EQ(layer.error().code, ErrorCode::kInternal);
    EXPECT_NE(layer.error().message.find("bytes of parameters, wanted"), std::string::npos)
        << layer.error().message;
  }
}

class LaunchLimitsTest : public ArgumentsTest {
 protected:
  void SetUp() override {
    ArgumentsTest::SetUp();
    const auto plan = DriverLayer::plan({});
    DriverLayer::describe_kernels(plan, *nvrtc());
    const auto binary = engine_->binary(emit_kernel(plan.kernels[0], plan.target).value());
    ASSERT_TRUE(succeeded(binary));
    auto loaded = device_->load(**binary);
    ASSERT_TRUE(succeeded(loaded));
    kernel_ = std::move(*loaded);
  }
  void TearDown() override {
    kernel_.reset();
    ArgumentsTest::TearDown();
  }
  Result<void> launch(int64_t ctas, int32_t threads, int32_t shared_bytes) {
    return device_->launch({.kernel = kernel_.get(),
                            .ctas = ctas,
                            .threads = threads,
                            .shared_bytes = shared_bytes,
                            .params = params_},
                           nullptr);
  }

  std::unique_ptr<runtime::LoadedKernel> kernel_;
  alignas(64) std::array<std::byte, 1024> params_{};
};

TEST_F(LaunchLimitsTest, TakesWhatTheDeviceCanDo) {
  EXPECT_TRUE(succeeded(launch(1, 1, 0)));
  EXPECT_TRUE(succeeded(launch((int64_t{1} << 31) - 1, 1024, 227 << 10)));
  EXPECT_EQ(cuda()->launches, 2);
  EXPECT_TRUE(succeeded(launch(0, 32, 0)));  // nothing to do
  EXPECT_EQ(cuda()->launches, 2);
}

TEST_F(LaunchLimitsTest, TellsWhatTheDeviceCannotDoBeforeTheDriverIsAsked) {
  struct {
    int64_t ctas;
    int32_t threads, shared_bytes;
    std::string_view what;
  } const cases[] = {{-1, 32, 0, "number of CTAs of kernel "},
                     {int64_t{1} << 31, 32, 0, "got 2147483648, wanted 0 to 2147483647"},
                     {1, 0, 0, "threads per CTA of kernel "},
                     {1, 1025, 0, "got 1025, wanted 1 to 1024"},
                     {1, 32, -1, "bytes of dynamic shared memory of kernel "},
                     {1, 32, (227 << 10) + 1, "got 232449, wanted 0 to 232448"}};
  for (const auto& [ctas, threads, shared_bytes, what] : cases) {
    const auto refused = launch(ctas, threads, shared_bytes);
    ASSERT_FALSE(refused) << what;
    EXPECT_EQ(refused.error().code, ErrorCode::kInvalidValue);
    EXPECT_NE(refused.error().message.find(what), std::string::npos) << refused.error().message;
  }
  EXPECT_EQ(calls_of(CudaCall::launch_kernel_ex), 0);
}

}  // namespace
}  // namespace moejit::testing
