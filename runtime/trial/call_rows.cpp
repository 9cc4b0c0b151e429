// SPDX-License-Identifier: Apache-2.0
#include "runtime/trial/call_rows.h"

#include "runtime/reference/route.h"
#include "runtime/trial/routing_tensors.h"

namespace moejit::trial {

using runtime::HostTensor;
using runtime::TensorMap;

compiler::CallRows count_call_rows(const compiler::Layer& layer, const TensorMap& inputs) {
  const HostTensor& ids = inputs.at("topk_ids");
  const int64_t tokens = ids.shape.front();
  const reference::Route route = reference::route(expert_ids(ids), tokens,
                                                  {.experts = layer.local_experts,
                                                   .top_k = layer.top_k,
                                                   .hidden = layer.hidden,
                                                   .intermediate = layer.intermediate,
                                                   .alignment = layer.splits_alignment,
                                                   .max_rows = layer.max_permuted_rows});
  return {.tokens = tokens,
          .routed = route.routed_rows(),
          .padded = route.rows(),
          .routed_tokens = route.routed_tokens(layer.top_k),
          .routed_experts = route.routed_experts()};
}

}  // namespace moejit::trial
