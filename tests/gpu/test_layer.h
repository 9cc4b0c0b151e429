// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/compiler.h"
#include "runtime/device.h"
#include "runtime/engine.h"
#include "runtime/host_tensor.h"
#include "runtime/prepared_plan.h"
#include "runtime/reference/route.h"
#include "tests/support/layer_inputs.h"

#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace moejit::testing {

// The device that this executable tests (tested_target()), opened once, or why
// there is none.
struct TestDevice {
  runtime::Device* device = nullptr;
  runtime::Engine* engine = nullptr;  // memory only: kernels are shared by all tests
  std::string reason;

  bool is_simulator() const { return device->target().kind == compiler::TargetKind::kSim; }
};
TestDevice& test_device();

// Device memory between two guards of canary bytes.
class GuardedBuffer {
 public:
  static Result<GuardedBuffer> allocate(runtime::Device& device, int64_t bytes);
  GuardedBuffer(GuardedBuffer&& other) noexcept { swap(other); }
  GuardedBuffer& operator=(GuardedBuffer&& other) noexcept {
    swap(other);
    return *this;
  }
  ~GuardedBuffer();

  std::byte* data() const { return base_ + kGuardBytes; }
  int64_t bytes() const { return bytes_; }
  // Ends the buffer behind so many bytes, no more than were allocated, with a guard there.
  Result<void> resize(int64_t bytes);
  Result<bool> is_guard_intact() const;

 private:
  GuardedBuffer() = default;
  void swap(GuardedBuffer& other) noexcept;

  static constexpr int64_t kGuardBytes = 256;
  runtime::Device* device_ = nullptr;
  std::byte* base_ = nullptr;
  int64_t bytes_ = 0;
};

// What a backward call does with the gradients of weights and biases.
enum class GradientMode { kOverwrite, kAdd };

// Returns topk_ids and topk_probs in the plan's types. For grouped input, where K is 1 and ids
// ascend with -1 at the end, returns tokens_per_expert and probs.
runtime::TensorMap routing_tensors(const compiler::Plan& plan,
                                   const reference::LayerInputs& inputs);

// A layer on the test's device with all its tensors in guarded memory.
class TestLayer {
 public:
  struct Options {
    int64_t max_tokens = 0;
    compiler::Dispatch dispatch = compiler::Dispatch::kNone;
    bool keep_intermediates = true;
    bool fuse_activation = true;
    bool fuse_transpose = true;
    bool fuse_activation_transpose = true;
    bool has_backward = false;
    compiler::Recompute recompute = compiler::Recompute::kNone;
    compiler::WgradDtype wgrad_dtype = compiler::WgradDtype::kF32;
    compiler::Recipe recipe = compiler::Recipe::kFp8Flow;
    compiler::Activation activation = {};
    compiler::GateUpLayout gate_up_layout = compiler::GateUpLayout::kConcat;
    bool biases = false;
    compiler::LayerInput input = compiler::LayerInput::kTokens;
    compiler::IndexDtype topk_ids_dtype = compiler::IndexDtype::kI32;
    compiler::TopkProbsDtype topk_probs_dtype = compiler::TopkProbsDtype::kF32;
    std::vector<compiler::Gradient> gradients = {};  // empty: all
    bool backward_halves = false;
    bool backward_linears = false;
    bool backward_quantizes_weights = false;
    bool weight_checks = false;
    bool power_of_2_scales = false;
    int32_t margin = 0;  // this and the next two of recipes with a history
    int32_t amax_history_len = 1024;
    compiler::AmaxComputeAlgo amax_compute_algo = compiler::AmaxComputeAlgo::kMax;
    runtime::Device* device = nullptr;  // one that stands for the test's device, or null
  };
  static Result<std::unique_ptr<TestLayer>> create(const reference::LayerShape& shape,
                                                   const Options& options);

  Result<void> upload_weights(const reference::LayerInputs& inputs);
  // Uploads w1 and w2 and quantizes them.
  Result<void> set_weights(const reference::LayerInputs& inputs);
  // Uploads states of delayed scaling, F32, by their names; create() has given random ones.
  Result<void> set_states(const runtime::TensorMap& states);
  // Returns the states that were given last.
  const runtime::TensorMap& states() const { return states_; }
  // Finds the scales of the next step, and waits.
  Result<void> update_scales(compiler::Pass pass);
  // Gives calls an optional tensor from now on.
  Result<void> set_optional(std::string_view name, const void* data, std::size_t bytes);
  // Uploads x and routing_tensors(); their T is the T of the next calls.
  Result<void> set_inputs(const reference::LayerInputs& inputs);
  // Uploads dy, bf16 [T, H].
  Result<void> set_gradient(const std::vector<uint16_t>& dy);
  // Fills dw1, dw2, db1 and db2 with a value, as gradients of calls before.
  Result<void> set_weight_gradients(float value);
  // Fills y, dx, dprobs and the workspace with 0xFF bytes, NaN in every format, and clears status.
  // On the simulator the memory stays as it is: it reports reads of what nothing wrote.
  Result<void> poison(runtime::Stream stream = nullptr);
  Result<void> forward(runtime::Stream stream = nullptr);
  Result<void> backward(GradientMode mode, runtime::Stream stream = nullptr);
  Result<void> backward_data(runtime::Stream stream = nullptr);
  // Makes another call of the plan.
  Result<void> call(std::string_view name);
  Result<void> backward_weights(GradientMode mode, runtime::Stream stream = nullptr);
  // All of it: inputs, poison, forward, wait.
  Result<void> run(const reference::LayerInputs& inputs);

  // Elements of a tensor, caller-owned or in the workspace. `elements` < 0: as the plan says with
  // the T of the last call.
  template <typename T>
  std::vector<T> read(std::string_view name, int64_t elements = -1) {
    const std::vector<std::byte> bytes =
        read_bytes(name, elements < 0 ? -1 : elements * static_cast<int64_t>(sizeof(T)));
    std::vector<T> values(bytes.size() / sizeof(T));
    if (!values.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }

  // Every tensor but inputs and weights, with the T and, for P, the rows of the last call.
  runtime::TensorMap results();

  // Names of buffers around which or in which something was written that should not be: guards,
  // and rows of y and dx from T on (not on the simulator, where they are uninitialised).
  std::vector<std::string> damage();

  runtime::PreparedPlan& layer() { return *layer_; }
  const compiler::Plan& plan() const { return layer_->plan(); }
  int64_t tokens() const { return tokens_; }
  std::vector<runtime::TensorRef> tensors() const;  // valid until the next set_inputs()
  void* workspace() const { return workspace_->data(); }
  runtime::CallMemory memory() const {
    return {.workspace = workspace_->data(),
            .workspace_bytes = workspace_->bytes(),
            .saved = saved_->data(),
            .saved_bytes = saved_->bytes(),
            .deferred = deferred_->data(),
            .deferred_bytes = deferred_->bytes()};
  }

 private:
  struct Tensor {
    const compiler::TensorPlan* plan = nullptr;
    GuardedBuffer buffer;
    std::vector<int64_t> shape;
    bool is_given = true;
  };
  TestLayer() = default;
  Result<void> upload(std::string_view name, const void* data, std::size_t bytes);
  Result<void> set_tokens(int64_t tokens);
  Tensor* find(std::string_view name);
  std::vector<std::byte> read_bytes(std::string_view name, int64_t bytes);

  std::unique_ptr<runtime::PreparedPlan> layer_;
  std::vector<Tensor> tensors_;
  std::unique_ptr<GuardedBuffer> workspace_, saved_, deferred_;
  runtime::TensorMap states_;
  int64_t tokens_ = 0;
};

}  // namespace moejit::testing
