// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/test_layer.h"

#include "runtime/reference/layouts.h"
#include "runtime/reference/number_formats.h"
#include "runtime/trial/devices.h"
#include "runtime/trial/layer_inputs.h"
#include "runtime/trial/routing_tensors.h"
#include "tests/support/kernels_ahead.h"
#include "tests/support/layer_inputs.h"
#include "tests/support/test_engine.h"
#include "tests/tested_target.h"

#include <algorithm>
#include <array>

namespace moejit::testing {
namespace {

using compiler::TensorPlan;
using compiler::TensorRole;
using reference::LayerInputs;
using reference::LayerShape;

constexpr std::byte kCanary{0xA5};
constexpr std::byte kPoison{0xFF};

TestDevice open_test_device() {
  auto devices = trial::Devices::open_one(tested_target_name(), 0, "");
  auto engine = make_test_engine();
  if (!devices) return {.reason = to_string(devices.error())};
  if (!engine) return {.reason = to_string(engine.error())};
  return {.device = &devices->release()->device(0), .engine = engine->release()};
}

std::vector<compiler::Pass> passes_of(const TestLayer::Options& options) {
  if (options.has_backward) return {compiler::Pass::kForward, compiler::Pass::kBackward};
  return {compiler::Pass::kForward};
}

compiler::Layer layer_of(const LayerShape& shape, const TestLayer::Options& options) {
  return {.name = "test",
          .experts = static_cast<int32_t>(shape.experts),
          .local_experts = static_cast<int32_t>(shape.experts),
          .top_k = static_cast<int32_t>(shape.top_k),
          .hidden = static_cast<int32_t>(shape.hidden),
          .intermediate = static_cast<int32_t>(shape.intermediate),
          .activation = options.activation,
          .gate_up_layout = options.gate_up_layout,
          .biases = options.biases,
          .input = options.input,
          .tokens_per_expert_dtype = options.topk_ids_dtype,
          .topk_ids_dtype = options.topk_ids_dtype,
          .topk_probs_dtype = options.topk_probs_dtype,
          .foreign_experts = shape.ignores_foreign ? compiler::ForeignExperts::kIgnore
                                                   : compiler::ForeignExperts::kReport,
          .recipe = options.recipe,
          .scale_sharing_k = static_cast<int32_t>(shape.sharing),
          .power_of_2_scales = options.power_of_2_scales,
          .margin = options.margin,
          .amax_history_len = options.amax_history_len,
          .amax_compute_algo = options.amax_compute_algo,
          .splits_alignment = static_cast<int32_t>(shape.alignment),
          .max_tokens = options.max_tokens,
          .max_permuted_rows = shape.max_rows,
          .dispatch = options.dispatch,
          .passes = passes_of(options),
          .gradients = options.gradients,
          .backward_halves = options.backward_halves,
          .backward_linears = options.backward_linears,
          .backward_quantizes_weights = options.backward_quantizes_weights,
          .weight_checks = options.weight_checks,
          .recompute = options.recompute,
          .wgrad_dtype = options.wgrad_dtype,
          .fuse_activation = options.fuse_activation,
          .fuse_transpose = options.fuse_transpose,
          .fuse_activation_transpose = options.fuse_activation_transpose};
}

}  // namespace

TestDevice& test_device() {
  static TestDevice device = open_test_device();  // never closed
  return device;
}

Result<GuardedBuffer> GuardedBuffer::allocate(runtime::Device& device, int64_t bytes) {
  GuardedBuffer buffer;
  MOEJIT_TRY_ASSIGN(void* const base, device.allocate(bytes + 2 * kGuardBytes));
  buffer.device_ = &device;
  buffer.base_ = static_cast<std::byte*>(base);
  buffer.bytes_ = bytes;
  MOEJIT_TRY(device.fill(buffer.base_, kCanary, kGuardBytes, nullptr));
  MOEJIT_TRY(device.fill(buffer.data() + bytes, kCanary, kGuardBytes, nullptr));
  return buffer;
}

GuardedBuffer::~GuardedBuffer() {
  if (device_ != nullptr) device_->release(base_);
}

void GuardedBuffer::swap(GuardedBuffer& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(base_, other.base_);
  std::swap(bytes_, other.bytes_);
}

Result<void> GuardedBuffer::resize(int64_t bytes) {
  bytes_ = bytes;
  return device_->fill(data() + bytes, kCanary, kGuardBytes, nullptr);
}

Result<bool> GuardedBuffer::is_guard_intact() const {
  std::array<std::byte, 2 * kGuardBytes> guards{};
  MOEJIT_TRY(device_->copy_to_host(guards.data(), base_, kGuardBytes));
  MOEJIT_TRY(device_->copy_to_host(guards.data() + kGuardBytes, data() + bytes_, kGuardBytes));
  return std::ranges::all_of(guards, [](std::byte byte) { return byte == kCanary; });
}

Result<std::unique_ptr<TestLayer>> TestLayer::create(const LayerShape& shape,
                                                     const Options& options) {
  runtime::Device& device = options.device != nullptr ? *options.device : *test_device().device;
  MOEJIT_TRY_ASSIGN(const compiler::Plan plan,
                    plan_layer(layer_of(shape, options), device.target(),
                               {.keep_intermediates = options.keep_intermediates}));
  MOEJIT_TRY(note_kernels_of(plan));
  std::unique_ptr<TestLayer> test(new TestLayer);
  MOEJIT_TRY_ASSIGN(test->layer_,
                    runtime::PreparedPlan::prepare(plan, *test_device().engine, device));
  for (const TensorPlan& tensor : test->plan().tensors) {
    if (!is_callers(tensor.role)) continue;
    MOEJIT_TRY_ASSIGN(GuardedBuffer buffer, GuardedBuffer::allocate(device, tensor.bytes));
    if (begins_as_zeros(tensor))
      MOEJIT_TRY(device.fill(buffer.data(), std::byte{0}, tensor.bytes, nullptr));
    Tensor entry{
        .plan = &tensor, .buffer = std::move(buffer), .shape = {}, .is_given = !tensor.is_optional};
    for (const compiler::Dim& dim : tensor.shape) entry.shape.push_back(dim.value);
    test->tensors_.push_back(std::move(entry));
  }
  MOEJIT_TRY_ASSIGN(GuardedBuffer workspace,
                    GuardedBuffer::allocate(device, test->layer_->plan().workspace_bytes));
  test->workspace_ = std::make_unique<GuardedBuffer>(std::move(workspace));
  MOEJIT_TRY_ASSIGN(GuardedBuffer saved,
                    GuardedBuffer::allocate(device, test->layer_->plan().saved_bytes));
  test->saved_ = std::make_unique<GuardedBuffer>(std::move(saved));
  MOEJIT_TRY_ASSIGN(GuardedBuffer deferred,
                    GuardedBuffer::allocate(device, test->layer_->plan().deferred_bytes));
  test->deferred_ = std::make_unique<GuardedBuffer>(std::move(deferred));
  MOEJIT_TRY(test->set_states(trial::random_states(plan, 41)));
  return test;
}

TestLayer::Tensor* TestLayer::find(std::string_view name) {
  for (Tensor& tensor : tensors_)
    if (tensor.plan->name == name) return &tensor;
  return nullptr;
}

Result<void> TestLayer::upload(std::string_view name, const void* data, std::size_t bytes) {
  const Tensor* tensor = find(name);
  if (tensor == nullptr || static_cast<int64_t>(bytes) > tensor->buffer.bytes())
    return fail(Stage::kLaunch, ErrorCode::kTensorMismatch,
                "the test's " + std::string(name) + " does not fit");
  return test_device().device->copy_to_device(tensor->buffer.data(), data,
                                              static_cast<int64_t>(bytes));
}

Result<void> TestLayer::upload_weights(const LayerInputs& inputs) {
  if (has_separate_gate_up(*plan().layer)) {
    const size_t section = inputs.w1.size() / 2 / static_cast<size_t>(plan().layer->local_experts);
    for (const auto& [name, index] : {std::pair("w1_gate", 0), std::pair("w1_up", 1)}) {
      const auto rows = reference::section_of<uint16_t>(inputs.w1, index, section);
      MOEJIT_TRY(upload(name, rows.data(), 2 * rows.size()));
    }
  } else {
    MOEJIT_TRY(upload("w1", inputs.w1.data(), 2 * inputs.w1.size()));
  }
  MOEJIT_TRY(upload("w2", inputs.w2.data(), 2 * inputs.w2.size()));
  if (!plan().layer->biases) return {};
  MOEJIT_TRY(upload("b1", inputs.b1.data(), 2 * inputs.b1.size()));
  return upload("b2", inputs.b2.data(), 2 * inputs.b2.size());
}

Result<void> TestLayer::set_states(const runtime::TensorMap& states) {
  for (const auto& [name, state] : states) {
    MOEJIT_TRY(upload(name, state.bytes.data(), state.bytes.size()));
    states_[name] = state;
  }
  return {};
}

Result<void> TestLayer::update_scales(compiler::Pass pass) {
  const bool is_backward = pass == compiler::Pass::kBackward;
  MOEJIT_TRY(layer_->call(is_backward ? "update_backward_scales" : "update_forward_scales",
                          tensors(), {}, nullptr));
  return test_device().device->synchronize(nullptr);
}

Result<void> TestLayer::set_optional(std::string_view name, const void* data, std::size_t bytes) {
  MOEJIT_TRY(upload(name, data, bytes));
  find(name)->is_given = true;
  return {};
}

Result<void> TestLayer::set_weights(const LayerInputs& inputs) {
  MOEJIT_TRY(upload_weights(inputs));
  MOEJIT_TRY(layer_->call("update_weights", tensors(), {}, nullptr));
  return test_device().device->synchronize(nullptr);
}

runtime::TensorMap routing_tensors(const compiler::Plan& plan, const LayerInputs& inputs) {
  const compiler::Layer& layer = *plan.layer;
  std::vector<int64_t> ids(inputs.topk_ids.begin(), inputs.topk_ids.end());
  if (!is_grouped(layer))
    return {
        {"topk_ids", trial::make_topk_ids(find_tensor(plan, "topk_ids")->dtype,
                                          {inputs.tokens, layer.top_k}, ids)},
        {"topk_probs", trial::make_topk_probs(find_tensor(plan, "topk_probs")->dtype,
                                              {inputs.tokens, layer.top_k}, inputs.topk_probs)}};
  std::vector<int64_t> sizes;
  for (int64_t expert = 0; expert < layer.local_experts; ++expert)
    sizes.push_back(std::ranges::count(ids, expert));
  return {
      {"tokens_per_expert", trial::make_topk_ids(find_tensor(plan, "tokens_per_expert")->dtype,
                                                 {layer.local_experts}, sizes)},
      {"probs", runtime::make_tensor(compiler::DType::kF32, {inputs.tokens}, inputs.topk_probs)}};
}

Result<void> TestLayer::set_inputs(const LayerInputs& inputs) {
  MOEJIT_TRY(set_tokens(inputs.tokens));
  MOEJIT_TRY(upload("x", inputs.x.data(), 2 * inputs.x.size()));
  for (const auto& [name, tensor] : routing_tensors(plan(), inputs))
    MOEJIT_TRY(upload(name, tensor.bytes.data(), tensor.bytes.size()));
  return {};
}

Result<void> TestLayer::set_gradient(const std::vector<uint16_t>& dy) {
  return upload("dy", dy.data(), 2 * dy.size());
}

Result<void> TestLayer::set_weight_gradients(float value) {
  for (const std::string_view name : {"dw1", "dw1_gate", "dw1_up", "dw2", "db1", "db2"}) {
    if (find(name) == nullptr) continue;
    if (find(name)->plan->dtype == compiler::DType::kBF16) {
      const std::vector<uint16_t> values(static_cast<std::size_t>(find(name)->buffer.bytes()) / 2,
                                         reference::bf16_from_float(value));
      MOEJIT_TRY(upload(name, values.data(), 2 * values.size()));
      continue;
    }
    const std::vector<float> values(static_cast<std::size_t>(find(name)->buffer.bytes()) / 4,
                                    value);
    MOEJIT_TRY(upload(name, values.data(), 4 * values.size()));
  }
  return {};
}

// Blocks end where such a call's end.
Result<void> TestLayer::set_tokens(int64_t tokens) {
  MOEJIT_TRY_ASSIGN(const compiler::MemorySizes sizes, layer_->layout().sizes(tokens));
  MOEJIT_TRY(workspace_->resize(sizes.workspace_bytes));
  MOEJIT_TRY(saved_->resize(sizes.saved_bytes));
  tokens_ = tokens;
  for (Tensor& tensor : tensors_)
    for (std::size_t i = 0; i < tensor.shape.size(); ++i)
      if (tensor.plan->shape[i].symbol == "T") tensor.shape[i] = tokens;
  return {};
}

Result<void> TestLayer::poison(runtime::Stream stream) {
  runtime::Device& device = *test_device().device;
  MOEJIT_TRY(device.fill(find("status")->buffer.data(), std::byte{0}, 4, stream));
  if (test_device().is_simulator()) return {};
  for (const std::string_view name : {"y", "dx", "dprobs"}) {
    const Tensor* const output = find(name);
    if (output == nullptr) continue;
    MOEJIT_TRY(device.fill(output->buffer.data(), kPoison, output->buffer.bytes(), stream));
  }
  return device.fill(workspace_->data(), kPoison, workspace_->bytes(), stream);
}

Result<void> TestLayer::forward(runtime::Stream stream) {
  return layer_->call("forward", tensors(), memory(), stream);
}

Result<void> TestLayer::backward(GradientMode mode, runtime::Stream stream) {
  return layer_->call(mode == GradientMode::kAdd ? "backward+add" : "backward", tensors(), memory(),
                      stream);
}

Result<void> TestLayer::backward_data(runtime::Stream stream) {
  return layer_->call("backward_data", tensors(), memory(), stream);
}

Result<void> TestLayer::call(std::string_view name) {
  return layer_->call(name, tensors(), memory(), nullptr);
}

Result<void> TestLayer::backward_weights(GradientMode mode, runtime::Stream stream) {
  return layer_->call(mode == GradientMode::kAdd ? "backward_weights+add" : "backward_weights",
                      tensors(), memory(), stream);
}

Result<void> TestLayer::run(const LayerInputs& inputs) {
  MOEJIT_TRY(set_inputs(inputs));
  MOEJIT_TRY(poison());
  MOEJIT_TRY(forward());
  return test_device().device->synchronize(nullptr);
}

std::vector<runtime::TensorRef> TestLayer::tensors() const {
  std::vector<runtime::TensorRef> result;
  for (const Tensor& tensor : tensors_)
    if (tensor.is_given)
      result.push_back({.name = tensor.plan->name,
                        .dtype = tensor.plan->dtype,
                        .shape = tensor.shape,
                        .data = tensor.buffer.data()});
  return result;
}

std::vector<std::byte> TestLayer::read_bytes(std::string_view name, int64_t bytes) {
  const TensorPlan* tensor = find_tensor(plan(), name);
  if (tensor == nullptr) return {};
  const compiler::CallLayout call = layer_->layout().at(tokens_);
  if (bytes < 0) {
    bytes = size_bytes(tensor->dtype);
    for (const compiler::Dim& dim : tensor->shape) bytes *= size_in_call(dim, call.dims);
  }
  const int64_t offset = call.offset[static_cast<std::size_t>(tensor - plan().tensors.data())];
  const std::byte* address = tensor->role == TensorRole::kWorkspace  ? workspace_->data() + offset
                             : tensor->role == TensorRole::kSaved    ? saved_->data() + offset
                             : tensor->role == TensorRole::kDeferred ? deferred_->data() + offset
                                                                     : find(name)->buffer.data();
  std::vector<std::byte> result(static_cast<std::size_t>(bytes));
  if (!test_device().device->copy_to_host(result.data(), address, bytes)) return {};
  return result;
}

runtime::TensorMap TestLayer::results() {
  compiler::CallDims dims = layer_->layout().at(tokens_).dims;
  dims.rows = read<int32_t>("offs").back();
  runtime::TensorMap map;
  for (const TensorPlan& tensor : plan().tensors) {
    if (tensor.role == TensorRole::kInput || tensor.role == TensorRole::kWeight) continue;
    std::vector<int64_t> shape;
    for (const compiler::Dim& dim : tensor.shape) shape.push_back(size_in_call(dim, dims));
    const int64_t bytes = runtime::element_count(shape) * size_bytes(tensor.dtype);
    map[tensor.name] = {tensor.dtype, shape, read_bytes(tensor.name, bytes)};
  }
  return map;
}

std::vector<std::string> TestLayer::damage() {
  std::vector<std::string> names;
  for (const Tensor& tensor : tensors_)
    if (!tensor.buffer.is_guard_intact().value_or(false)) names.push_back(tensor.plan->name);
  if (!workspace_->is_guard_intact().value_or(false)) names.emplace_back("workspace");
  if (!saved_->is_guard_intact().value_or(false)) names.emplace_back("saved");
  if (!deferred_->is_guard_intact().value_or(false)) names.emplace_back("deferred");
  if (test_device().is_simulator()) return names;
  for (const std::string name : {"y", "dx"}) {
    const Tensor* const output = find(name);
    if (output == nullptr) continue;
    const auto rows = read_bytes(name, output->buffer.bytes());
    const auto used = 2 * tokens_ * output->plan->shape[1].value;
    if (!std::ranges::all_of(rows.begin() + used, rows.end(),
                             [](std::byte b) { return b == kPoison; }))
      names.push_back(name + " beyond T");
  }
  return names;
}

}  // namespace moejit::testing
