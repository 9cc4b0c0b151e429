// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/bindings/torch/planned_tensor.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace moejit::torch {

// A quantized weight in its block, at a multiple of 256 bytes.
struct QuantizedSlice {
  PlannedTensor tensor;
  int64_t offset = 0;
  uint32_t used_by = 0;  // of MOEJIT_USED_BY_FORWARD, ...
};

// One of the two blocks of quantized weights.
struct QuantizedBlock {
  std::vector<QuantizedSlice> slices;
  int64_t bytes = 0;
  // The digest by which update_weights sees changes, among the slices; 0 bytes: there is none.
  int64_t digest_offset = 0;
  int64_t digest_bytes = 0;
};

// A tensor that calls read and write from step to step.
struct StateTensor {
  std::string name;
  uint32_t used_by = 0;  // of MOEJIT_USED_BY_FORWARD, ...
};

// A layer that is ready for calls on one device, and what operators need of its plan.
struct ReadyLayer {
  moejit_plan* layer = nullptr;  // NULL for a layer of a group
  moejit_device* device = nullptr;
  moejit_plan_info info{};
  // Row-wise weights, which forward reads, with the digest, and column-wise ones, which only
  // backward reads. They are two blocks so that the first can be freed before backward.
  QuantizedBlock quantized;
  QuantizedBlock quantized_colwise;
  std::vector<PlannedTensor> outputs;
  std::vector<StateTensor> state;

  // Returns whether backward reads row-wise weights too; it reads them if it computes activations
  // again.
  bool backward_reads_quantized() const;
  // Returns whether a function, one of MOEJIT_USED_BY_FORWARD, ..., takes this tensor of the state.
  bool uses_state(std::string_view name, uint32_t function) const;
  // Returns the output of this name, or NULL if the plan has none, such as a gradient that the
  // description does not ask for.
  const PlannedTensor* find_output(std::string_view name) const;
  // Returns the sizes of the blocks of a call over so many tokens; throws for more than max_tokens.
  moejit_plan_sizes sizes(int64_t tokens) const;
};

// Returns the layer of an operator's last argument on the device of its tensors. The first call
// compiles or fetches the kernels; later ones take a shared lock and look the text up. Layers stay
// until the process ends: graphs of torch may hold their kernels. Threads may call it at any time;
// two that ask for different layers prepare them at the same time. The text of a layer of a group
// is an error: ready_group_layer() takes it. Throws the errors of moejit_plan_create and
// moejit_plan_prepare, and a sentence for a text of another version, plan or target.
const ReadyLayer& ready_layer(std::string_view text, DLDevice device);

// Keeps in `ready` the facts of a tensor of the plan that operators need.
void keep(ReadyLayer& ready, const moejit_tensor_info& info, std::size_t index);

}  // namespace moejit::torch
