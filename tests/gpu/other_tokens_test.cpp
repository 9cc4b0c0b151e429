// SPDX-License-Identifier: Apache-2.0
// Backward calls whose T is not that of their forward call: the host refuses them where it can read
// the saved block, and else every kernel finds out for itself.
#include "runtime/reference/random_inputs.h"
#include "tests/gpu/test_layer.h"
#include "tests/support/layer_inputs.h"
#include "tests/support/matchers.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <ostream>

namespace moejit::testing {
namespace {

using compiler::TensorRole;
using reference::LayerInputs;
using reference::LayerShape;
using runtime::Device;

constexpr uint32_t kOtherTokens = 8;
constexpr std::byte kUntouched{0xCD};
constexpr int64_t kMostTokens = 64;

// The test's device, but its memory is none of the host's: so the simulator runs the kernels.
class DeviceApart final : public Device {
 public:
  explicit DeviceApart(Device& device) : device_(device) {}
  compiler::Target target() const override { return device_.target(); }
  std::string name() const override { return device_.name(); }
  int32_t sm_count() const override { return device_.sm_count(); }
  int64_t block_alignment() const override { return device_.block_alignment(); }
  bool is_host_memory() const override { return false; }
  Result<bool> enter() override { return device_.enter(); }
  void leave() override { device_.leave(); }
  Result<bool> is_recording(runtime::Stream stream) const override {
    return device_.is_recording(stream);
  }
  Result<std::unique_ptr<runtime::LoadedKernel>> load(
      const compiler::KernelBinary& binary) override {
    return device_.load(binary);
  }
  Result<void> launch(const runtime::LaunchRequest& request, runtime::Stream stream) override {
    return device_.launch(request, stream);
  }
  Result<device::TensorMap> encode_tensor_map(const compiler::TensorBox& box,
                                              const void* address) const override {
    return device_.encode_tensor_map(box, address);
  }
  Result<void*> allocate(int64_t bytes) override { return device_.allocate(bytes); }
  Result<void> release(void* address) override { return device_.release(address); }
  Result<void> copy_to_device(void* destination, const void* source, int64_t bytes) override {
    return device_.copy_to_device(destination, source, bytes);
  }
  Result<void> copy_to_host(void* destination, const void* source, int64_t bytes) override {
    return device_.copy_to_host(destination, source, bytes);
  }
  Result<void> copy_on_device(void* destination, const void* source, int64_t bytes,
                              runtime::Stream stream) override {
    return device_.copy_on_device(destination, source, bytes, stream);
  }
  Result<void> fill(void* destination, std::byte value, int64_t bytes,
                    runtime::Stream stream) override {
    return device_.fill(destination, value, bytes, stream);
  }
  Result<void> synchronize(runtime::Stream stream) override { return device_.synchronize(stream); }
  Result<void*> record_mark(runtime::Stream stream) override { return device_.record_mark(stream); }
  Result<double> microseconds_between(void* first, void* second) override {
    return device_.microseconds_between(first, second);
  }
  void release_mark(void* mark) override { device_.release_mark(mark); }

 private:
  Device& device_;
};

// Layers that together have every kernel of a backward pass.
struct Kind {
  std::string name;
  TestLayer::Options options;
  int64_t alignment = 16;

  friend void PrintTo(const Kind& kind, std::ostream* stream) { *stream << kind.name; }
};

std::vector<Kind> kinds() {
  using compiler::Recipe;
  using compiler::Recompute;
  return {
      {"fused", {}},
      {"apart",
       {.dispatch = compiler::Dispatch::kFp8,
        .fuse_activation = false,
        .fuse_transpose = false,
        .fuse_activation_transpose = false,
        .recompute = Recompute::kMoeExpert,
        .biases = true}},
      {"permuted_again",
       {.recompute = Recompute::kMoeExpert, .wgrad_dtype = compiler::WgradDtype::kBf16}},
      {"without_gate", {.activation = compiler::make_activation("relu_squared").value()}},
      {"bf16", {.recompute = Recompute::kMoeExpert, .recipe = Recipe::kBf16, .biases = true}, 64},
  };
}

class OtherTokens : public ::testing::TestWithParam<Kind> {
 protected:
  void SetUp() override {
    if (test_device().device == nullptr) GTEST_SKIP() << test_device().reason;
    apart_ = std::make_unique<DeviceApart>(*test_device().device);
    make(apart_.get());
  }
  void make(Device* device) {
    shape_.alignment = GetParam().alignment;
    shape_.has_gate = has_gate(GetParam().options.activation);
    shape_.max_rows = reference::enough_rows(kMostTokens, shape_);
    TestLayer::Options options = GetParam().options;
    options.max_tokens = kMostTokens;
    options.keep_intermediates = false;
    options.has_backward = true;
    options.device = device;
    auto layer = TestLayer::create(shape_, options);
    ASSERT_TRUE(succeeded(layer));
    layer_ = std::move(*layer);
    LayerInputs inputs = inputs_of(1);
    if (options.biases) {
      inputs.b1 = reference::random_activations(shape_.experts, 2 * shape_.intermediate, 31);
      inputs.b2 = reference::random_activations(shape_.experts, shape_.hidden, 32);
    }
    ASSERT_TRUE(succeeded(options.recipe == compiler::Recipe::kBf16 ? layer_->upload_weights(inputs)
                                                                    : layer_->set_weights(inputs)));
  }
  LayerInputs inputs_of(int64_t tokens) const { return random_inputs(shape_, tokens, 3); }

  void forward(int64_t tokens) { ASSERT_TRUE(succeeded(layer_->run(inputs_of(tokens)))); }
  // Sets the T of the next backward call, whose blocks are no larger than that needs.
  void set_tokens(int64_t tokens) {
    ASSERT_TRUE(succeeded(layer_->set_inputs(inputs_of(tokens))));
    ASSERT_TRUE(succeeded(
        layer_->set_gradient(reference::random_activations(kMostTokens, shape_.hidden, 77))));
    saved_ = bytes_of(layer_->memory().saved, layer_->memory().saved_bytes);
    fill();
  }
  // Fills all that a backward call may write.
  void fill() {
    Device& device = *test_device().device;
    const runtime::CallMemory memory = layer_->memory();
    ASSERT_TRUE(
        succeeded(device.fill(memory.workspace, kUntouched, memory.workspace_bytes, nullptr)));
    for (const runtime::TensorRef& tensor : layer_->tensors()) {
      const std::byte value = tensor.name == "status" ? std::byte{0} : kUntouched;
      const int64_t bytes = output_bytes(tensor.name);
      ASSERT_TRUE(succeeded(device.fill(tensor.data, value, bytes, nullptr))) << tensor.name;
    }
  }
  // Returns the bytes of a tensor that backward calls write, 0 for all others.
  int64_t output_bytes(std::string_view name) const {
    const compiler::TensorPlan& tensor = *find_tensor(layer_->plan(), name);
    const bool is_written =
        tensor.role == TensorRole::kOutput && call_takes(layer_->plan(), "backward", tensor.name);
    return is_written ? tensor.bytes : 0;
  }

  std::vector<std::byte> bytes_of(const void* address, int64_t bytes) const {
    std::vector<std::byte> result(static_cast<size_t>(bytes));
    EXPECT_TRUE(succeeded(test_device().device->copy_to_host(result.data(), address, bytes)));
    return result;
  }
  void expect_nothing_written() {
    const auto is_untouched = [](const std::vector<std::byte>& bytes) {
      return std::ranges::all_of(bytes, [](std::byte byte) { return byte == kUntouched; });
    };
    const runtime::CallMemory memory = layer_->memory();
    EXPECT_TRUE(is_untouched(bytes_of(memory.workspace, memory.workspace_bytes)));
    EXPECT_EQ(bytes_of(memory.saved, memory.saved_bytes), saved_);
    for (const runtime::TensorRef& tensor : layer_->tensors()) {
      if (tensor.name == "status") continue;
      EXPECT_TRUE(is_untouched(bytes_of(tensor.data, output_bytes(tensor.name)))) << tensor.name;
    }
    std::vector<std::string> damage = layer_->damage();
    // Rows behind T hold what fill() and the call before, which had another T, have left there.
    std::erase_if(damage, [](const std::string& name) { return name.ends_with(" beyond T"); });
    EXPECT_EQ(damage, std::vector<std::string>{});
  }
  uint32_t status() { return layer_->read<uint32_t>("status").front(); }
  void synchronize() { ASSERT_TRUE(succeeded(test_device().device->synchronize(nullptr))); }

  LayerShape shape_{.experts = 4, .top_k = 3, .hidden = 144, .intermediate = 128};
  std::unique_ptr<DeviceApart> apart_;
  std::unique_ptr<TestLayer> layer_;
  std::vector<std::byte> saved_;
};

TEST_P(OtherTokens, EndEveryKernelOfTheBackwardPassBeforeItWrites) {
  forward(20);
  const auto& kernels = layer_->plan().kernels;
  for (const int64_t tokens : {19, 60}) {
    set_tokens(tokens);
    for (size_t i = 0; i < kernels.size(); ++i) {
      if (kernels[i].phase != "backward") continue;
      SCOPED_TRACE(kernels[i].operation + " with " + std::to_string(tokens) + " tokens");
      fill();
      ASSERT_TRUE(
          succeeded(layer_->layer().launch(i, layer_->tensors(), layer_->memory(), nullptr)));
      synchronize();
      EXPECT_EQ(status(), kOtherTokens);
      expect_nothing_written();
    }
  }
}

TEST_P(OtherTokens, AreToldByTheStatusOfTheCall) {
  for (const auto& [first, second] : {std::pair{20, 60}, {20, 1}, {0, 20}, {20, 0}}) {
    SCOPED_TRACE(std::to_string(first) + " and " + std::to_string(second));
    forward(first);
    set_tokens(second);
    ASSERT_TRUE(succeeded(layer_->backward(GradientMode::kOverwrite)));
    synchronize();
    EXPECT_EQ(status(), kOtherTokens);
    expect_nothing_written();
  }
}

TEST_P(OtherTokens, AreNotThoseOfTheForwardCall) {
  for (const int64_t tokens : {0, 20}) {
    forward(tokens);
    set_tokens(tokens);
    ASSERT_TRUE(succeeded(layer_->backward(GradientMode::kOverwrite)));
    synchronize();
    EXPECT_EQ(status(), 0u);
    EXPECT_EQ(bytes_of(layer_->memory().saved, layer_->memory().saved_bytes), saved_);
    const auto dw2 = layer_->read<std::byte>("dw2");
    EXPECT_FALSE(std::ranges::any_of(dw2, [](std::byte byte) { return byte == kUntouched; }) &&
                 tokens == 0);  // zeros
  }
}

// The kernels have nobody to tell then, and end all the same.
TEST_P(OtherTokens, AreFoundOutWithoutAStatusToo) {
  forward(20);
  set_tokens(60);
  std::vector<runtime::TensorRef> tensors = layer_->tensors();
  std::erase_if(tensors, [](const runtime::TensorRef& one) { return one.name == "status"; });
  ASSERT_TRUE(succeeded(layer_->layer().call("backward", tensors, layer_->memory(), nullptr)));
  synchronize();
  EXPECT_EQ(status(), 0u);
  expect_nothing_written();
}

TEST_P(OtherTokens, AreRefusedWhereTheHostReadsTheSavedBlock) {
  if (!test_device().device->is_host_memory()) GTEST_SKIP() << "the host reads no device memory";
  make(test_device().device);
  forward(20);
  set_tokens(60);
  const auto refused = layer_->backward(GradientMode::kOverwrite);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kTensorMismatch);
  EXPECT_EQ(refused.error().message,
            "the backward call has 60 tokens, wanted 20 as the forward call that filled the saved "
            "block");
  EXPECT_EQ(status(), 0u);
  expect_nothing_written();
  set_tokens(20);
  EXPECT_TRUE(succeeded(layer_->backward(GradientMode::kOverwrite)));
}

TEST_P(OtherTokens, AreNoNumberInABlockThatNoForwardCallFilled) {
  if (!test_device().device->is_host_memory()) GTEST_SKIP() << "the host reads no device memory";
  make(test_device().device);
  forward(20);
  set_tokens(20);
  const runtime::CallMemory memory = layer_->memory();
  ASSERT_TRUE(succeeded(
      test_device().device->fill(memory.saved, std::byte{0xFF}, memory.saved_bytes, nullptr)));
  const auto refused = layer_->backward(GradientMode::kOverwrite);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message,
            "the saved block has -1 where a forward call leaves its number of tokens, wanted 20 as "
            "this backward call has");
}

INSTANTIATE_TEST_SUITE_P(Layers, OtherTokens, ::testing::ValuesIn(kinds()),
                         [](const auto& kind) { return kind.param.name; });

}  // namespace
}  // namespace moejit::testing
