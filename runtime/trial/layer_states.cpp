// SPDX-License-Identifier: Apache-2.0
#include "runtime/reference/random_inputs.h"
#include "runtime/trial/layer_inputs.h"

#include <algorithm>
#include <fmt/core.h>
#include <string_view>

namespace moejit::trial {
namespace {

using runtime::element_count;
using runtime::HostTensor;
using runtime::make_tensor;
using runtime::TensorMap;

constexpr uint64_t kPurpose = 105;  // other tensors of a layer have other numbers

std::vector<int64_t> shape_of(const compiler::TensorPlan& tensor) {
  std::vector<int64_t> shape;
  for (const compiler::Dim& dim : tensor.shape) shape.push_back(dim.value);
  return shape;
}

// Returns magnitudes [rows, columns] between 1 and 4 times a usual one, and zeros in row 0.
std::vector<float> random_history(int64_t rows, int64_t columns, bool is_gradient, uint64_t seed) {
  const reference::RandomStream stream(seed, kPurpose);
  std::vector<float> history(static_cast<size_t>(rows * columns), 0.0F);
  for (int64_t i = columns; i < rows * columns; ++i) {
    const bool is_weight = !is_gradient && i % columns % 3 == 1;
    const float usual = is_weight ? 0.125F : 8.0F;
    const auto bits = static_cast<float>(stream.bits(static_cast<uint64_t>(i)) % 256);
    history[static_cast<size_t>(i)] = usual * (1.0F + 3.0F * bits / 256.0F);
  }
  return history;
}

}  // namespace

HostTensor first_state(const compiler::TensorPlan& tensor) {
  const std::vector<int64_t> shape = shape_of(tensor);
  const std::vector<float> values(static_cast<size_t>(element_count(shape)), tensor.first_value);
  return make_tensor(tensor.dtype, shape, values);
}

HostTensor zeros(const compiler::TensorPlan& tensor) {
  return {tensor.dtype, shape_of(tensor),
          std::vector<std::byte>(static_cast<size_t>(tensor.bytes))};
}

TensorMap first_gradients(const compiler::Plan& plan, std::string_view call) {
  TensorMap gradients;
  const auto found = std::ranges::find(plan.calls, call, &compiler::CallPlan::name);
  if (found == plan.calls.end() || !found->adds) return gradients;
  for (const compiler::CallTensor& taken : found->tensors) {
    const compiler::TensorPlan& tensor = plan.tensors[taken.slot];
    if (tensor.role == compiler::TensorRole::kOutput && tensor.dtype == compiler::DType::kF32 &&
        taken.access == compiler::Access::kReadWrite)
      gradients[tensor.name] = zeros(tensor);
  }
  return gradients;
}

TensorMap random_states(const compiler::Plan& plan, uint64_t seed) {
  TensorMap states;
  const auto add = [&](const compiler::KernelPlan& kernel, float largest, std::string_view linear) {
    const auto tensor_of = [&](std::string_view state) -> const compiler::TensorPlan& {
      const std::string role = fmt::format("{}_{}", linear, state);
      const auto found = std::ranges::find(kernel.arguments, role, &compiler::KernelArgument::role);
      return *compiler::find_tensor(plan, found->tensor);
    };
    const compiler::TensorPlan &history = tensor_of("amax_history"), &scale = tensor_of("scale");
    const std::vector<int64_t> shape = shape_of(history);
    const std::vector<float> magnitudes = random_history(
        shape[0], shape[1], kernel.phase == "backward_scales", seed + std::size(history.name));
    std::vector<float> scales;
    for (int64_t column = 0; column < shape[1]; ++column) {
      float amax = 8.0F;
      for (int64_t row = 1; row < shape[0]; ++row)
        amax = std::max(amax, magnitudes[static_cast<size_t>(row * shape[1] + column)]);
      scales.push_back(largest / amax);
    }
    states[history.name] = make_tensor(history.dtype, shape, magnitudes);
    states[scale.name] = make_tensor(scale.dtype, shape_of(scale), scales);
  };
  for (const compiler::KernelPlan& kernel : plan.kernels)
    if (const auto* update = std::get_if<compiler::UpdateScalesSpec>(&kernel.spec))
      for (const std::string_view linear : {"fc1", "fc2"}) add(kernel, update->largest, linear);
  return states;
}

}  // namespace moejit::trial
