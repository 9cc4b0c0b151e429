// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/plan.h"
#include "runtime/checkpoint/expert_weights.h"
#include "runtime/host_tensor.h"
#include "runtime/trial/random_layer_inputs.h"

#include <cstdint>
#include <optional>
#include <string>

namespace moejit::trial {

// Where the tensors that a forward pass reads come from.
struct InputOptions {
  std::string input_path;                    // empty: random data
  std::string prefix;                        // of the names of tensors in this file
  checkpoint::CheckpointOptions checkpoint;  // no shards: weights from the same place as x
  std::optional<int64_t> tokens;             // T of random data; default: min(max_tokens, 128)
  uint64_t seed = 0;
  RandomRouting routing = RandomRouting::kSkewed;  // of random data
};

// Loads x, topk_ids, topk_probs, the state if there is one, and the weights of one call, each
// checked against the plan. A state that a file does not have is that of a first step. Weights
// are either w1 and w2, or, if the file or checkpoint has them quantized, w1_q, w1_scale_inv, w2_q
// and w2_scale_inv. Errors name file and tensor: kMissingTensor, kTensorMismatch, kInvalidValue.
Result<runtime::TensorMap> load_inputs(const compiler::LayerPlan& plan,
                                       const InputOptions& options);

// Returns T of random data: the number asked for, within the layer's max_tokens. Error
// kInvalidValue.
Result<int64_t> random_token_count(const compiler::Layer& layer, std::optional<int64_t> asked);

// Returns whether the weights among `inputs` are quantized already.
bool has_quantized_weights(const runtime::TensorMap& inputs);

// Returns T of these inputs.
int64_t token_count(const runtime::TensorMap& inputs);

}  // namespace moejit::trial
