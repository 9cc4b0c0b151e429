// SPDX-License-Identifier: Apache-2.0
#include "runtime/bindings/torch/arguments.h"
#include "runtime/bindings/torch/backward_call.h"
#include "runtime/bindings/torch/call.h"
#include "runtime/bindings/torch/failure.h"
#include "runtime/bindings/torch/group_layers.h"
#include "runtime/bindings/torch/operators.h"
#include "runtime/bindings/torch/state.h"

namespace moejit::torch {
namespace {

template <typename State>
void group_forward(Value* stack, uint64_t /*argument_count*/, uint64_t /*result_count*/) {
  Arguments<9 + State::kNames.size()> in(
      stack, with_state<State>(std::array{"x", "topk_ids", "topk_probs", "w1", "w2", "b1", "b2",
                                          "quantized", "order"}));
  const auto& tensors = in.tensors();
  const Tensor& x = tensors[0];
  const DLDevice device = x.device();
  const ReadyGroupLayer& of_group = ready_group_layer(in.text(), device);
  const ReadyLayer& ready = of_group.ready;
  const int64_t tokens = token_count(ready, x, "x");
  Call call(ready, device, tokens);
  Tensor y = make_output(ready, "y", tokens, device);
  Tensor saved = make_block(call.sizes().saved_bytes, device);
  call.add_input("x", x);
  call.add_input("topk_ids", tensors[1]);
  call.add_input("topk_probs", tensors[2]);
  call.add("w1", tensors[3]);
  call.add("w2", tensors[4]);
  call.add_input_unless_empty("b1", tensors[5]);
  call.add_input_unless_empty("b2", tensors[6]);
  call.add_quantized("quantized", tensors[7], ready.quantized, MOEJIT_USED_BY_FORWARD);
  add_state<State>(call, ready, tensors, MOEJIT_USED_BY_FORWARD);
  call.add("y", y);
  call.allocate_workspace();
  call.set_saved(saved);
  check(moejit_layer_forward(of_group.layer, call.get()));
  of_group.run_call_in_simulator();
  stack[0] = y.release();
  stack[1] = saved.release();
}

// Adds the first tensors of backward operators: dy, saved, x, topk_ids, w1, w2, b1, b2, quantized,
// quantized_colwise. A tensor of one dimension in place of x stands for none, for layers whose
// backward does not read it. In groups only layers of one rank read it.
template <std::size_t kCount>
void add_inputs(Call& call, const ReadyLayer& ready, const std::array<Tensor, kCount>& in) {
  call.add_input("dy", in[0]);
  call.set_saved(in[1]);
  if (in[2].dl().ndim == 2) call.add_input("x", in[2]);
  call.add_input("topk_ids", in[3]);
  call.add("w1", in[4]);
  call.add("w2", in[5]);
  call.add_input_unless_empty("b1", in[6]);
  call.add_input_unless_empty("b2", in[7]);
  add_quantized(call, ready, {in[8], in[9]}, MOEJIT_USED_BY_BACKWARD);
  call.allocate_workspace();
}

template <typename State>
void group_backward(Value* stack, uint64_t /*argument_count*/, uint64_t /*result_count*/) {
  Arguments<11 + State::kNames.size()> in(
      stack, with_state<State>(std::array{"dy", "saved", "x", "topk_ids", "w1", "w2", "b1", "b2",
                                          "quantized", "quantized_colwise", "order"}));
  const Tensor& dy = in.tensors()[0];
  const ReadyGroupLayer& of_group = ready_group_layer(in.text(), dy.device());
  const ReadyLayer& ready = of_group.ready;
  const int64_t tokens = token_count(ready, dy, "dy");
  auto data = make_gradients(ready, kDataGradients, tokens, dy.device());
  auto weights = make_gradients(ready, kWeightGradients, tokens, dy.device());
  Call call(ready, dy.device(), tokens);
  add_inputs(call, ready, in.tensors());
  add_state<State>(call, ready, in.tensors(), MOEJIT_USED_BY_BACKWARD);
  add_gradients(call, ready, kDataGradients, data);
  add_gradients(call, ready, kWeightGradients, weights);
  check(moejit_layer_backward(of_group.layer, MOEJIT_GRADIENT_OVERWRITE, call.get()));
  of_group.run_call_in_simulator();
  for (std::size_t i = 0; i < data.size(); ++i) stack[i] = data[i].release();
  for (std::size_t i = 0; i < weights.size(); ++i) stack[data.size() + i] = weights[i].release();
}

template <typename State>
void group_backward_add(Value* stack, uint64_t /*argument_count*/, uint64_t /*result_count*/) {
  Arguments<15 + State::kNames.size(), 1> in(
      stack, with_state<State>(std::array{"dy", "saved", "x", "topk_ids", "w1", "w2", "b1", "b2",
                                          "quantized", "quantized_colwise", "order", "main_dw1",
                                          "main_dw2", "main_db1", "main_db2"}));
  const Tensor& dy = in.tensors()[0];
  const auto mode = in.flag(0) ? MOEJIT_GRADIENT_OVERWRITE : MOEJIT_GRADIENT_ADD;
  const ReadyGroupLayer& of_group = ready_group_layer(in.text(), dy.device());
  const ReadyLayer& ready = of_group.ready;
  const int64_t tokens = token_count(ready, dy, "dy");
  auto data = make_gradients(ready, kDataGradients, tokens, dy.device());
  Call call(ready, dy.device(), tokens);
  add_inputs(call, ready, in.tensors());
  add_state<State>(call, ready, in.tensors(), MOEJIT_USED_BY_BACKWARD);
  add_gradients(call, ready, kDataGradients, data);
  for (std::size_t i = 0; i < kWeightGradients.size(); ++i)
    call.add_unless_empty(kWeightGradients[i], in.tensors()[11 + i]);
  check(moejit_layer_backward(of_group.layer, mode, call.get()));
  of_group.run_call_in_simulator();
  for (std::size_t i = 0; i < data.size(); ++i) stack[i] = data[i].release();
}

}  // namespace

const std::array<Operator, 6> kGroupOperators = {{
    {"group_forward",
     "group_forward(Tensor x, Tensor topk_ids, Tensor topk_probs, Tensor w1, Tensor w2, Tensor b1, "
     "Tensor b2, Tensor quantized, Tensor(a!) order, str layer) -> (Tensor y, Tensor saved)",
     group_forward<NoState>},
    {"group_backward",
     "group_backward(Tensor dy, Tensor saved, Tensor x, Tensor topk_ids, Tensor w1, Tensor w2, "
     "Tensor b1, "
     "Tensor b2, Tensor quantized, Tensor quantized_colwise, Tensor(a!) order, str layer) -> "
     "(Tensor dx, Tensor dprobs, Tensor dw1, Tensor dw2, Tensor db1, Tensor db2)",
     group_backward<NoState>},
    {"group_backward_add",
     "group_backward_add(Tensor dy, Tensor saved, Tensor x, Tensor topk_ids, Tensor w1, Tensor w2, "
     "Tensor "
     "b1, Tensor b2, Tensor quantized, Tensor quantized_colwise, Tensor(a!) order, Tensor(b!) "
     "main_dw1, Tensor(c!) main_dw2, Tensor(d!) main_db1, Tensor(e!) main_db2, bool overwrite, "
     "str layer) -> (Tensor dx, Tensor dprobs)",
     group_backward_add<NoState>},
    {"group_forward.with_state",
     "group_forward.with_state(Tensor x, Tensor topk_ids, Tensor topk_probs, Tensor w1, Tensor w2, "
     "Tensor b1, Tensor b2, Tensor quantized, Tensor(a!) order, Tensor(b!) fc1_amax_history, "
     "Tensor(c!) fc2_amax_history, Tensor fc1_scale, Tensor fc2_scale, str layer) -> (Tensor y, "
     "Tensor saved)",
     group_forward<ForwardState>},
    {"group_backward.with_state",
     "group_backward.with_state(Tensor dy, Tensor saved, Tensor x, Tensor topk_ids, Tensor w1, "
     "Tensor w2, "
     "Tensor b1, Tensor b2, Tensor quantized, Tensor quantized_colwise, Tensor(a!) order, "
     "Tensor(b!) fc1_grad_amax_history, Tensor(c!) fc2_grad_amax_history, Tensor fc1_grad_scale, "
     "Tensor fc2_grad_scale, str layer) -> (Tensor dx, Tensor dprobs, Tensor dw1, Tensor dw2, "
     "Tensor db1, Tensor db2)",
     group_backward<GradientState>},
    {"group_backward_add.with_state",
     "group_backward_add.with_state(Tensor dy, Tensor saved, Tensor x, Tensor topk_ids, Tensor w1, "
     "Tensor "
     "w2, Tensor b1, Tensor b2, Tensor quantized, Tensor quantized_colwise, Tensor(a!) order, "
     "Tensor(b!) main_dw1, Tensor(c!) main_dw2, Tensor(d!) main_db1, Tensor(e!) main_db2, "
     "Tensor(f!) fc1_grad_amax_history, Tensor(g!) fc2_grad_amax_history, Tensor fc1_grad_scale, "
     "Tensor fc2_grad_scale, bool overwrite, str layer) -> (Tensor dx, Tensor dprobs)",
     group_backward_add<GradientState>},
}};

}  // namespace moejit::torch
