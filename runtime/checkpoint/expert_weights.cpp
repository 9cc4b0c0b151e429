// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/expert_weights.h"

#include "compiler/support/json_document.h"
#include "runtime/checkpoint/dequantize.h"
#include "runtime/checkpoint/expert_group.h"
#include "runtime/checkpoint/loaded_experts.h"
#include "runtime/reference/gate_up_layout.h"

#include <fmt/core.h>

namespace moejit::checkpoint {
namespace {

using runtime::elements;
using runtime::HostTensor;
using runtime::make_tensor;
using runtime::TensorMap;

using compiler::GateUpLayout;

// Puts gate and up of a tensor with `columns` columns into the layer's order.
void reorder(HostTensor& tensor, GateUpLayout wanted, int64_t half, int64_t columns) {
  const auto values = elements<uint16_t>(tensor);
  tensor = make_tensor(tensor.dtype, tensor.shape,
                       wanted == GateUpLayout::kInterleaved
                           ? reference::interleaved<uint16_t>(values, half, columns)
                           : reference::gate_first<uint16_t>(values, half, columns));
}

Result<LoadedExperts> load(const compiler::Layer& layer, const CheckpointOptions& options,
                           const ExpertGroup& group, ShardSet& shards) {
  if (has_split_experts(group))
    return load_split_experts(layer, group, options.first_expert, shards);
  if (has_fused_experts(group)) return load_fused_experts(layer, group, options, shards);
  return fail(Stage::kFile, ErrorCode::kTensorMismatch,
              fmt::format("{}: the experts of {} have tensors called {} ..., wanted "
                          "N.gate_proj.weight and so on, or gate_up_proj and down_proj",
                          shards.description(), quote_for_message(group.prefix, 200),
                          quote_for_message(*group.fused.begin())),
              "other names are not read: rename the tensors, or hand them over with --input");
}

}  // namespace

Result<TensorMap> load_expert_weights(const compiler::Layer& layer,
                                      const CheckpointOptions& options) {
  MOEJIT_TRY_ASSIGN(ShardSet shards, ShardSet::open(options.shards));
  MOEJIT_TRY_ASSIGN(const ExpertGroup group, choose_expert_group(shards, options));
  MOEJIT_TRY_ASSIGN(LoadedExperts loaded, load(layer, options, group, shards));
  // dgrad multiplies with columns of the weights. They are quantized from bf16 w1 and w2, so the
  // layer needs these.
  if (loaded.tensors.contains("w1_q") &&
      (!compiler::has_scales(layer.recipe.weights) || compiler::has_backward(layer)))
    dequantize_weights(layer, loaded.tensors);
  if (loaded.layout == layer.gate_up_layout) return std::move(loaded.tensors);
  // Biases have one column. Quantized weights are not reordered: gate comes first in both layouts.
  for (const auto& [name, columns] : {std::pair("w1", layer.hidden), std::pair("b1", 1)})
    if (const auto found = loaded.tensors.find(name); found != loaded.tensors.end())
      reorder(found->second, layer.gate_up_layout, layer.intermediate, columns);
  return std::move(loaded.tensors);
}

}  // namespace moejit::checkpoint
