// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/bindings/torch/call.h"
#include "runtime/bindings/torch/failure.h"

#include <array>
#include <string>

// Shared parts of the operators that run forward and backward calls.

namespace moejit::torch {

// The six gradients in the order of the operators' results and arguments.
constexpr std::array<const char*, 2> kDataGradients = {"dx", "dprobs"};
constexpr std::array<const char*, 4> kWeightGradients = {"dw1", "dw2", "db1", "db2"};

// Returns T of a call, given its tokens or their gradients.
inline int64_t token_count(const ReadyLayer& ready, const Tensor& tensor, const std::string& name) {
  if (tensor.dl().ndim != 2)
    fail(MOEJIT_ERROR_TENSOR_MISMATCH, "tensor " + name + ": it has " +
                                           std::to_string(tensor.dl().ndim) +
                                           " dimensions, wanted 2");
  if (tensor.size(0) > ready.info.max_tokens)
    fail(MOEJIT_ERROR_TENSOR_MISMATCH,
         "tensor " + name + ": it has " + std::to_string(tensor.size(0)) +
             " tokens, wanted at most " + std::to_string(ready.info.max_tokens) +
             ", which is max_tokens of the layer");
  return tensor.size(0);
}

// The two blocks of quantized weights.
struct Blocks {
  const Tensor& quantized;
  const Tensor& colwise;
};

// Adds the quantized weights that a function uses, one of MOEJIT_USED_BY_FORWARD, ...
inline void add_quantized(Call& call, const ReadyLayer& ready, Blocks blocks, uint32_t function) {
  call.add_quantized("quantized", blocks.quantized, ready.quantized, function);
  call.add_quantized("quantized_colwise", blocks.colwise, ready.quantized_colwise, function);
}

// Adds the inputs that backward takes again from forward. The tensors are dy, saved, x, topk_probs,
// w1, w2, b1, b2, quantized, quantized_colwise. A tensor of one dimension in place of x stands for
// none, for layers whose backward does not read it.
template <std::size_t kCount>
void add_kept(Call& call, const ReadyLayer& ready, const std::array<Tensor, kCount>& in,
              uint32_t function) {
  call.set_saved(in[1]);
  if (in[2].dl().ndim == 2) call.add_input("x", in[2]);
  call.add_input("topk_probs", in[3]);
  call.add("w1", in[4]);
  call.add("w2", in[5]);
  call.add_input_unless_empty("b1", in[6]);
  call.add_input_unless_empty("b2", in[7]);
  add_quantized(call, ready, {in[8], in[9]}, function);
}

// Adds the first tensors of backward operators: dy, and the ones that add_kept() adds.
template <std::size_t kCount>
void add_backward_inputs(Call& call, const ReadyLayer& ready, const std::array<Tensor, kCount>& in,
                         uint32_t function) {
  call.add_input("dy", in[0]);
  add_kept(call, ready, in, function);
  call.allocate_workspace();
}

// Makes these outputs of the layer. Outputs that it does not have are empty.
template <std::size_t kCount>
std::array<Tensor, kCount> make_gradients(const ReadyLayer& ready,
                                          const std::array<const char*, kCount>& names,
                                          int64_t tokens, DLDevice device) {
  std::array<Tensor, kCount> gradients;
  for (std::size_t i = 0; i < kCount; ++i)
    gradients[i] = make_output(ready, names[i], tokens, device);
  return gradients;
}

template <std::size_t kCount>
void add_gradients(Call& call, const ReadyLayer& ready,
                   const std::array<const char*, kCount>& names,
                   const std::array<Tensor, kCount>& gradients) {
  for (std::size_t i = 0; i < kCount; ++i)
    if (ready.find_output(names[i]) != nullptr) call.add(names[i], gradients[i]);
}

}  // namespace moejit::torch
