// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/check/tensor_check.h"
#include "cli/tensors/host_tensor.h"
#include "compiler/layer.h"
#include "runtime/reference/layer_shape.h"
#include "runtime/reference/route.h"

#include <string>
#include <string_view>
#include <vector>

namespace moejit::cli {

struct Bias;

reference::LayerShape shape_of(const compiler::Layer& layer);

// The tensors that a layer's kernels wrote, as operands of the CPU reference, and what they were
// found to be. `results` are those of check_forward() and check_backward() and have to stay.
class LayerResults {
 public:
  LayerResults(const compiler::Layer& layer, const TensorMap& results)
      : shape_(shape_of(layer)), results_(results) {}

  const reference::LayerShape& shape() const { return shape_; }
  // Route from the results themselves.
  reference::Route route() const;

  bool has(std::string_view name) const { return results_.find(name) != results_.end(); }
  const HostTensor& at(std::string_view name) const { return results_.find(name)->second; }
  // `name` without "_q" and "_scale_inv".
  reference::QuantizedRows rows(std::string_view name) const;
  reference::QuantizedWeights weights(std::string_view name, int64_t sections) const;

  void add(TensorCheck check) { checks_.push_back(std::move(check)); }
  void check_codes(std::string_view tensor, int64_t columns, const std::vector<uint8_t>& wanted);
  void check_floats(std::string_view tensor, int64_t columns, const std::vector<float>& wanted);
  bool check_integers(std::string_view tensor, int64_t columns, const std::vector<int32_t>& wanted);
  // saved_tokens, where the layer has it.
  void check_saved_tokens(int64_t tokens);
  // bf16 products of rows and weights, and a bias; only some rows where the CPU would take too
  // long.
  void check_gemm(std::string_view tensor, const reference::QuantizedRows& rows,
                  const reference::QuantizedWeights& weights, int64_t sharing);
  void check_gemm(std::string_view tensor, const reference::QuantizedRows& rows,
                  const reference::QuantizedWeights& weights, int64_t sharing, const Bias& bias);
  // dprobs from the blocks of its rows, behind which biases add theirs.
  void check_dprobs();

  std::vector<TensorCheck> take_checks() { return std::move(checks_); }

 private:
  void check_dprobs(const std::vector<float>& wanted);

  reference::LayerShape shape_;
  const TensorMap& results_;
  std::vector<TensorCheck> checks_;
};

}  // namespace moejit::cli
