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

TensorMap first_gradients(const compiler::Plan& plan, std::string_view call) {
  TensorMap gradients;
  const auto found = std::ranges::find(plan.calls, call, &compiler::CallPlan::name);
  if (found == plan.calls.end() || !found->adds) return gradients;
  for (const compiler::CallTensor& taken : found->tensors) {
    const compiler::TensorPlan& tensor = plan.tensors[taken.slot];
    if (tensor.role == compiler::TensorRole::kOutput && tensor.dtype == compiler::DType::kF32 &&
        taken.access == compiler::Access::kReadWrite)
      gradients[tensor.name] = make_tensor(
          tensor.dtype, shape_of(tensor),
          std::vector<float>(static_cast<size_t>(element_count(shape_of(tensor))), 0.0F));
  }
  return gradients;
}

TensorMap random_states(const compiler::Plan& plan, uint64_t seed) {
  constexpr std::string_view kEnd = "_amax_history";
  TensorMap states;
  for (const compiler::TensorPlan& tensor : plan.tensors) {
    if (tensor.role != compiler::TensorRole::kState || !tensor.name.ends_with(kEnd)) continue;
    const std::vector<int64_t> shape = shape_of(tensor);
    const bool is_gradient = tensor.name.find("_grad_") != std::string::npos;
    const bool is_e5m2 =
        is_gradient && plan.layer->recipe.gradients.dtype == compiler::DType::kF8E5M2;
    const std::vector<float> history =
        random_history(shape[0], shape[1], is_gradient, seed + std::size(tensor.name));
    std::vector<float> scales;
    for (int64_t column = 0; column < shape[1]; ++column) {
      float amax = 8.0F;
      for (int64_t row = 1; row < shape[0]; ++row)
        amax = std::max(amax, history[static_cast<size_t>(row * shape[1] + column)]);
      scales.push_back((is_e5m2 ? 57344.0F : 448.0F) / amax);
    }
    const std::string linear = tensor.name.substr(0, tensor.name.size() - kEnd.size());
    states[tensor.name] = make_tensor(tensor.dtype, shape, history);
    states[linear + "_scale"] = make_tensor(tensor.dtype, {shape[1]}, scales);
  }
  return states;
}

}  // namespace moejit::trial
