// SPDX-License-Identifier: Apache-2.0
// One process and several GPUs: each layer runs on its own, whichever thread calls.
#include "runtime/trial/random_layer_inputs.h"
#include "runtime/trial/trial.h"
#include "tests/support/matchers.h"
#include "tests/support/test_engine.h"

#include <gtest/gtest.h>
#include <mutex>
#include <thread>

namespace moejit::testing {
namespace {

using trial::Trial;

constexpr int64_t kTokensOfEachGpu = 100;

compiler::Layer layer() {
  return {.name = "several_gpus",
          .experts = 4,
          .local_experts = 4,
          .top_k = 2,
          .hidden = 272,
          .intermediate = 144,
          .recipe = compiler::Recipe::kFp8Flow,
          .splits_alignment = 128,
          .max_tokens = kTokensOfEachGpu,
          .max_permuted_rows = 128 * 8,
          .passes = {compiler::Pass::kForward, compiler::Pass::kBackward}};
}

struct Gpu {
  std::unique_ptr<runtime::Device> device;
  std::unique_ptr<Trial> session;
  std::mutex mutex;  // a layer is called by one thread at a time
};

class SeveralGpusTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto engine = make_test_engine();
    ASSERT_TRUE(succeeded(engine));
    engine_ = std::move(*engine);
    while (auto device = runtime::open_cuda_device(static_cast<int32_t>(gpus_.size()))) {
      gpus_.push_back(std::make_unique<Gpu>());
      gpus_.back()->device = std::move(*device);
    }
    if (gpus_.size() < 2) GTEST_SKIP() << "wanted two GPUs or more, got " << gpus_.size();
    runtime::TensorMap inputs = trial::random_tokens(layer(), kTokensOfEachGpu, {1});
    inputs.merge(trial::random_gradient(layer(), kTokensOfEachGpu, 1));
    inputs.merge(trial::random_weights_of(layer(), layer().local_experts, 1));
    for (const auto& gpu : gpus_) {
      const auto plan = plan_layer(layer(), gpu->device->target(), {});
      ASSERT_TRUE(succeeded(plan));
      auto session = Trial::create(*plan, *engine_, *gpu->device, trial::call_of(inputs));
      ASSERT_TRUE(succeeded(session));
      gpu->session = std::move(*session);
    }
  }
  static void run(Gpu& gpu) {
    const std::lock_guard lock(gpu.mutex);
    EXPECT_TRUE(succeeded(gpu.session->call("update_weights")));
    EXPECT_TRUE(succeeded(gpu.session->call("forward")));
    EXPECT_TRUE(succeeded(gpu.session->call("backward")));
  }
  static std::vector<std::byte> read(Gpu& gpu, std::string_view name) {
    auto tensor = gpu.session->read(*find_tensor(gpu.session->plan(), name));
    EXPECT_TRUE(succeeded(tensor));
    return tensor ? std::move(tensor->bytes) : std::vector<std::byte>{};
  }

  std::unique_ptr<runtime::Engine> engine_;
  std::vector<std::unique_ptr<Gpu>> gpus_;
};

TEST_F(SeveralGpusTest, GiveTheSameBytesWhicheverThreadCalls) {
  constexpr std::size_t kThreads = 8, kRounds = 20;
  // All GPUs run what was compiled for the first.
  EXPECT_LE(engine_->counters().compiled,
            static_cast<int64_t>(gpus_[0]->session->plan().kernels.size()));
  std::vector<std::jthread> threads;
  for (std::size_t thread = 0; thread < kThreads; ++thread)
    threads.emplace_back([&, thread] {
      for (std::size_t round = 0; round < kRounds; ++round)
        run(*gpus_[(thread + round) % gpus_.size()]);
    });
  threads.clear();
  for (const char* name : {"y", "dx", "dprobs", "dw1", "dw2"}) {
    const std::vector<std::byte> first = read(*gpus_[0], name);
    EXPECT_FALSE(first.empty()) << name;
    for (std::size_t gpu = 1; gpu < gpus_.size(); ++gpu)
      EXPECT_EQ(read(*gpus_[gpu], name), first) << name << " of GPU " << gpu;
  }
}

}  // namespace
}  // namespace moejit::testing
