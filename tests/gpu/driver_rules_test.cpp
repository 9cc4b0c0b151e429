// SPDX-License-Identifier: Apache-2.0
// What tests/driver shows with a stand-in, with the real driver: kernels that are needed after
// their layer, captures that stay valid, and wrong pointers.
#include "runtime/driver/context.h"
#include "tests/gpu/test_layer.h"
#include "tests/support/matchers.h"
#include "tests/support/reference/random_inputs.h"

#include <array>
#include <cstdlib>
#include <gtest/gtest.h>
#include <optional>

namespace moejit::testing {
namespace {

using reference::LayerShape;
using runtime::PreparedLayer;

constexpr LayerShape kShape{.experts = 5,
                            .top_k = 2,
                            .hidden = 272,
                            .intermediate = 144,
                            .alignment = 128,
                            .max_rows = 128 * 8};
constexpr int64_t kTokens = 100;

#define ASSERT_DRIVER(call) ASSERT_EQ(call, CUDA_SUCCESS)

class DriverRulesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (test_device().device == nullptr) GTEST_SKIP() << test_device().reason;
    api_ = runtime::driver_api().value();
    context_ = runtime::Context::adopt(*api_, 0).value();
    current_.emplace(*context_);
    ASSERT_DRIVER(api_->stream_create(&stream_, CU_STREAM_NON_BLOCKING));
    auto layer = TestLayer::create(kShape, {.max_tokens = kTokens, .keep_intermediates = false});
    ASSERT_TRUE(succeeded(layer));
    layer_ = std::move(*layer);
    const auto inputs = random_inputs(kShape, kTokens, 1);
    ASSERT_TRUE(succeeded(layer_->set_weights(inputs)));
    ASSERT_TRUE(succeeded(layer_->run(inputs)));
    wanted_ = layer_->read<uint16_t>("y");
    ASSERT_TRUE(succeeded(layer_->poison()));
    ASSERT_TRUE(succeeded(test_device().device->synchronize(nullptr)));
  }
  void TearDown() override {
    layer_.reset();
    if (stream_ != nullptr) api_->stream_destroy(stream_);
  }
  // The same layer with kernels of its own, which go with the device.
  struct Other {
    std::unique_ptr<runtime::Device> device;
    std::unique_ptr<PreparedLayer> layer;
  };
  Other prepare_again() {
    Other other{.device = runtime::open_cuda_device(0).value(), .layer = nullptr};
    other.layer =
        PreparedLayer::prepare(layer_->plan(), *test_device().engine, *other.device).value();
    return other;
  }
  Result<void> forward(PreparedLayer& layer, runtime::Stream stream) {
    return layer.forward(layer_->tensors(), layer_->memory(), stream);
  }
  void expect_result() {
    ASSERT_DRIVER(api_->stream_synchronize(stream_));
    EXPECT_TRUE(matches(compare_bf16({"y", kShape.hidden}, layer_->read<uint16_t>("y"), wanted_)));
  }

  const runtime::DriverApi* api_ = nullptr;
  std::shared_ptr<const runtime::Context> context_;
  std::optional<runtime::CurrentContext> current_;
  CUstream stream_ = nullptr;
  std::unique_ptr<TestLayer> layer_;
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
  ASSERT_DRIVER(api_->stream_begin_capture(stream_, CU_STREAM_CAPTURE_MODE_GLOBAL));
  const auto recorded = forward(*other.layer, stream_);
  CUgraph graph = nullptr;
  ASSERT_DRIVER(api_->stream_end_capture(stream_, &graph));
  ASSERT_TRUE(succeeded(recorded));
  CUgraphExec executable = nullptr;
  ASSERT_DRIVER(api_->graph_instantiate(&executable, graph, 0));
  ASSERT_DRIVER(api_->graph_destroy(graph));
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
    ASSERT_DRIVER(api_->stream_begin_capture(stream_, mode));
    auto other = PreparedLayer::prepare(layer_->plan(), *test_device().engine, *device);
    EXPECT_TRUE(succeeded(other));
    const auto recorded = forward(**other, stream_);
    EXPECT_TRUE(succeeded(recorded));
    *other = nullptr;
    CUgraph graph = nullptr;
    ASSERT_DRIVER(api_->stream_end_capture(stream_, &graph)) << mode;
    CUgraphExec executable = nullptr;
    ASSERT_DRIVER(api_->graph_instantiate(&executable, graph, 0));
    ASSERT_DRIVER(api_->graph_destroy(graph));
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
  const auto refused = other.layer->forward(tensors, layer_->memory(), stream_);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kTensorMismatch);
  EXPECT_NE(refused.error().message.find("tensor x"), std::string::npos);
}

}  // namespace
}  // namespace moejit::testing
