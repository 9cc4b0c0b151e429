// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/driver/context.h"
#include "tests/gpu/test_layer.h"
#include "tests/support/matchers.h"

#include <gtest/gtest.h>
#include <memory>
#include <optional>

#define ASSERT_DRIVER(call) ASSERT_EQ(call, CUDA_SUCCESS)

namespace moejit::testing {

// A layer of the test's, and a stream of the driver's that records its calls. Skips where there is
// no GPU.
class LayerOnStreamTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (test_device().device == nullptr) GTEST_SKIP() << test_device().reason;
    api_ = runtime::driver_api().value();
    auto context = runtime::Context::adopt(*api_, 0);
    ASSERT_TRUE(succeeded(context));
    context_ = *context;
    current_.emplace(*context_);
    ASSERT_DRIVER(api_->stream_create(&stream_, CU_STREAM_NON_BLOCKING));
  }
  void TearDown() override {
    layer_.reset();
    if (stream_ != nullptr) api_->stream_destroy(stream_);
  }
  void make(const reference::LayerShape& shape, TestLayer::Options options) {
    auto layer = TestLayer::create(shape, options);
    ASSERT_TRUE(succeeded(layer));
    layer_ = std::move(*layer);
  }
  // What `calls` put on the stream, ready to be launched.
  template <typename Calls>
  void record(CUstreamCaptureMode mode, CUgraphExec& graph, const Calls& calls) {
    ASSERT_DRIVER(api_->stream_begin_capture(stream_, mode));
    const auto launched = calls();
    CUgraph recorded = nullptr;
    ASSERT_DRIVER(api_->stream_end_capture(stream_, &recorded));
    ASSERT_TRUE(succeeded(launched));
    ASSERT_DRIVER(api_->graph_instantiate(&graph, recorded, 0));
    ASSERT_DRIVER(api_->graph_destroy(recorded));
  }

  const runtime::DriverApi* api_ = nullptr;
  std::shared_ptr<const runtime::Context> context_;
  std::optional<runtime::CurrentContext> current_;
  CUstream stream_ = nullptr;
  std::unique_ptr<TestLayer> layer_;
};

}  // namespace moejit::testing
