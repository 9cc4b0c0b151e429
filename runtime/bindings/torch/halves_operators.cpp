// SPDX-License-Identifier: Apache-2.0
#include "runtime/bindings/torch/arguments.h"
#include "runtime/bindings/torch/backward_call.h"
#include "runtime/bindings/torch/failure.h"
#include "runtime/bindings/torch/operators.h"
#include "runtime/bindings/torch/state.h"

namespace moejit::torch {
namespace {

template <typename State>
void backward_data(Value* stack, uint64_t /*argument_count*/, uint64_t /*result_count*/) {
  Arguments<10 + State::kNames.size()> in(
      stack, with_state<State>(std::array{"dy", "saved", "x", "topk_probs", "w1", "w2", "b1", "b2",
                                          "quantized", "quantized_colwise"}));
  const Tensor& dy = in.tensors()[0];
  const ReadyLayer& ready = ready_layer(in.text(), dy.device());
  const int64_t tokens = token_count(ready, dy, "dy");
  auto data = make_gradients(ready, kDataGradients, tokens, dy.device());
  Call call(ready, dy.device(), tokens);
  Tensor deferred = make_block(call.sizes().deferred_bytes, dy.device());
  add_backward_inputs(call, ready, in.tensors(), MOEJIT_USED_BY_BACKWARD_DATA);
  add_state<State>(call, ready, in.tensors(), MOEJIT_USED_BY_BACKWARD_DATA);
  call.set_deferred(deferred);
  add_gradients(call, ready, kDataGradients, data);
  check(moejit_layer_backward_data(ready.layer, call.get()));
  for (std::size_t i = 0; i < data.size(); ++i) stack[i] = data[i].release();
  stack[data.size()] = deferred.release();
}

bool has_data_half(const ReadyLayer& ready) {
  return ready.find_output("dx") != nullptr || ready.find_output("dprobs") != nullptr;
}

// Adds the first arguments of the weights half's operators: the arguments of backward_data(), then
// the deferred block. If the layer has a data half, inputs that only that half reads may be empty.
template <std::size_t kCount>
void add_weights_half_inputs(Call& call, const ReadyLayer& ready,
                             const std::array<Tensor, kCount>& in) {
  if (has_data_half(ready) && in[0].size(1) == 0)
    call.add_shape("dy", *ready.find_output("y"));
  else
    call.add_input("dy", in[0]);
  add_kept(call, ready, in, MOEJIT_USED_BY_BACKWARD_WEIGHTS);
  call.set_deferred(in[10]);
  call.allocate_workspace();
}

void backward_weights(Value* stack, uint64_t /*argument_count*/, uint64_t /*result_count*/) {
  Arguments<11> in(stack, {"dy", "saved", "x", "topk_probs", "w1", "w2", "b1", "b2", "quantized",
                           "quantized_colwise", "deferred"});
  const Tensor& dy = in.tensors()[0];
  const ReadyLayer& ready = ready_layer(in.text(), dy.device());
  const int64_t tokens = token_count(ready, dy, "dy");
  auto weights = make_gradients(ready, kWeightGradients, tokens, dy.device());
  Call call(ready, dy.device(), tokens);
  add_weights_half_inputs(call, ready, in.tensors());
  add_gradients(call, ready, kWeightGradients, weights);
  check(moejit_layer_backward_weights(ready.layer, MOEJIT_GRADIENT_OVERWRITE, call.get()));
  for (std::size_t i = 0; i < weights.size(); ++i) stack[i] = weights[i].release();
}

void backward_weights_add(Value* stack, uint64_t /*argument_count*/, uint64_t /*result_count*/) {
  Arguments<15, 1> in(
      stack, {"dy", "saved", "x", "topk_probs", "w1", "w2", "b1", "b2", "quantized",
              "quantized_colwise", "deferred", "main_dw1", "main_dw2", "main_db1", "main_db2"});
  const Tensor& dy = in.tensors()[0];
  const auto mode = in.flag(0) ? MOEJIT_GRADIENT_OVERWRITE : MOEJIT_GRADIENT_ADD;
  const ReadyLayer& ready = ready_layer(in.text(), dy.device());
  const int64_t tokens = token_count(ready, dy, "dy");
  Call call(ready, dy.device(), tokens);
  add_weights_half_inputs(call, ready, in.tensors());
  for (std::size_t i = 0; i < kWeightGradients.size(); ++i)
    call.add_unless_empty(kWeightGradients[i], in.tensors()[11 + i]);
  check(moejit_layer_backward_weights(ready.layer, mode, call.get()));
}

}  // namespace

const std::array<Operator, 4> kHalvesOperators = {{
    {"backward_data",
     "backward_data(Tensor dy, Tensor saved, Tensor x, Tensor topk_probs, Tensor w1, Tensor w2, "
     "Tensor b1, Tensor b2, Tensor quantized, Tensor quantized_colwise, str layer) -> (Tensor dx, "
     "Tensor dprobs, Tensor deferred)",
     backward_data<NoState>},
    {"backward_data.with_state",
     "backward_data.with_state(Tensor dy, Tensor saved, Tensor x, Tensor topk_probs, Tensor w1, "
     "Tensor w2, Tensor b1, Tensor b2, Tensor quantized, Tensor quantized_colwise, "
     "Tensor(a!) fc1_grad_amax_history, Tensor(b!) fc2_grad_amax_history, Tensor fc1_grad_scale, "
     "Tensor fc2_grad_scale, str layer) -> (Tensor dx, Tensor dprobs, Tensor deferred)",
     backward_data<GradientState>},
    {"backward_weights",
     "backward_weights(Tensor dy, Tensor saved, Tensor x, Tensor topk_probs, Tensor w1, Tensor w2, "
     "Tensor b1, Tensor b2, Tensor quantized, Tensor quantized_colwise, Tensor deferred, "
     "str layer) -> (Tensor dw1, Tensor dw2, Tensor db1, Tensor db2)",
     backward_weights},
    {"backward_weights_add",
     "backward_weights_add(Tensor dy, Tensor saved, Tensor x, Tensor topk_probs, Tensor w1, Tensor "
     "w2, "
     "Tensor b1, Tensor b2, Tensor quantized, Tensor quantized_colwise, Tensor deferred, "
     "Tensor(a!) main_dw1, Tensor(b!) main_dw2, Tensor(c!) main_db1, Tensor(d!) main_db2, bool "
     "overwrite, str layer) -> ()",
     backward_weights_add},
}};

}  // namespace moejit::torch
