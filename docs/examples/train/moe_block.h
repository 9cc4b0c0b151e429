// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/compiler.h"
#include "runtime/device.h"
#include "runtime/engine.h"
#include "runtime/prepared_plan.h"

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace train {

using moejit::Result;

struct BlockSizes {
  int64_t tokens = 0, hidden = 0, intermediate = 0, experts = 0, top_k = 0;
};

// Weights in fp32 with the moments that Adam keeps of their gradients.
class Parameter {
 public:
  Parameter(int64_t size, double deviation, uint64_t seed);
  const std::vector<float>& values() const { return values_; }
  void update(const std::vector<float>& gradient, float rate);

 private:
  std::vector<float> values_, first_, second_;
  float first_share_ = 1.0f, second_share_ = 1.0f;  // beta^step
};

// y = MoE(x). A linear router on the host sends each token to its top_k experts with the softmax of
// their logits. A moejit layer on the device runs the experts. Matrices are row-major [tokens,
// hidden]; x and y cross the bus every step, which a real trainer would not do.
class MoeBlock {
 public:
  static Result<std::unique_ptr<MoeBlock>> create(const BlockSizes& sizes, std::string_view recipe,
                                                  uint64_t seed, moejit::runtime::Device& device,
                                                  moejit::runtime::Engine& engine);
  ~MoeBlock();
  MoeBlock(const MoeBlock&) = delete;
  MoeBlock& operator=(const MoeBlock&) = delete;

  Result<std::vector<float>> forward(const std::vector<float>& x);
  // Computes the gradient of x from the gradient of y, for the last forward(). Keeps the gradients
  // of the weights.
  Result<std::vector<float>> backward(const std::vector<float>& dy);
  // One step of Adam.
  Result<void> update(float rate);

 private:
  MoeBlock(const BlockSizes& sizes, uint64_t seed, moejit::runtime::Device& device);
  Result<void> allocate();
  Result<void> start_state();
  Result<void> upload_weights();
  void route(const std::vector<float>& x);
  // Adds what the probabilities' gradients say about x, and keeps the router's gradient.
  void backward_router(const std::vector<float>& dprobs, std::vector<float>& dx);
  void* address_of(std::string_view tensor) const;
  template <typename T>
  Result<void> write(std::string_view tensor, const std::vector<T>& values);
  template <typename T>
  Result<std::vector<T>> read(std::string_view tensor, int64_t count);

  BlockSizes sizes_;
  moejit::runtime::Device& device_;
  std::unique_ptr<moejit::runtime::PreparedPlan> layer_;
  std::deque<std::vector<int64_t>> shapes_;
  std::vector<moejit::runtime::TensorRef> tensors_;
  moejit::runtime::CallMemory memory_;
  Parameter w1_, w2_, router_;
  std::vector<float> x_, topk_probs_, router_gradient_;
  std::vector<int32_t> topk_ids_;
};

}  // namespace train
