// SPDX-License-Identifier: Apache-2.0
#include "runtime/bindings/torch/layers.h"

#include "runtime/bindings/torch/failure.h"
#include "runtime/bindings/torch/prepared_plans.h"

#include <algorithm>
#include <memory>

namespace moejit::torch {
namespace {

constexpr int64_t kSliceAlignment = 256;

}  // namespace

void keep(ReadyLayer& ready, const moejit_tensor_info& info, std::size_t index) {
  if (info.role == MOEJIT_ROLE_OUTPUT) ready.outputs.push_back(planned(info, index));
  if (info.role == MOEJIT_ROLE_STATE) ready.state.push_back({info.name, info.used_by});
  if (info.role != MOEJIT_ROLE_QUANTIZED) return;
  const bool is_digest = info.used_by == MOEJIT_USED_BY_UPDATE_WEIGHTS;
  QuantizedBlock& block = is_digest || (info.used_by & MOEJIT_USED_BY_FORWARD) != 0
                              ? ready.quantized
                              : ready.quantized_colwise;
  if (is_digest) {
    block.digest_offset = block.bytes;
    block.digest_bytes = info.bytes;
  }
  block.slices.push_back({planned(info, index), block.bytes, info.used_by});
  block.bytes += (info.bytes + kSliceAlignment - 1) / kSliceAlignment * kSliceAlignment;
}

namespace {

// Reads the parts of the plan that operators need.
void read_plan(ReadyLayer& ready) {
  ready.info.struct_size = sizeof ready.info;
  check(moejit_plan_get_info(ready.layer, &ready.info));
  for (std::size_t i = 0; i < ready.info.tensor_count; ++i) {
    moejit_tensor_info info{};
    info.struct_size = sizeof info;
    check(moejit_plan_get_tensor(ready.layer, i, &info));
    keep(ready, info, i);
  }
}

struct LayerDeleter {
  void operator()(moejit_plan* layer) const { moejit_plan_destroy(layer); }
};

ReadyLayer prepare_layer(std::string_view text, const Place& place) {
  const PlanText read = read_plan_text(text, "layer");
  if (!read.group.empty())
    fail(MOEJIT_ERROR_INVALID_VALUE, "argument layer: it is of a group, wanted a layer of one rank",
         "call group_forward, group_backward or group_backward_add");
  const std::string target = check_text(read, "layer", place.device);
  ReadyLayer ready;
  ready.device = place.device;
  moejit_plan* created = nullptr;
  check(moejit_plan_create(read.json.data(), read.json.size(), target.c_str(), nullptr, &created));
  std::unique_ptr<moejit_plan, LayerDeleter> owner(created);
  ready.layer = created;
  read_plan(ready);
  check_is_current(read, moejit_version(), ready.info.plan_digest);
  const moejit_error_code code = moejit_plan_prepare(created, place.engine, place.device);
  check(code, hint_of_preparing(code, read.json, ready.info.max_tokens));
  owner.release();
  return ready;
}

}  // namespace

bool ReadyLayer::backward_reads_quantized() const {
  constexpr uint32_t kBeforeBackward = MOEJIT_USED_BY_UPDATE_WEIGHTS | MOEJIT_USED_BY_FORWARD;
  return std::ranges::any_of(quantized.slices, [](const QuantizedSlice& slice) {
    return (slice.used_by & ~kBeforeBackward) != 0;
  });
}

bool ReadyLayer::uses_state(std::string_view name, uint32_t function) const {
  return std::ranges::any_of(state, [&](const StateTensor& tensor) {
    return tensor.name == name && (tensor.used_by & function) != 0;
  });
}

const PlannedTensor* ReadyLayer::find_output(std::string_view name) const {
  const auto found = std::ranges::find(outputs, name, &PlannedTensor::name);
  return found == outputs.end() ? nullptr : &*found;
}

moejit_plan_sizes ReadyLayer::sizes(int64_t tokens) const {
  if (layer == nullptr)  // blocks of a layer of a group have one size for any T
    return {sizeof(moejit_plan_sizes), info.workspace_bytes, info.saved_bytes, 0};
  // A call mostly has the layer and the tokens of the thread's last call. No layer with sizes is
  // ever destroyed.
  struct Last {
    const moejit_plan* layer = nullptr;
    int64_t tokens = 0;
    moejit_plan_sizes sizes{};
  };
  thread_local Last last;
  if (last.layer == layer && last.tokens == tokens) return last.sizes;
  moejit_plan_sizes sizes{};
  sizes.struct_size = sizeof sizes;
  check(moejit_plan_get_sizes(layer, tokens, &sizes));
  last = {layer, tokens, sizes};
  return sizes;
}

const ReadyLayer& ready_layer(std::string_view text, DLDevice device) {
  static auto* const layers = new PreparedPlans<ReadyLayer>;
  return layers->get(text, device, prepare_layer);
}

}  // namespace moejit::torch
