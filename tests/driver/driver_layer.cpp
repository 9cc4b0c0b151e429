// SPDX-License-Identifier: Apache-2.0
#include "tests/driver/driver_layer.h"

#include "compiler/launch.h"

#include <cstring>

namespace moejit::testing {

using compiler::Plan;
using compiler::TensorPlan;
using compiler::TensorRole;

namespace {

constexpr int32_t kTokens = 64;

}  // namespace

Plan DriverLayer::plan(const Options& options) {
  compiler::Layer layer{.name = "driver",
                        .experts = 4,
                        .local_experts = 4,
                        .top_k = 2,
                        .hidden = options.hidden,
                        .intermediate = 128,
                        .splits_alignment = 128,
                        .max_tokens = kTokens,
                        .max_permuted_rows = 128 * 5,
                        .passes = {compiler::Pass::kForward, compiler::Pass::kBackward}};
  if (!options.has_backward) layer.passes = {compiler::Pass::kForward};
  return plan_layer(layer, {}).value();
}

void DriverLayer::describe_kernels(const compiler::Plan& plan, FakeNvrtcControl& nvrtc,
                                   int64_t off) {
  for (const compiler::KernelPlan& kernel : plan.kernels) {
    const std::string entry = emit_kernel(kernel, plan.target).value().entry;
    // Its place, or the first that is free.
    FakeNvrtcControl::Params* params = nvrtc.params.data();
    while (params->bytes != 0 && entry != params->entry.data()) ++params;
    std::memcpy(params->entry.data(), entry.c_str(), entry.size() + 1);
    params->bytes = static_cast<int64_t>(compiler::param_record(kernel.spec).bytes) + off;
  }
}

Result<std::unique_ptr<DriverLayer>> DriverLayer::create(runtime::Engine& engine,
                                                         runtime::Device& device,
                                                         FakeNvrtcControl& nvrtc,
                                                         const Options& options) {
  std::unique_ptr<DriverLayer> layer(new DriverLayer(device));
  layer->plan_ = plan(options);
  describe_kernels(layer->plan_, nvrtc, options.param_bytes_off);
  MOEJIT_TRY_ASSIGN(layer->prepared_, runtime::PreparedPlan::prepare(layer->plan_, engine, device));
  layer->kernels_ = layer->plan_.kernels.size();
  MOEJIT_TRY(layer->allocate());
  return layer;
}

Result<void> DriverLayer::allocate() {
  const auto take = [&](int64_t bytes) -> Result<void*> {
    MOEJIT_TRY_ASSIGN(void* const address, device_.allocate(bytes));
    allocated_.push_back(address);
    return address;
  };
  for (const TensorPlan& tensor : plan_.tensors) {
    if (!is_callers(tensor.role)) continue;
    int64_t bytes = size_bytes(tensor.dtype);
    for (const compiler::Dim& dim : tensor.shape) {
      shapes_[tensor.name].push_back(dim.value);
      bytes *= dim.value;
    }
    MOEJIT_TRY_ASSIGN(addresses_[tensor.name], take(bytes));
  }
  memory_.workspace_bytes = plan_.workspace_bytes;
  memory_.saved_bytes = plan_.saved_bytes;
  MOEJIT_TRY_ASSIGN(memory_.workspace, take(plan_.workspace_bytes));
  MOEJIT_TRY_ASSIGN(memory_.saved, take(plan_.saved_bytes));
  return {};
}

DriverLayer::~DriverLayer() {
  for (void* const address : allocated_) device_.release(address);
}

std::vector<runtime::TensorRef> DriverLayer::tensors() const {
  std::vector<runtime::TensorRef> refs;
  for (const TensorPlan& tensor : plan_.tensors)
    if (const auto found = addresses_.find(tensor.name); found != addresses_.end())
      refs.push_back({.name = tensor.name,
                      .dtype = tensor.dtype,
                      .shape = shapes_.at(tensor.name),
                      .data = found->second});
  return refs;
}

Result<void> DriverLayer::call(std::string_view name, runtime::Stream stream) {
  return prepared_->call(name, tensors(), memory_, stream);
}
Result<void> DriverLayer::update_weights(runtime::Stream stream) {
  return call("update_weights", stream);
}
Result<void> DriverLayer::forward(runtime::Stream stream) { return call("forward", stream); }
Result<void> DriverLayer::run_all(runtime::Stream stream) {
  MOEJIT_TRY(update_weights(stream));
  MOEJIT_TRY(forward(stream));
  MOEJIT_TRY(call("backward", stream));
  return call("backward+add", stream);
}

int64_t DriverLayer::launches() const {
  int64_t count = 0;
  for (const std::string_view name : {"update_weights", "forward", "backward", "backward+add"})
    for (const compiler::CallStep& step : plan_.calls[find_call(plan_, name).value()].steps) {
      const compiler::KernelPlan& kernel = plan_.kernels[step.index];
      count += compiler::busy_ctas(kernel.spec, kernel.bounds, kTokens) == 0 ? 0 : 1;
    }
  return count;
}

}  // namespace moejit::testing
