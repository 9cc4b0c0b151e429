// SPDX-License-Identifier: Apache-2.0
#include "runtime/check/kernel_checks.h"
#include "runtime/reference/delayed_scale.h"

#include <fmt/core.h>
#include <string>

namespace moejit::check {

using runtime::copy_elements;
using runtime::HostTensor;

void check_kernel(const compiler::TakeScalesSpec& spec, const KernelTensors& tensors,
                  CheckList& list) {
  for (const std::string linear : {"fc1", "fc2"}) {
    const std::string scale = linear + "_scale", inverse = linear + "_scale_inv";
    if (!tensors.has(linear + "_stored") || !tensors.has(scale)) continue;
    const std::span<const float> stored = tensors.view<float>(linear + "_stored");
    std::vector<float> scales, inverses;
    for (int32_t e = 0; e < spec.experts; ++e) {
      scales.push_back(stored[static_cast<size_t>(e * spec.columns.stride + spec.columns.first)]);
      inverses.push_back(1.0F / scales.back());
    }
    list.floats(tensors, scale, scales);
    list.floats(tensors, inverse, inverses);
  }
}

void check_kernel(const compiler::UpdateScalesSpec& spec, const KernelTensors& tensors,
                  CheckList& list) {
  for (const std::string linear : {"fc1", "fc2"}) {
    const std::string history = linear + "_amax_history", scale = linear + "_scale";
    const HostTensor *const old_history = tensors.before(history), *const old_scale =
                                                                       tensors.before(scale);
    if (old_history == nullptr || old_scale == nullptr) continue;
    reference::ScaleState state{.columns = spec.columns,
                                .amax_history = copy_elements<float>(*old_history),
                                .scale = copy_elements<float>(*old_scale)};
    reference::update_scales(
        state, {.largest = spec.largest,
                .is_most_recent = spec.algorithm == compiler::AmaxComputeAlgo::kMostRecent});
    list.floats(tensors, history, state.amax_history);
    list.floats(tensors, scale, state.scale);
  }
}

}  // namespace moejit::check
