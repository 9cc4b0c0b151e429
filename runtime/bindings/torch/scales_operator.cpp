// SPDX-License-Identifier: Apache-2.0
#include "runtime/bindings/torch/arguments.h"
#include "runtime/bindings/torch/call.h"
#include "runtime/bindings/torch/failure.h"
#include "runtime/bindings/torch/group_layers.h"
#include "runtime/bindings/torch/operators.h"
#include "runtime/bindings/torch/plan_text.h"
#include "runtime/bindings/torch/state.h"

namespace moejit::torch {
namespace {

// The arguments of the operator: a state of either pass, the pass, and the text.
constexpr std::array kNames = {"fc1_amax_history", "fc2_amax_history", "fc1_scale", "fc2_scale"};
using ScalesArguments = Arguments<kNames.size(), 1>;

void add_tensors(Call& call, const ReadyLayer& ready, const ScalesArguments& in, bool is_backward) {
  if (is_backward)
    add_state<GradientState>(call, ready, in.tensors(), MOEJIT_USED_BY_UPDATE_SCALES);
  else
    add_state<ForwardState>(call, ready, in.tensors(), MOEJIT_USED_BY_UPDATE_SCALES);
}

void update_scales(Value* stack, uint64_t /*argument_count*/, uint64_t /*result_count*/) {
  const ScalesArguments in(stack, kNames);
  const bool is_backward = in.flag(0);
  const moejit_pass pass = is_backward ? MOEJIT_PASS_BACKWARD : MOEJIT_PASS_FORWARD;
  const DLDevice device = in.tensors()[0].device();
  if (read_plan_text(in.text(), "layer").group.empty()) {
    const ReadyLayer& ready = ready_layer(in.text(), device);
    Call call(ready, device, 0);
    add_tensors(call, ready, in, is_backward);
    return check(moejit_layer_update_scales(ready.layer, pass, call.get()));
  }
  const ReadyGroupLayer& of_group = ready_group_layer(in.text(), device);
  Call call(of_group.ready, device, 0);
  add_tensors(call, of_group.ready, in, is_backward);
  check(moejit_layer_update_scales(of_group.layer, pass, call.get()));
  of_group.run_simulator();
}

}  // namespace

const std::array<Operator, 1> kScalesOperators = {{
    {"update_scales",
     "update_scales(Tensor(a!) fc1_amax_history, Tensor(b!) fc2_amax_history, "
     "Tensor(c!) fc1_scale, Tensor(d!) fc2_scale, bool is_backward, str layer) -> ()",
     update_scales},
}};

}  // namespace moejit::torch
