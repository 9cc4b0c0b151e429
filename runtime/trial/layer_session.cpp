// SPDX-License-Identifier: Apache-2.0
#include "runtime/trial/layer_session.h"

#include "runtime/trial/layer_inputs.h"
#include "runtime/trial/layer_states.h"

#include <algorithm>
#include <fmt/core.h>
#include <optional>

namespace moejit::trial {

using runtime::element_count;
using runtime::HostTensor;
using runtime::TensorMap;

using compiler::LayerPlan;
using compiler::Phase;
using compiler::TensorPlan;
using compiler::TensorRole;
using runtime::DeviceMemory;
using runtime::TensorRef;

std::vector<int64_t> actual_shape(const TensorPlan& tensor, const compiler::CallDims& dims) {
  std::vector<int64_t> shape;
  for (const compiler::Dim& dim : tensor.shape) shape.push_back(size_in_call(dim, dims));
  return shape;
}

Result<std::unique_ptr<LayerSession>> LayerSession::create(const LayerPlan& plan,
                                                           runtime::Engine& engine,
                                                           runtime::Device& device,
                                                           const TensorMap& inputs) {
  std::unique_ptr<LayerSession> session(new LayerSession(device));
  MOEJIT_TRY_ASSIGN(session->layer_, runtime::PreparedLayer::prepare(plan, engine, device));
  session->tokens_ = token_count(inputs);
  MOEJIT_TRY_ASSIGN(const compiler::MemorySizes sizes, session->layer_->sizes(session->tokens_));
  session->came_quantized_ = has_quantized_weights(inputs);
  for (const TensorPlan& tensor : plan.tensors) {
    if (!compiler::is_callers(tensor.role)) continue;
    // If weights came quantized, no kernel reads the bf16 ones; biases are still read.
    if (tensor.role == TensorRole::kWeight && session->came_quantized_ &&
        !call_takes(plan, "forward", tensor.name))
      continue;
    if (tensor.is_optional) continue;
    const auto given = inputs.find(tensor.name);
    std::optional<HostTensor> first;
    if (given == inputs.end() && tensor.role == TensorRole::kState) first = first_state(tensor);
    const HostTensor* const content = given != inputs.end() ? &given->second
                                      : first               ? &*first
                                                            : nullptr;
    MOEJIT_TRY(session->tensors_.add(tensor.name, tensor.dtype,
                                     actual_shape(tensor, {.tokens = session->tokens_}), content));
    if (begins_as_zeros(tensor))
      MOEJIT_TRY(device.fill(const_cast<void*>(session->tensors_.ref(tensor.name).data),
                             std::byte{0}, tensor.bytes, nullptr));
  }
  MOEJIT_TRY_ASSIGN(session->workspace_, DeviceMemory::allocate(device, sizes.workspace_bytes));
  MOEJIT_TRY_ASSIGN(session->saved_, DeviceMemory::allocate(device, sizes.saved_bytes));
  MOEJIT_TRY_ASSIGN(session->deferred_, DeviceMemory::allocate(device, sizes.deferred_bytes));
  session->memory_ = {.workspace = session->workspace_.address(),
                      .workspace_bytes = sizes.workspace_bytes,
                      .saved = session->saved_.address(),
                      .saved_bytes = sizes.saved_bytes,
                      .deferred = session->deferred_.address(),
                      .deferred_bytes = sizes.deferred_bytes};
  for (const Phase phase : {Phase::kWeights, Phase::kForward, Phase::kBackward,
                            Phase::kForwardScales, Phase::kBackwardScales})
    session->refs_[static_cast<size_t>(phase)] = session->refs_of(phase);
  return session;
}

std::vector<TensorRef> LayerSession::refs_of(Phase phase) const {
  std::vector<TensorRef> refs;
  for (const TensorPlan& tensor : plan().tensors)
    if (tensors_.has(tensor.name) &&
        call_takes(plan(), compiler::call_of_phase(phase), tensor.name))
      refs.push_back(tensors_.ref(tensor.name));
  return refs;
}

Result<void> LayerSession::update_weights(runtime::LaunchObserver* observer) {
  if (came_quantized_) return {};
  return layer_->update_weights(refs_[static_cast<size_t>(Phase::kWeights)], nullptr, observer);
}

Result<void> LayerSession::forward(runtime::LaunchObserver* observer) {
  MOEJIT_TRY(clear_status());
  return layer_->forward(refs_[static_cast<size_t>(Phase::kForward)], memory_, nullptr, observer);
}

Result<void> LayerSession::backward(compiler::GradientMode mode,
                                    runtime::LaunchObserver* observer) {
  return layer_->backward(refs_[static_cast<size_t>(Phase::kBackward)], mode, memory_, nullptr,
                          observer);
}

Result<void> LayerSession::update_scales(compiler::Pass pass, runtime::LaunchObserver* observer) {
  const Phase phase =
      pass == compiler::Pass::kBackward ? Phase::kBackwardScales : Phase::kForwardScales;
  return layer_->update_scales(pass, refs_[static_cast<size_t>(phase)], nullptr, observer);
}

Result<void> LayerSession::clear_status() {
  void* const status = tensors_.address_of("status");
  if (status == nullptr) return {};
  return device_.fill(status, std::byte{0}, sizeof(uint32_t), nullptr);
}

measure::LayerCall LayerSession::call() {
  return {*layer_, device_, memory_, {refs_[0], refs_[1], refs_[2], refs_[3], refs_[4]}};
}

Result<void*> LayerSession::address_of(const TensorPlan& tensor) const {
  if (!compiler::is_callers(tensor.role)) {
    const auto in_plan = std::ranges::find(plan().tensors, tensor.name, &TensorPlan::name);
    const auto slot = static_cast<size_t>(in_plan - plan().tensors.begin());
    const DeviceMemory& block = tensor.role == TensorRole::kSaved      ? saved_
                                : tensor.role == TensorRole::kDeferred ? deferred_
                                                                       : workspace_;
    return static_cast<std::byte*>(block.address()) + layer_->layout().at(tokens_).offset[slot];
  }
  if (tensors_.has(tensor.name)) return tensors_.address_of(tensor.name);
  return fail(Stage::kLaunch, ErrorCode::kInternal,
              fmt::format("tensor \"{}\" is not on the device", tensor.name));
}

Result<runtime::MemoryRegion> LayerSession::memory_of(const TensorPlan& tensor) const {
  MOEJIT_TRY_ASSIGN(void* const address, address_of(tensor));
  if (!compiler::is_callers(tensor.role)) {
    const auto in_plan = std::ranges::find(plan().tensors, tensor.name, &TensorPlan::name);
    const auto slot = static_cast<size_t>(in_plan - plan().tensors.begin());
    return runtime::MemoryRegion{tensor.name, address, layer_->layout().at(tokens_).bytes[slot],
                                 true};
  }
  int64_t bytes = size_bytes(tensor.dtype);
  for (const int64_t size : tensors_.ref(tensor.name).shape) bytes *= size;
  return runtime::MemoryRegion{tensor.name, address, bytes, true};
}

Result<void> LayerSession::copy_out(const TensorPlan& tensor, int64_t offset_bytes,
                                    void* destination, int64_t bytes) {
  if (bytes == 0) return {};
  MOEJIT_TRY(device_.synchronize(nullptr));
  MOEJIT_TRY_ASSIGN(void* const address, address_of(tensor));
  return device_.copy_to_host(destination, static_cast<std::byte*>(address) + offset_bytes, bytes);
}

Result<int64_t> LayerSession::permuted_rows() {
  const TensorPlan* offs = compiler::find_tensor(plan(), "offs");
  if (offs == nullptr) return 0;
  int32_t rows = 0;
  const int64_t last = offs->shape.front().value - 1;
  MOEJIT_TRY(copy_out(*offs, last * int64_t{sizeof(rows)}, &rows, sizeof(rows)));
  if (rows >= 0 && rows <= plan().layer.max_permuted_rows) return rows;
  return fail(Stage::kLaunch, ErrorCode::kInternal,
              fmt::format("tensor \"offs\" ends with {}, wanted 0 to {}", rows,
                          plan().layer.max_permuted_rows));
}

Result<uint32_t> LayerSession::status() {
  const TensorPlan* tensor = compiler::find_tensor(plan(), "status");
  uint32_t word = 0;
  if (tensor != nullptr) MOEJIT_TRY(copy_out(*tensor, 0, &word, sizeof(word)));
  return word;
}

Result<HostTensor> LayerSession::read(const TensorPlan& tensor) {
  compiler::CallDims dims = layer_->layout().at(tokens_).dims;
  if (call_dim(tensor) == compiler::CallDim::kRows) {
    MOEJIT_TRY_ASSIGN(dims.rows, permuted_rows());
  }
  HostTensor host{tensor.dtype, actual_shape(tensor, dims), {}};
  host.bytes.resize(
      static_cast<size_t>(element_count(host.shape) * compiler::size_bytes(tensor.dtype)));
  MOEJIT_TRY(copy_out(tensor, 0, host.bytes.data(), static_cast<int64_t>(host.bytes.size())));
  return host;
}

}  // namespace moejit::trial
