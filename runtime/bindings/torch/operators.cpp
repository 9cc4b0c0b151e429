// SPDX-License-Identifier: Apache-2.0
#include "runtime/bindings/torch/operators.h"

#include "runtime/bindings/torch/arguments.h"
#include "runtime/bindings/torch/backward_call.h"
#include "runtime/bindings/torch/call.h"
#include "runtime/bindings/torch/failure.h"
#include "runtime/bindings/torch/group_layers.h"
#include "runtime/bindings/torch/plan_text.h"
#include "runtime/bindings/torch/state.h"

#include <utility>

namespace moejit::torch {
namespace {

// A layer whose weights are quantized, and its end of a group if it has one.
struct Quantizing {
  const ReadyLayer& ready;
  const ReadyGroupLayer* of_group = nullptr;
};

Quantizing quantizing_layer(std::string_view text, DLDevice device) {
  if (read_plan_text(text, "layer").group.empty()) return {ready_layer(text, device)};
  const ReadyGroupLayer& of_group = ready_group_layer(text, device);
  return {of_group.ready, &of_group};
}

// Makes the next update_weights quantize, whatever the weights are.
void clear_digest(const ReadyLayer& ready, const Tensor& quantized) {
  const QuantizedBlock& block = ready.quantized;
  if (quantized.element_count() == block.bytes)
    clear(quantized, ready.device, block.digest_offset, block.digest_bytes);
}

// Quantizes the weights by a call to which a state has been added, if the layer has one. A layer
// with weight_checks leaves weights alone that have not changed.
void update_weights(Call& call, const ReadyLayer& ready, const Tensor& w1, const Tensor& w2,
                    Blocks blocks, const Tensor* skip_update = nullptr,
                    const ReadyGroupLayer* of_group = nullptr) {
  if (ready.quantized.bytes + ready.quantized_colwise.bytes == 0) return;
  call.add_input("w1", w1);
  call.add_input("w2", w2);
  add_quantized(call, ready, blocks, MOEJIT_USED_BY_UPDATE_WEIGHTS);
  if (skip_update != nullptr) call.add_input_unless_empty("skip_update", *skip_update);
  if (of_group == nullptr) return check(moejit_layer_update_weights(ready.layer, call.get()));
  check(moejit_layer_update_weights(of_group->layer, call.get()));
  of_group->run_simulator();
}

template <typename State>
void quantize(Value* stack, uint64_t /*argument_count*/, uint64_t /*result_count*/) {
  Arguments<2 + State::kNames.size()> in(stack, with_state<State>(std::array{"w1", "w2"}));
  const Tensor &w1 = in.tensors()[0], &w2 = in.tensors()[1];
  const auto& [ready, of_group] = quantizing_layer(in.text(), w1.device());
  Tensor quantized = make_block(ready.quantized.bytes, w1.device());
  Tensor colwise = make_block(ready.quantized_colwise.bytes, w1.device());
  clear_digest(ready, quantized);
  Call call(ready, w1.device(), 0);
  add_state<State>(call, ready, in.tensors(), MOEJIT_USED_BY_UPDATE_WEIGHTS);
  update_weights(call, ready, w1, w2, {quantized, colwise}, nullptr, of_group);
  stack[0] = quantized.release();
  stack[1] = colwise.release();
}

template <typename State>
void quantize_in_place(Value* stack, uint64_t /*argument_count*/, uint64_t /*result_count*/) {
  Arguments<5 + State::kNames.size()> in(
      stack,
      with_state<State>(std::array{"w1", "w2", "quantized", "quantized_colwise", "skip_update"}));
  const auto& tensors = in.tensors();
  const auto& [ready, of_group] = quantizing_layer(in.text(), tensors[0].device());
  if (tensors[4].element_count() == 0) clear_digest(ready, tensors[2]);
  Call call(ready, tensors[0].device(), 0);
  add_state<State>(call, ready, tensors, MOEJIT_USED_BY_UPDATE_WEIGHTS);
  update_weights(call, ready, tensors[0], tensors[1], {tensors[2], tensors[3]}, &tensors[4],
                 of_group);
}

template <typename State>
void renew(Value* stack, uint64_t /*argument_count*/, uint64_t /*result_count*/) {
  Arguments<4 + State::kNames.size()> in(
      stack, with_state<State>(std::array{"w1", "w2", "quantized", "quantized_colwise"}));
  const auto& tensors = in.tensors();
  const auto& [ready, of_group] = quantizing_layer(in.text(), tensors[0].device());
  Call call(ready, tensors[0].device(), 0);
  add_state<State>(call, ready, tensors, MOEJIT_USED_BY_UPDATE_WEIGHTS);
  update_weights(call, ready, tensors[0], tensors[1], {tensors[2], tensors[3]}, nullptr, of_group);
}

// The results of a forward call.
struct ForwardResults {
  Tensor y;
  Tensor saved;
  Tensor status;
};

// Runs forward, given x, topk_ids, topk_probs, w1, w2, b1, b2 first and the state last. `status` is
// a word that is 0 when the kernels run.
template <typename State, std::size_t kCount>
ForwardResults run_forward(const ReadyLayer& ready, const std::array<Tensor, kCount>& in,
                           const Tensor& quantized, bool returns_saved, Tensor status) {
  const DLDevice device = in[0].device();
  const int64_t tokens = token_count(ready, in[0], "x");
  Call call(ready, device, tokens);
  ForwardResults results;
  results.y = make_output(ready, "y", tokens, device);
  results.status = std::move(status);
  if (returns_saved) results.saved = make_block(call.sizes().saved_bytes, device);
  call.add_input("x", in[0]);
  call.add_input("topk_ids", in[1]);
  call.add_input("topk_probs", in[2]);
  call.add("w1", in[3]);
  call.add("w2", in[4]);
  call.add_input_unless_empty("b1", in[5]);
  call.add_input_unless_empty("b2", in[6]);
  call.add_quantized("quantized", quantized, ready.quantized, MOEJIT_USED_BY_FORWARD);
  add_state<State>(call, ready, in, MOEJIT_USED_BY_FORWARD);
  call.add("y", results.y);
  call.add("status", results.status);
  call.allocate_workspace();
  if (returns_saved) call.set_saved(results.saved);
  check(moejit_layer_forward(ready.layer, call.get()));
  return results;
}

template <typename State>
void forward(Value* stack, uint64_t /*argument_count*/, uint64_t /*result_count*/) {
  Arguments<8 + State::kNames.size()> in(
      stack, with_state<State>(
                 std::array{"x", "topk_ids", "topk_probs", "w1", "w2", "b1", "b2", "quantized"}));
  const ReadyLayer& ready = ready_layer(in.text(), in.tensors()[0].device());
  ForwardResults results = run_forward<State>(ready, in.tensors(), in.tensors()[7], true,
                                              make_status(ready, in.tensors()[0].device()));
  stack[0] = results.y.release();
  stack[1] = results.saved.release();
  stack[2] = results.status.release();
}

template <bool kRenews>
void infer(Value* stack, uint64_t /*argument_count*/, uint64_t /*result_count*/) {
  Arguments<8> in(stack, {"x", "topk_ids", "topk_probs", "w1", "w2", "b1", "b2", "quantized"});
  const DLDevice device = in.tensors()[0].device();
  const ReadyLayer& ready = ready_layer(in.text(), device);
  if (ready.info.saved_bytes > 0)
    fail(MOEJIT_ERROR_INVALID_VALUE,
         "argument layer: it has a backward pass, wanted a layer with forward alone",
         "call forward, whose result \"saved\" is for backward");
  const bool checks = kRenews && ready.quantized.digest_bytes > 0;
  // The kernel that looks at the weights sets the word to 0.
  Tensor status = checks ? make_output(ready, "status", 0, device) : make_status(ready, device);
  if (checks) {
    const Tensor colwise = make_block(0, device);  // of backward, which this layer does not have
    Call call(ready, device, 0);
    call.add("status", status);
    update_weights(call, ready, in.tensors()[3], in.tensors()[4], {in.tensors()[7], colwise});
  }
  ForwardResults results =
      run_forward<NoState>(ready, in.tensors(), in.tensors()[7], false, std::move(status));
  stack[0] = results.y.release();
  stack[1] = results.status.release();
}

void quantize_forward(Value* stack, uint64_t /*argument_count*/, uint64_t /*result_count*/) {
  Arguments<7> in(stack, {"x", "topk_ids", "topk_probs", "w1", "w2", "b1", "b2"});
  const Tensor& w1 = in.tensors()[3];
  const DLDevice device = in.tensors()[0].device();
  const ReadyLayer& ready = ready_layer(in.text(), device);
  Tensor quantized = make_block(ready.quantized.bytes, device);
  Tensor colwise = make_block(ready.quantized_colwise.bytes, device);
  Call call(ready, device, 0);
  update_weights(call, ready, w1, in.tensors()[4], {quantized, colwise});
  ForwardResults results =
      run_forward<NoState>(ready, in.tensors(), quantized, true, make_status(ready, device));
  if (!ready.backward_reads_quantized()) quantized = make_block(0, device);
  stack[0] = results.y.release();
  stack[1] = results.saved.release();
  stack[2] = results.status.release();
  stack[3] = quantized.release();
  stack[4] = colwise.release();
}

template <typename State>
void backward(Value* stack, uint64_t /*argument_count*/, uint64_t /*result_count*/) {
  Arguments<10 + State::kNames.size()> in(
      stack, with_state<State>(std::array{"dy", "saved", "x", "topk_probs", "w1", "w2", "b1", "b2",
                                          "quantized", "quantized_colwise"}));
  const Tensor& dy = in.tensors()[0];
  const ReadyLayer& ready = ready_layer(in.text(), dy.device());
  const int64_t tokens = token_count(ready, dy, "dy");
  auto data = make_gradients(ready, kDataGradients, tokens, dy.device());
  auto weights = make_gradients(ready, kWeightGradients, tokens, dy.device());
  Call call(ready, dy.device(), tokens);
  add_backward_inputs(call, ready, in.tensors(), MOEJIT_USED_BY_BACKWARD);
  add_state<State>(call, ready, in.tensors(), MOEJIT_USED_BY_BACKWARD);
  call.allocate_deferred();
  add_gradients(call, ready, kDataGradients, data);
  add_gradients(call, ready, kWeightGradients, weights);
  check(moejit_layer_backward(ready.layer, MOEJIT_GRADIENT_OVERWRITE, call.get()));
  for (std::size_t i = 0; i < data.size(); ++i) stack[i] = data[i].release();
  for (std::size_t i = 0; i < weights.size(); ++i) stack[data.size() + i] = weights[i].release();
}

template <typename State>
void backward_add(Value* stack, uint64_t /*argument_count*/, uint64_t /*result_count*/) {
  Arguments<14 + State::kNames.size(), 1> in(
      stack, with_state<State>(std::array{"dy", "saved", "x", "topk_probs", "w1", "w2", "b1", "b2",
                                          "quantized", "quantized_colwise", "main_dw1", "main_dw2",
                                          "main_db1", "main_db2"}));
  const Tensor& dy = in.tensors()[0];
  const bool overwrite = in.flag(0);
  const ReadyLayer& ready = ready_layer(in.text(), dy.device());
  const int64_t tokens = token_count(ready, dy, "dy");
  auto data = make_gradients(ready, kDataGradients, tokens, dy.device());
  Call call(ready, dy.device(), tokens);
  add_backward_inputs(call, ready, in.tensors(), MOEJIT_USED_BY_BACKWARD);
  add_state<State>(call, ready, in.tensors(), MOEJIT_USED_BY_BACKWARD);
  call.allocate_deferred();
  add_gradients(call, ready, kDataGradients, data);
  for (std::size_t i = 0; i < kWeightGradients.size(); ++i)
    call.add_unless_empty(kWeightGradients[i], in.tensors()[10 + i]);
  check(moejit_layer_backward(
      ready.layer, overwrite ? MOEJIT_GRADIENT_OVERWRITE : MOEJIT_GRADIENT_ADD, call.get()));
  for (std::size_t i = 0; i < data.size(); ++i) stack[i] = data[i].release();
}

}  // namespace

const std::array<Operator, 15> kOperators = {{
    {"quantize",
     "quantize(Tensor w1, Tensor w2, str layer) -> (Tensor quantized, Tensor quantized_colwise)",
     quantize<NoState>},
    {"quantize_",
     "quantize_(Tensor w1, Tensor w2, Tensor(a!) quantized, Tensor(b!) quantized_colwise, "
     "Tensor skip_update, str layer) -> ()",
     quantize_in_place<NoState>},
    {"renew_",
     "renew_(Tensor w1, Tensor w2, Tensor(a!) quantized, Tensor(b!) quantized_colwise, str layer) "
     "-> ()",
     renew<NoState>},
    {"forward",
     "forward(Tensor x, Tensor topk_ids, Tensor topk_probs, Tensor w1, Tensor w2, Tensor b1, "
     "Tensor b2, Tensor quantized, str layer) -> (Tensor y, Tensor saved, Tensor status)",
     forward<NoState>},
    {"infer",
     "infer(Tensor x, Tensor topk_ids, Tensor topk_probs, Tensor w1, Tensor w2, Tensor b1, "
     "Tensor b2, Tensor quantized, str layer) -> (Tensor y, Tensor status)",
     infer<false>},
    {"renew_infer",
     "renew_infer(Tensor x, Tensor topk_ids, Tensor topk_probs, Tensor w1, Tensor w2, Tensor b1, "
     "Tensor b2, Tensor(a!) quantized, str layer) -> (Tensor y, Tensor status)",
     infer<true>},
    {"quantize_forward",
     "quantize_forward(Tensor x, Tensor topk_ids, Tensor topk_probs, Tensor w1, Tensor w2, "
     "Tensor b1, Tensor b2, str layer) -> (Tensor y, Tensor saved, Tensor status, "
     "Tensor quantized, Tensor quantized_colwise)",
     quantize_forward},
    {"backward",
     "backward(Tensor dy, Tensor saved, Tensor x, Tensor topk_probs, Tensor w1, Tensor w2, "
     "Tensor b1, Tensor b2, Tensor quantized, Tensor quantized_colwise, str layer) -> (Tensor dx, "
     "Tensor dprobs, Tensor dw1, Tensor dw2, Tensor db1, Tensor db2)",
     backward<NoState>},
    {"backward_add",
     "backward_add(Tensor dy, Tensor saved, Tensor x, Tensor topk_probs, Tensor w1, Tensor w2, "
     "Tensor b1, Tensor b2, Tensor quantized, Tensor quantized_colwise, Tensor(a!) main_dw1, "
     "Tensor(b!) main_dw2, Tensor(c!) main_db1, Tensor(d!) main_db2, bool overwrite, str layer) "
     "-> (Tensor dx, Tensor dprobs)",
     backward_add<NoState>},
    {"quantize.with_state",
     "quantize.with_state(Tensor w1, Tensor w2, Tensor(a!) fc1_amax_history, "
     "Tensor(b!) fc2_amax_history, Tensor fc1_scale, Tensor fc2_scale, str layer) -> "
     "(Tensor quantized, Tensor quantized_colwise)",
     quantize<ForwardState>},
    {"quantize_.with_state",
     "quantize_.with_state(Tensor w1, Tensor w2, Tensor(a!) quantized, "
     "Tensor(b!) quantized_colwise, Tensor skip_update, Tensor(c!) fc1_amax_history, "
     "Tensor(d!) fc2_amax_history, Tensor fc1_scale, Tensor fc2_scale, str layer) -> ()",
     quantize_in_place<ForwardState>},
    {"renew_.with_state",
     "renew_.with_state(Tensor w1, Tensor w2, Tensor(a!) quantized, Tensor(b!) quantized_colwise, "
     "Tensor(c!) fc1_amax_history, Tensor(d!) fc2_amax_history, Tensor fc1_scale, "
     "Tensor fc2_scale, str layer) -> ()",
     renew<ForwardState>},
    {"forward.with_state",
     "forward.with_state(Tensor x, Tensor topk_ids, Tensor topk_probs, Tensor w1, Tensor w2, "
     "Tensor b1, Tensor b2, Tensor quantized, Tensor(a!) fc1_amax_history, "
     "Tensor(b!) fc2_amax_history, Tensor fc1_scale, Tensor fc2_scale, str layer) -> (Tensor y, "
     "Tensor saved, Tensor status)",
     forward<ForwardState>},
    {"backward.with_state",
     "backward.with_state(Tensor dy, Tensor saved, Tensor x, Tensor topk_probs, Tensor w1, "
     "Tensor w2, Tensor b1, Tensor b2, Tensor quantized, Tensor quantized_colwise, "
     "Tensor(a!) fc1_grad_amax_history, Tensor(b!) fc2_grad_amax_history, Tensor fc1_grad_scale, "
     "Tensor fc2_grad_scale, str layer) -> (Tensor dx, Tensor dprobs, Tensor dw1, Tensor dw2, "
     "Tensor db1, Tensor db2)",
     backward<GradientState>},
    {"backward_add.with_state",
     "backward_add.with_state(Tensor dy, Tensor saved, Tensor x, Tensor topk_probs, Tensor w1, "
     "Tensor w2, Tensor b1, Tensor b2, Tensor quantized, Tensor quantized_colwise, "
     "Tensor(a!) main_dw1, Tensor(b!) main_dw2, Tensor(c!) main_db1, Tensor(d!) main_db2, "
     "Tensor(e!) fc1_grad_amax_history, Tensor(f!) fc2_grad_amax_history, Tensor fc1_grad_scale, "
     "Tensor fc2_grad_scale, bool overwrite, str layer) -> (Tensor dx, Tensor dprobs)",
     backward_add<GradientState>},
}};

}  // namespace moejit::torch
