// SPDX-License-Identifier: Apache-2.0
#include "cli/inputs/routed_rows.h"

#include "tests/support/reference/route.h"

namespace moejit::cli {

RoutedRows count_routed_rows(const compiler::Layer& layer, const TensorMap& inputs) {
  const HostTensor& ids = inputs.at("topk_ids");
  const reference::Route route = reference::route(elements<int32_t>(ids), ids.shape.front(),
                                                  {.experts = layer.local_experts,
                                                   .top_k = layer.top_k,
                                                   .hidden = layer.hidden,
                                                   .intermediate = layer.intermediate,
                                                   .alignment = layer.splits_alignment,
                                                   .max_rows = layer.max_permuted_rows});
  return {.tokens = route.routed_tokens(layer.top_k),
          .routed = route.routed_rows(),
          .padded = route.rows()};
}

}  // namespace moejit::cli
