// SPDX-License-Identifier: Apache-2.0
// What tests/driver shows with a stand-in, with the real driver: kernels that are needed after
// their layer, captures that stay valid, and wrong pointers.
#include "tests/gpu/layer_on_stream.h"
#include "tests/support/layer_inputs.h"

#include <array>
#include <cstdlib>
#include <gtest/gtest.h>

namespace moejit::testing {
namespace {

using reference::LayerShape;
using runtime::PreparedPlan;

constexpr LayerShape kRecordedShape{.experts = 5,
                                    .top_k = 2,
                                    .hidden = 272,
                                    .intermediate = 144,
                                    .alignment = 128,
                                    .max_rows = 128 * 8};
constexpr int64_t kRecordedTokens = 100;

class DriverRulesTest : public LayerOnStreamTest {
 protected:
  void SetUp() override {
    LayerOnStreamTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    ASSERT_NO_FATAL_FAILURE(
        make(kRecordedShape, {.max_tokens = kRecordedTokens, .keep_intermediates = false}));
    const auto inputs = random_inputs(kRecordedShape, kRecordedTokens, 1);
    ASSERT_TRUE(succeeded(layer_->set_weights(inputs)));
    ASSERT_TRUE(succeeded(layer_->run(inputs)));
    wanted_ = layer_->read<uint16_t>("y");
    ASSERT_TRUE(succeeded(layer_->poison()));
    ASSERT_TRUE(succeeded(test_device().device->synchronize(nullptr)));
  }
  // The same layer with kernels of its own, which go with the device.
  struct Other {
    std::unique_ptr<runtime::Device> device;
    std::unique_ptr<PreparedPlan> layer;
  };
  Other prepare_again() {
    Other other{.device = runtime::open_cuda_device(0).value(), .layer = nullptr};
    other.layer =
        PreparedPlan::prepare(layer_->plan(), *test_device().engine, *other.device).value();
    return other;
  }
  Result<void> forward(PreparedPlan& layer, runtime::Stream stream) {
    return layer.call("forward", layer_->tensors(), layer_->memory(), stream);
  }
  void expect_result() {
    ASSERT_DRIVER(api_->stream_synchronize(stream_));
    EXPECT_TRUE(
        matches(compare_bf16({"y", kRecordedShape.hidden}, layer_->read<uint16_t>("y"), wanted_)));
  }

  std::vector<uint16_t> wanted_;
};

TEST_F(DriverRulesTest, LaunchesInFlightAreFinishedBeforeTheirKernelsAreUnloaded) {
  for (int round = 0; round < 20; ++round) {
    Other other = prepare_again();
    for (int i = 0; i < 50; ++i) ASSERT_TRUE(succeeded(forward(*other.layer, stream_)));
    other.layer.reset();
    other.device.reset();
  }
  expect_result();
}

TEST_F(DriverRulesTest, AGraphRunsAfterLayerAndDeviceAreGone) {
  Other other = prepare_again();
  CUgraphExec executable = nullptr;
  ASSERT_NO_FATAL_FAILURE(record(CU_STREAM_CAPTURE_MODE_GLOBAL, executable,
                                 [&] { return forward(*other.layer, stream_); }));
  other.layer.reset();
  other.device.reset();
  for (int replay = 0; replay < 3; ++replay) ASSERT_DRIVER(api_->graph_launch(executable, stream_));
  expect_result();
  EXPECT_EQ(api_->graph_exec_destroy(executable), CUDA_SUCCESS);
}

TEST_F(DriverRulesTest, LayersCanBePreparedRecordedAndLetGoInCapturesOfAllModes) {
  for (const auto mode : {CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
                          CU_STREAM_CAPTURE_MODE_RELAXED}) {
    auto device = runtime::open_cuda_device(0).value();
    CUgraphExec executable = nullptr;
    ASSERT_NO_FATAL_FAILURE(record(mode, executable, [&]() -> Result<void> {
      MOEJIT_TRY_ASSIGN(const auto other,
                        PreparedPlan::prepare(layer_->plan(), *test_device().engine, *device));
      return forward(*other, stream_);  // and lets go of it
    })) << mode;
    ASSERT_TRUE(succeeded(layer_->poison()));
    ASSERT_TRUE(succeeded(test_device().device->synchronize(nullptr)));
    ASSERT_DRIVER(api_->graph_launch(executable, stream_));
    expect_result();
    EXPECT_EQ(api_->graph_exec_destroy(executable), CUDA_SUCCESS);
  }
}

TEST_F(DriverRulesTest, ACallOnTheDefaultStreamIsRefusedWhileABlockingOneIsRecorded) {
  CUstream blocking = nullptr;
  ASSERT_DRIVER(api_->stream_create(&blocking, CU_STREAM_DEFAULT));
  ASSERT_DRIVER(api_->stream_begin_capture(blocking, CU_STREAM_CAPTURE_MODE_RELAXED));
  const auto refused = layer_->forward(nullptr);
  EXPECT_EQ(refused ? ErrorCode::kInternal : refused.error().code, ErrorCode::kStreamCapture);
  const auto recorded = layer_->forward(blocking);
  CUgraph graph = nullptr;
  ASSERT_DRIVER(api_->stream_end_capture(blocking, &graph));
  EXPECT_TRUE(succeeded(recorded));
  ASSERT_DRIVER(api_->graph_destroy(graph));
  ASSERT_DRIVER(api_->stream_destroy(blocking));
}

// A call takes the tensor maps of the call before for tensors at the same addresses, whatever
// memory is there now.
TEST_F(DriverRulesTest, ReadsOtherMemoryAtAnAddressThatItKnows) {
  CUmemAllocationProp property{};
  property.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  property.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  property.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = context_->device()};
  std::size_t step = 0;
  ASSERT_DRIVER(
      api_->mem_get_allocation_granularity(&step, &property, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  runtime::CallMemory memory = layer_->memory();
  const std::size_t bytes =
      (static_cast<std::size_t>(memory.workspace_bytes) + step - 1) / step * step;
  CUdeviceptr address = 0;
  ASSERT_DRIVER(api_->mem_address_reserve(&address, bytes, 0, 0, 0));
  memory.workspace = reinterpret_cast<void*>(address);
  CUmemAccessDesc access{};
  access.location = property.location;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  std::array<CUmemGenericAllocationHandle, 3> physical{};  // all at a time, so none is another
  for (CUmemGenericAllocationHandle& each : physical) {
    ASSERT_DRIVER(api_->mem_create(&each, bytes, &property, 0));
    ASSERT_DRIVER(api_->mem_map(address, bytes, 0, each, 0));
    ASSERT_DRIVER(api_->mem_set_access(address, bytes, &access, 1));
    ASSERT_TRUE(succeeded(layer_->poison(stream_)));
    ASSERT_TRUE(succeeded(layer_->layer().call("forward", layer_->tensors(), memory, stream_)));
    expect_result();
    ASSERT_DRIVER(api_->mem_unmap(address, bytes));
  }
  for (const CUmemGenericAllocationHandle each : physical)
    EXPECT_EQ(api_->mem_release(each), CUDA_SUCCESS);
  EXPECT_EQ(api_->mem_address_free(address, bytes), CUDA_SUCCESS);
}

TEST_F(DriverRulesTest, ChecksPointersOnWish) {
  ::setenv("MOEJIT_CHECK_POINTERS", "1", 1);
  Other other = prepare_again();
  ::unsetenv("MOEJIT_CHECK_POINTERS");
  ASSERT_TRUE(succeeded(forward(*other.layer, stream_)));
  expect_result();
  std::vector<runtime::TensorRef> tensors = layer_->tensors();
  alignas(256) static std::array<std::byte, 1 << 20> pageable;
  for (runtime::TensorRef& tensor : tensors)
    if (tensor.name == "x") tensor.data = pageable.data();
  const auto refused = other.layer->call("forward", tensors, layer_->memory(), stream_);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kTensorMismatch);
  EXPECT_NE(refused.error().message.find("tensor x"), std::string::npos);
}

}  // namespace
}  // namespace moejit::testing
