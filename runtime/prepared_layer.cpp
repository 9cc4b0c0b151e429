// SPDX-License-Identifier: Apache-2.0
#include "runtime/prepared_layer.h"

#include "runtime/launch/bound_tensors.h"
#include "runtime/launch/kernel_call.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <fmt/core.h>
#include <optional>
#include <thread>

namespace moejit::runtime {
namespace {

using compiler::KernelBinary;
using compiler::Phase;
using compiler::Plan;
using compiler::TensorRole;

using SharedBinary = std::shared_ptr<const KernelBinary>;

Result<SharedBinary> binary_of(const Plan& plan, std::size_t index, Engine& engine) {
  MOEJIT_TRY_ASSIGN(const compiler::KernelSource source,
                    compiler::emit_kernel(plan.kernels[index], plan.target));
  return engine.binary(source);
}

// The machine code of all kernels, made by as many threads as there are cores; of several errors
// the one of the earliest kernel.
Result<std::vector<SharedBinary>> all_binaries(const Plan& plan, Engine& engine) {
  const std::size_t count = plan.kernels.size();
  std::vector<std::optional<Result<SharedBinary>>> results(count);
  std::atomic<std::size_t> next{0};
  const auto work = [&] {
    for (std::size_t i = next++; i < count; i = next++) results[i] = binary_of(plan, i, engine);
  };
  const std::size_t cores = std::max(1U, std::thread::hardware_concurrency());
  std::vector<std::thread> threads;
  for (std::size_t i = 1; i < std::min(cores, count); ++i) threads.emplace_back(work);
  work();
  for (std::thread& thread : threads) thread.join();

  std::vector<SharedBinary> binaries;
  for (auto& result : results) {
    MOEJIT_TRY_ASSIGN(SharedBinary binary, std::move(*result));
    binaries.push_back(std::move(binary));
  }
  return binaries;
}

}  // namespace

struct PreparedLayer::Impl {
  // The tensors of a call of this phase.
  Result<BoundTensors> bind(Phase phase, std::span<const TensorRef> tensors, void* workspace,
                            int64_t workspace_bytes) const;
  Result<void> launch(std::size_t index, const BoundTensors& tensors, Stream stream) const;
  Result<void> run(Phase phase, const BoundTensors& tensors, Stream stream,
                   LaunchObserver* observer);

  Plan plan;
  Device* device = nullptr;
  std::vector<KernelCall> calls;  // one for each of plan.kernels
};

Result<BoundTensors> PreparedLayer::Impl::bind(Phase phase, std::span<const TensorRef> tensors,
                                               void* workspace, int64_t workspace_bytes) const {
  constexpr std::array kWeightRoles = {TensorRole::kWeight, TensorRole::kQuantized};
  constexpr std::array kForwardRoles = {TensorRole::kInput, TensorRole::kQuantized,
                                        TensorRole::kOutput};
  BoundTensors bound;
  if (phase == Phase::kWeights) {
    MOEJIT_TRY(bind_tensors(plan, kWeightRoles, tensors, bound));
    return bound;
  }
  MOEJIT_TRY(bind_tensors(plan, kForwardRoles, tensors, bound));
  MOEJIT_TRY(bind_workspace(plan, workspace, workspace_bytes, bound));
  return bound;
}

Result<void> PreparedLayer::Impl::launch(std::size_t index, const BoundTensors& tensors,
                                         Stream stream) const {
  auto launched = calls[index].launch(*device, tensors, stream);
  if (!launched)
    launched.error().message =
        fmt::format("kernel {}: {}", plan.kernels[index].operation, launched.error().message);
  return launched;
}

Result<void> PreparedLayer::Impl::run(Phase phase, const BoundTensors& tensors, Stream stream,
                                      LaunchObserver* observer) {
  for (std::size_t i = 0; i < calls.size(); ++i) {
    if (plan.kernels[i].phase != phase) continue;
    if (observer != nullptr) MOEJIT_TRY(observer->before(i));
    MOEJIT_TRY(launch(i, tensors, stream));
    if (observer != nullptr) MOEJIT_TRY(observer->after(i));
  }
  return {};
}

Result<std::unique_ptr<PreparedLayer>> PreparedLayer::prepare(const Plan& plan, Engine& engine,
                                                              Device& device) {
  if (plan.target != device.target())
    return fail(
        Stage::kLoad, ErrorCode::kUnsupported,
        fmt::format("the layer {} is planned for {}, wanted {} for the device {}", plan.layer.name,
                    to_string(plan.target), to_string(device.target()), device.name()));
  if (plan.tensors.size() > kMostTensors)
    return fail(Stage::kLoad, ErrorCode::kInternal,
                fmt::format("the plan has {} tensors, wanted at most {}", plan.tensors.size(),
                            kMostTensors));
  MOEJIT_TRY_ASSIGN(const std::vector<SharedBinary> binaries, all_binaries(plan, engine));
  auto impl = std::make_unique<Impl>();
  impl->plan = plan;
  impl->device = &device;
  for (std::size_t i = 0; i < binaries.size(); ++i) {
    MOEJIT_TRY_ASSIGN(auto loaded, device.load(*binaries[i]));
    MOEJIT_TRY_ASSIGN(KernelCall call, KernelCall::resolve(impl->plan, i, std::move(loaded)));
    impl->calls.push_back(std::move(call));
  }
  return std::unique_ptr<PreparedLayer>(new PreparedLayer(std::move(impl)));
}

PreparedLayer::PreparedLayer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
PreparedLayer::~PreparedLayer() = default;

const Plan& PreparedLayer::plan() const { return impl_->plan; }

int64_t PreparedLayer::workspace_bytes() const { return impl_->plan.workspace_bytes; }

Result<void> PreparedLayer::update_weights(std::span<const TensorRef> tensors, Stream stream,
                                           LaunchObserver* observer) {
  MOEJIT_TRY_ASSIGN(const BoundTensors bound, impl_->bind(Phase::kWeights, tensors, nullptr, 0));
  return impl_->run(Phase::kWeights, bound, stream, observer);
}

Result<void> PreparedLayer::forward(std::span<const TensorRef> tensors, void* workspace,
                                    int64_t workspace_bytes, Stream stream,
                                    LaunchObserver* observer) {
  MOEJIT_TRY_ASSIGN(const BoundTensors bound,
                    impl_->bind(Phase::kForward, tensors, workspace, workspace_bytes));
  return impl_->run(Phase::kForward, bound, stream, observer);
}

Result<void> PreparedLayer::launch_kernel(std::size_t index, std::span<const TensorRef> tensors,
                                          void* workspace, int64_t workspace_bytes, Stream stream) {
  if (index >= impl_->calls.size())
    return fail(Stage::kLaunch, ErrorCode::kInternal,
                fmt::format("kernel {} of the layer {}: the plan has {}", index,
                            impl_->plan.layer.name, impl_->calls.size()));
  MOEJIT_TRY_ASSIGN(const BoundTensors bound, impl_->bind(impl_->plan.kernels[index].phase, tensors,
                                                          workspace, workspace_bytes));
  return impl_->launch(index, bound, stream);
}

}  // namespace moejit::runtime
