// SPDX-License-Identifier: Apache-2.0
// What may be recorded, in each of the three modes, and that nothing of ours ends a capture.
#include "tests/driver/driver_fixture.h"
#include "tests/driver/driver_operation.h"

#include <thread>

namespace moejit::testing {
namespace {

class CaptureTest : public DriverTest, public ::testing::WithParamInterface<CUstreamCaptureMode> {
 protected:
  void SetUp() override {
    DriverTest::SetUp();
    device_ = open();
    engine_ = make_engine();
    own_ = create_context(0);
    device_ = open();  // in that context
    ASSERT_EQ(api().stream_create(&stream_, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  }
  void TearDown() override {
    device_.reset();
    destroy_context(own_);
    DriverTest::TearDown();
  }
  void begin(CUstreamCaptureMode mode = GetParam()) {
    ASSERT_EQ(api().stream_begin_capture(stream_, mode), CUDA_SUCCESS);
  }
  // What was recorded, ready to be launched; null where the capture was not valid any more.
  CUgraphExec end() {
    CUgraph graph = nullptr;
    EXPECT_EQ(api().stream_end_capture(stream_, &graph), CUDA_SUCCESS);
    if (graph == nullptr) return nullptr;
    CUgraphExec executable = nullptr;
    EXPECT_EQ(api().graph_instantiate(&executable, graph, 0), CUDA_SUCCESS);
    EXPECT_EQ(api().graph_destroy(graph), CUDA_SUCCESS);
    return executable;
  }
  // Ends a capture that nothing ended before.
  void expect_valid() {
    CUgraphExec graph = end();
    ASSERT_NE(graph, nullptr);
    EXPECT_EQ(api().graph_exec_destroy(graph), CUDA_SUCCESS);
  }
  CUstreamCaptureStatus status() {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    EXPECT_EQ(api().stream_is_capturing(stream_, &status), CUDA_SUCCESS);
    return status;
  }

  std::unique_ptr<runtime::Device> device_;
  std::unique_ptr<runtime::Engine> engine_;
  CUcontext own_ = nullptr;
  CUstream stream_ = nullptr;
};

TEST_P(CaptureTest, RecordsEveryKernelOfALayerThatWasOnlyPrepared) {
  const auto layer = make_layer(*engine_, *device_);
  begin();
  EXPECT_TRUE(succeeded(layer->run_all(stream_)));
  EXPECT_EQ(status(), CU_STREAM_CAPTURE_STATUS_ACTIVE);
  CUgraphExec graph = end();
  ASSERT_NE(graph, nullptr);
  EXPECT_EQ(cuda()->nodes_captured, layer->launches());
  EXPECT_EQ(cuda()->launches, 0);
  for (int replay = 0; replay < 3; ++replay)
    EXPECT_EQ(api().graph_launch(graph, stream_), CUDA_SUCCESS);
  EXPECT_EQ(cuda()->launches, 3 * layer->launches());
  EXPECT_EQ(api().graph_exec_destroy(graph), CUDA_SUCCESS);
}

TEST_P(CaptureTest, RecordsEveryOperationThatWasOnlyPrepared) {
  int64_t launches = 0;
  for (const compiler::OperationDescription& described : example_operations()) {
    const auto plan = std::make_shared<const compiler::Plan>(plan_operation(described, {}).value());
    SCOPED_TRACE(plan->subject);
    DriverLayer::describe_kernels(*plan, *nvrtc());
    const auto prepared = runtime::PreparedPlan::prepare(plan, *engine_, *device_);
    ASSERT_TRUE(succeeded(prepared));
    const OperationTensors tensors(*plan, *device_);
    begin();
    EXPECT_TRUE(succeeded((*prepared)->call("run", tensors.refs(), {}, stream_)));
    EXPECT_EQ(status(), CU_STREAM_CAPTURE_STATUS_ACTIVE);
    CUgraphExec graph = end();
    ASSERT_NE(graph, nullptr);
    EXPECT_EQ(cuda()->nodes_captured, launches + 1);
    EXPECT_EQ(cuda()->launches, launches);
    EXPECT_EQ(api().graph_launch(graph, stream_), CUDA_SUCCESS);
    EXPECT_EQ(cuda()->launches, ++launches);
    EXPECT_EQ(api().graph_exec_destroy(graph), CUDA_SUCCESS);
  }
  EXPECT_GE(launches, 20);
}

TEST_P(CaptureTest, PreparesAndLetsGoDuringACaptureWithoutEndingIt) {
  cuda()->prohibits_loads_in_capture = 1;  // as older drivers do
  const auto layer = make_layer(*engine_, *device_);
  begin();
  {
    const auto plan = DriverLayer::plan({.hidden = 512});
    DriverLayer::describe_kernels(plan, *nvrtc());
    const auto other = runtime::PreparedPlan::prepare(plan, *engine_, *device_);
    EXPECT_TRUE(succeeded(other));
  }
  EXPECT_TRUE(succeeded(layer->forward(stream_)));
  EXPECT_EQ(status(), CU_STREAM_CAPTURE_STATUS_ACTIVE);
  EXPECT_EQ(cuda()->captures_invalidated, 0);
  expect_valid();
}

TEST_P(CaptureTest, PreparesOnAnotherThreadDuringACapture) {
  cuda()->prohibits_loads_in_capture = 1;
  begin();
  std::thread([&] {
    const auto plan = DriverLayer::plan({.hidden = 512});
    DriverLayer::describe_kernels(plan, *nvrtc());
    EXPECT_TRUE(succeeded(runtime::PreparedPlan::prepare(plan, *engine_, *device_)));
  }).join();
  EXPECT_EQ(status(), CU_STREAM_CAPTURE_STATUS_ACTIVE);
  expect_valid();
}

TEST_P(CaptureTest, WrongCallsInACaptureAreErrorsAndLeaveItValid) {
  const auto layer = make_layer(*engine_, *device_);
  begin();
  layer->replace("x", nullptr);
  const auto launched = layer->forward(stream_);
  ASSERT_FALSE(launched);
  EXPECT_EQ(launched.error().code, ErrorCode::kTensorMismatch);
  EXPECT_EQ(status(), CU_STREAM_CAPTURE_STATUS_ACTIVE);
  EXPECT_EQ(cuda()->nodes_captured, 0);
  expect_valid();
}

TEST_P(CaptureTest, ACallOnTheDefaultStreamIsRefusedBeforeItEndsTheCaptureOfABlockingOne) {
  const auto layer = make_layer(*engine_, *device_);
  ASSERT_EQ(api().stream_create(&stream_, CU_STREAM_DEFAULT), CUDA_SUCCESS);
  begin();
  const auto launched = layer->forward(nullptr);
  ASSERT_FALSE(launched);
  EXPECT_EQ(launched.error().code, ErrorCode::kStreamCapture);
  EXPECT_NE(launched.error().hint.find("CU_STREAM_NON_BLOCKING"), std::string::npos);
  EXPECT_EQ(status(), CU_STREAM_CAPTURE_STATUS_ACTIVE);
  EXPECT_TRUE(succeeded(layer->forward(stream_)));
  expect_valid();
}

TEST_P(CaptureTest, TellsThatSomebodyElseEndedTheCapture) {
  const auto layer = make_layer(*engine_, *device_);
  begin();
  EXPECT_NE(api().stream_synchronize(stream_), CUDA_SUCCESS);
  const auto launched = layer->forward(stream_);
  ASSERT_FALSE(launched);
  EXPECT_EQ(launched.error().code, ErrorCode::kStreamCapture);
  EXPECT_NE(launched.error().message.find("CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"),
            std::string::npos);
  CUgraph graph = nullptr;
  EXPECT_EQ(api().stream_end_capture(stream_, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

std::string name_of_mode(const ::testing::TestParamInfo<CUstreamCaptureMode>& test) {
  switch (test.param) {
    case CU_STREAM_CAPTURE_MODE_GLOBAL: return "Global";
    case CU_STREAM_CAPTURE_MODE_THREAD_LOCAL: return "ThreadLocal";
    default: return "Relaxed";
  }
}

INSTANTIATE_TEST_SUITE_P(Modes, CaptureTest,
                         ::testing::Values(CU_STREAM_CAPTURE_MODE_GLOBAL,
                                           CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
                                           CU_STREAM_CAPTURE_MODE_RELAXED),
                         name_of_mode);

}  // namespace
}  // namespace moejit::testing
