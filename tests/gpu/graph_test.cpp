// SPDX-License-Identifier: Apache-2.0
// A prepared layer recorded into a CUDA graph, and what a call must not do.
#include "runtime/reference/random_inputs.h"
#include "tests/gpu/layer_on_stream.h"
#include "tests/support/layer_inputs.h"

#include <atomic>
#include <cstdlib>
#include <gtest/gtest.h>
#include <new>
#include <thread>

namespace {
std::atomic<long> allocations{0};
}

// Counts what the process allocates through C++; the driver uses its own allocator.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  ++allocations;
  if (void* memory = std::malloc(bytes)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace moejit::testing {
namespace {

using reference::LayerInputs;
using reference::LayerShape;

constexpr LayerShape kShape{.experts = 7,
                            .top_k = 3,
                            .hidden = 272,
                            .intermediate = 144,
                            .alignment = 128,
                            .max_rows = 128 * 12};
constexpr int64_t kTokens = 150;

class GraphTest : public LayerOnStreamTest {
 protected:
  void SetUp() override {
    LayerOnStreamTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    ASSERT_NO_FATAL_FAILURE(make(kShape, {.max_tokens = kTokens, .keep_intermediates = false}));
    ASSERT_TRUE(succeeded(layer_->set_weights(random_inputs(kShape, kTokens, 1))));
  }
  std::vector<uint16_t> eager(const LayerInputs& inputs) {
    EXPECT_TRUE(succeeded(layer_->run(inputs)));
    return layer_->read<uint16_t>("y");
  }
  void record_forward(CUstreamCaptureMode mode, CUgraphExec& graph) {
    record(mode, graph, [this] { return layer_->forward(stream_); });
  }
};

TEST_F(GraphTest, ReplaysEqualCallsWhateverTheRouting) {
  ASSERT_TRUE(succeeded(layer_->set_inputs(random_inputs(kShape, kTokens, 2))));
  CUgraphExec graph = nullptr;
  ASSERT_NO_FATAL_FAILURE(record_forward(CU_STREAM_CAPTURE_MODE_GLOBAL, graph));
  for (uint64_t seed = 0; seed < 100; ++seed) {
    LayerInputs inputs = random_inputs(kShape, kTokens, 100 + seed,
                                       {.unrouted_share = static_cast<double>(seed % 4) / 4.0});
    if (seed % 10 == 0) inputs.topk_ids.assign(inputs.topk_ids.size(), seed % 20 == 0 ? 0 : -1);
    const auto wanted = eager(inputs);
    const auto status = layer_->read<uint32_t>("status");
    ASSERT_TRUE(succeeded(layer_->poison()));
    ASSERT_TRUE(succeeded(test_device().device->synchronize(nullptr)));
    ASSERT_DRIVER(api_->graph_launch(graph, stream_));
    ASSERT_DRIVER(api_->stream_synchronize(stream_));
    ASSERT_TRUE(matches(compare_bf16({"y", kShape.hidden}, layer_->read<uint16_t>("y"), wanted)))
        << "replay " << seed;
    ASSERT_EQ(layer_->read<uint32_t>("status"), status) << "replay " << seed;
  }
  EXPECT_EQ(layer_->damage(), std::vector<std::string>{});
  EXPECT_EQ(api_->graph_exec_destroy(graph), CUDA_SUCCESS);
}

class TrainingGraphTest : public GraphTest, public ::testing::WithParamInterface<compiler::Recipe> {
 protected:
  Result<void> step(runtime::Stream stream) {
    MOEJIT_TRY(layer_->forward(stream));
    return layer_->backward(GradientMode::kAdd, stream);
  }
  // Gradients of a step that adds to `old`.
  template <typename Launch>
  std::vector<std::vector<std::byte>> gradients(const std::vector<uint16_t>& dy, float old,
                                                const Launch& launch) {
    EXPECT_TRUE(succeeded(layer_->set_gradient(dy)));
    EXPECT_TRUE(succeeded(layer_->set_weight_gradients(old)));
    EXPECT_TRUE(succeeded(layer_->poison()));
    EXPECT_TRUE(succeeded(test_device().device->synchronize(nullptr)));
    launch();
    EXPECT_EQ(api_->stream_synchronize(stream_), CUDA_SUCCESS);
    std::vector<std::vector<std::byte>> all;
    for (const std::string_view name : {"y", "dx", "dprobs", "dw1", "dw2"})
      all.push_back(layer_->read<std::byte>(name));
    return all;
  }
};

TEST_P(TrainingGraphTest, ReplaysAStepWhateverTheRouting) {
  const LayerShape& shape = kShape;
  ASSERT_NO_FATAL_FAILURE(make(shape, {.max_tokens = kTokens,
                                       .keep_intermediates = false,
                                       .has_backward = true,
                                       .recipe = GetParam()}));
  ASSERT_TRUE(succeeded(layer_->set_weights(random_inputs(shape, kTokens, 1))));
  ASSERT_TRUE(succeeded(layer_->set_inputs(random_inputs(shape, kTokens, 2))));
  CUgraphExec graph = nullptr;
  ASSERT_NO_FATAL_FAILURE(
      record(CU_STREAM_CAPTURE_MODE_GLOBAL, graph, [this] { return step(stream_); }));
  for (uint64_t seed = 0; seed < 100; ++seed) {
    LayerInputs inputs = random_inputs(shape, kTokens, 100 + seed,
                                       {.unrouted_share = static_cast<double>(seed % 4) / 4.0});
    if (seed % 10 == 0) inputs.topk_ids.assign(inputs.topk_ids.size(), seed % 20 == 0 ? 0 : -1);
    ASSERT_TRUE(succeeded(layer_->set_inputs(inputs)));
    const std::vector<uint16_t> dy =
        reference::random_activations(kTokens, shape.hidden, 500 + seed);
    const auto old = static_cast<float>(seed);
    const auto eager = gradients(dy, old, [this] { EXPECT_TRUE(succeeded(step(stream_))); });
    const auto replayed =
        gradients(dy, old, [&] { EXPECT_EQ(api_->graph_launch(graph, stream_), CUDA_SUCCESS); });
    ASSERT_EQ(eager, replayed) << "replay " << seed;
  }
  EXPECT_EQ(layer_->damage(), std::vector<std::string>{});
  EXPECT_EQ(api_->graph_exec_destroy(graph), CUDA_SUCCESS);
}

INSTANTIATE_TEST_SUITE_P(Recipes, TrainingGraphTest,
                         ::testing::Values(compiler::Recipe::kFp8Flow, compiler::Recipe::kBf16,
                                           compiler::Recipe::kFp8Delayed),
                         [](const auto& test) { return std::string(to_string(test.param)); });

// Each replay of a step takes the scales that the replay before has found.
TEST_F(GraphTest, MovesTheStateOfDelayedScalingOnInEveryReplay) {
  ASSERT_NO_FATAL_FAILURE(make(kShape, {.max_tokens = kTokens,
                                        .keep_intermediates = false,
                                        .has_backward = true,
                                        .recipe = compiler::Recipe::kFp8Delayed,
                                        .amax_history_len = 3}));
  const runtime::TensorMap first = layer_->states();
  const LayerInputs weights = random_inputs(kShape, kTokens, 1);
  const auto step = [this](runtime::Stream stream) -> Result<void> {
    const auto tensors = layer_->tensors();
    MOEJIT_TRY(layer_->layer().call("update_weights", tensors, {}, stream));
    MOEJIT_TRY(layer_->forward(stream));
    MOEJIT_TRY(layer_->layer().call("update_forward_scales", tensors, {}, stream));
    MOEJIT_TRY(layer_->backward(GradientMode::kOverwrite, stream));
    return layer_->layer().call("update_backward_scales", tensors, {}, stream);
  };
  const auto steps = [&](const auto& launch) {
    EXPECT_TRUE(succeeded(layer_->set_states(first)));
    std::vector<std::vector<std::byte>> all;
    for (uint64_t seed = 0; seed < 5; ++seed) {
      EXPECT_TRUE(succeeded(layer_->set_inputs(random_inputs(kShape, kTokens, 40 + seed))));
      EXPECT_TRUE(succeeded(
          layer_->set_gradient(reference::random_activations(kTokens, kShape.hidden, 60 + seed))));
      EXPECT_TRUE(succeeded(test_device().device->synchronize(nullptr)));
      launch();
      EXPECT_EQ(api_->stream_synchronize(stream_), CUDA_SUCCESS);
      for (const auto& [name, state] : first) all.push_back(layer_->read<std::byte>(name));
      all.push_back(layer_->read<std::byte>("y"));
    }
    return all;
  };
  ASSERT_TRUE(succeeded(layer_->upload_weights(weights)));
  ASSERT_TRUE(succeeded(layer_->set_inputs(weights)));
  CUgraphExec graph = nullptr;
  ASSERT_NO_FATAL_FAILURE(
      record(CU_STREAM_CAPTURE_MODE_GLOBAL, graph, [&] { return step(stream_); }));
  const auto eager = steps([&] { EXPECT_TRUE(succeeded(step(stream_))); });
  const auto replayed = steps([&] { EXPECT_EQ(api_->graph_launch(graph, stream_), CUDA_SUCCESS); });
  EXPECT_EQ(eager, replayed);
  EXPECT_EQ(layer_->damage(), std::vector<std::string>{});
  EXPECT_EQ(api_->graph_exec_destroy(graph), CUDA_SUCCESS);
}

TEST_F(GraphTest, UpdatesWeightsInTheReplaysThatAreNotToSkipIt) {
  const auto set_skip = [&](uint32_t skip) {
    return layer_->set_optional("skip_update", &skip, sizeof(skip));
  };
  ASSERT_TRUE(succeeded(set_skip(0)));
  CUgraphExec graph = nullptr;
  ASSERT_NO_FATAL_FAILURE(record(CU_STREAM_CAPTURE_MODE_GLOBAL, graph, [this] {
    return layer_->layer().call("update_weights", layer_->tensors(), {}, stream_);
  }));

  std::vector<uint8_t> current = layer_->read<uint8_t>("w1_q");
  for (const uint32_t skip : {1u, 0u, 1u, 0u}) {
    ASSERT_TRUE(succeeded(layer_->upload_weights(random_inputs(kShape, 1, 70 + skip))));
    ASSERT_TRUE(succeeded(set_skip(skip)));
    ASSERT_DRIVER(api_->graph_launch(graph, stream_));
    ASSERT_DRIVER(api_->stream_synchronize(stream_));
    const std::vector<uint8_t> replayed = layer_->read<uint8_t>("w1_q");
    if (skip == 0) {
      ASSERT_TRUE(
          succeeded(layer_->layer().call("update_weights", layer_->tensors(), {}, nullptr)));
      ASSERT_TRUE(succeeded(test_device().device->synchronize(nullptr)));
      current = layer_->read<uint8_t>("w1_q");
    }
    EXPECT_EQ(replayed, current) << "skip_update " << skip;
  }
  EXPECT_EQ(api_->graph_exec_destroy(graph), CUDA_SUCCESS);
}

TEST_F(GraphTest, IsRecordedInEveryModeOfCapture) {
  const LayerInputs inputs = random_inputs(kShape, kTokens, 5);
  const auto wanted = eager(inputs);
  for (const auto mode : {CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
                          CU_STREAM_CAPTURE_MODE_RELAXED}) {
    // A new layer. (driver_rules_test.cpp records kernels that have never run.)
    ASSERT_NO_FATAL_FAILURE(make(kShape, {.max_tokens = kTokens, .keep_intermediates = false}));
    ASSERT_TRUE(succeeded(layer_->set_weights(random_inputs(kShape, kTokens, 1))));
    ASSERT_TRUE(succeeded(layer_->set_inputs(inputs)));
    CUgraphExec graph = nullptr;
    ASSERT_NO_FATAL_FAILURE(record_forward(mode, graph));
    ASSERT_TRUE(succeeded(layer_->poison()));
    ASSERT_TRUE(succeeded(test_device().device->synchronize(nullptr)));
    ASSERT_DRIVER(api_->graph_launch(graph, stream_));
    ASSERT_DRIVER(api_->stream_synchronize(stream_));
    EXPECT_TRUE(matches(compare_bf16({"y", kShape.hidden}, layer_->read<uint16_t>("y"), wanted)));
    EXPECT_EQ(api_->graph_exec_destroy(graph), CUDA_SUCCESS);
  }
}

TEST_F(GraphTest, ACallAllocatesNothing) {
  ASSERT_TRUE(succeeded(layer_->set_inputs(random_inputs(kShape, kTokens, 2))));
  const std::vector<runtime::TensorRef> tensors = layer_->tensors();
  size_t free_before = 0, free_after = 0, total = 0;
  ASSERT_DRIVER(api_->mem_get_info(&free_before, &total));
  const long before = allocations;
  for (int i = 0; i < 10; ++i) {
    const auto launched = layer_->layer().call(
        "forward", tensors, {layer_->workspace(), layer_->layer().plan().workspace_bytes}, stream_);
    ASSERT_TRUE(launched.has_value());
  }
  EXPECT_EQ(allocations, before);
  ASSERT_DRIVER(api_->stream_synchronize(stream_));
  ASSERT_DRIVER(api_->mem_get_info(&free_after, &total));
  EXPECT_EQ(free_after, free_before);
}

TEST_F(GraphTest, OtherThreadsNeedNoCurrentContext) {
  const LayerInputs inputs = random_inputs(kShape, kTokens, 6);
  const auto wanted = eager(inputs);
  ASSERT_TRUE(succeeded(layer_->poison()));
  ASSERT_TRUE(succeeded(test_device().device->synchronize(nullptr)));
  std::thread([&] {
    EXPECT_TRUE(succeeded(layer_->forward(stream_)));
    EXPECT_TRUE(succeeded(test_device().device->synchronize(stream_)));
    CUcontext left = nullptr;
    EXPECT_EQ(api_->ctx_get_current(&left), CUDA_SUCCESS);
    EXPECT_EQ(left, nullptr);
  }).join();
  EXPECT_TRUE(matches(compare_bf16({"y", kShape.hidden}, layer_->read<uint16_t>("y"), wanted)));
}

TEST_F(GraphTest, ADeviceAdoptsTheCurrentContext) {
  const auto device = runtime::open_cuda_device(/*ordinal=*/0);
  ASSERT_TRUE(succeeded(device));
  EXPECT_EQ((*device)->sm_count(), test_device().device->sm_count());
}

TEST_F(GraphTest, RefusesAKernelThatIsNotForTheGpu) {
  const compiler::KernelBinary binary{
      .entry = "f", .target = compiler::parse_target("sim").value(), .bytes = {}, .usage = {}};
  const auto loaded = test_device().device->load(binary);
  ASSERT_FALSE(loaded);
  EXPECT_EQ(loaded.error().code, ErrorCode::kUnsupported);
}

TEST_F(GraphTest, TellsThatMemoryRanOut) {
  const auto memory = test_device().device->allocate(int64_t{1} << 46);
  ASSERT_FALSE(memory);
  EXPECT_EQ(memory.error().code, ErrorCode::kOutOfMemory);
}

}  // namespace
}  // namespace moejit::testing
