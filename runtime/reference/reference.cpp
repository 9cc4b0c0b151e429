// SPDX-License-Identifier: Apache-2.0
#include "runtime/reference/reference.h"

#include "runtime/reference/number_formats.h"
#include "runtime/reference/parallel_for.h"

#include <cmath>
#include <utility>

namespace moejit::reference {
namespace {

double bf16_dot(const std::vector<double>& a, const std::uint16_t* b) {
  double sum = 0.0;
  for (std::size_t k = 0; k < a.size(); ++k) sum += a[k] * float_from_bf16(b[k]);
  return sum;
}

// Sends one token through one expert, all in fp64; w1 and w2 point at the expert's weights.
std::vector<double> unquantized_expert(const LayerShape& shape, const std::vector<double>& x,
                                       double prob, const std::uint16_t* w1,
                                       const std::uint16_t* w2) {
  std::vector<double> activation(shape.intermediate);
  parallel_for(shape.intermediate, [&](std::int64_t i) {
    const double gate = bf16_dot(x, w1 + i * shape.hidden);
    const double up = bf16_dot(x, w1 + (shape.intermediate + i) * shape.hidden);
    activation[i] = gate / (1.0 + std::exp(-gate)) * up * prob;
  });
  std::vector<double> y(shape.hidden);
  parallel_for(shape.hidden,
               [&](std::int64_t i) { y[i] = bf16_dot(activation, w2 + i * shape.intermediate); });
  return y;
}

}  // namespace

ReferenceForward reference_forward(const LayerShape& shape, const LayerInputs& inputs) {
  const std::int64_t experts = shape.experts, hidden = shape.hidden;
  const std::int64_t intermediate = shape.intermediate, sharing = shape.sharing;
  QuantizedWeights w1 = inputs.w1_quantized ? *inputs.w1_quantized
                                            : quantize_128x128(inputs.w1, experts, 2 * intermediate,
                                                               hidden, 2, sharing);
  QuantizedWeights w2 =
      inputs.w2_quantized ? *inputs.w2_quantized
                          : quantize_128x128(inputs.w2, experts, hidden, intermediate, 1, sharing);

  QuantizedRows x = quantize_1x128(inputs.x, inputs.tokens, hidden, kActivationEps, sharing);
  Route routed = route(inputs.topk_ids, inputs.tokens, shape);
  PermutedRows permuted = permute_pad(x, inputs.topk_probs, routed, shape.top_k);
  std::vector<std::uint16_t> h1 = grouped_gemm(permuted.data, w1, routed, sharing);
  QuantizedRows act = activation_quantize(h1, permuted.probs, routed, intermediate, sharing);
  std::vector<std::uint16_t> h2 = grouped_gemm(act, w2, routed, sharing);
  std::vector<std::uint16_t> y = unpermute(h2, routed.row_map, inputs.tokens, shape.top_k, hidden);

  return {.x_q = std::move(x.q),
          .x_scale_inv = std::move(x.scale_inv),
          .counts = std::move(routed.counts),
          .offs = std::move(routed.offs),
          .row_map = std::move(routed.row_map),
          .status = routed.status,
          .permuted_q = std::move(permuted.data.q),
          .permuted_scale_inv = std::move(permuted.data.scale_inv),
          .permuted_probs = std::move(permuted.probs),
          .w1_q = std::move(w1.q),
          .w1_scale_inv = std::move(w1.scale_inv),
          .w2_q = std::move(w2.q),
          .w2_scale_inv = std::move(w2.scale_inv),
          .h1 = std::move(h1),
          .act_q = std::move(act.q),
          .act_scale_inv = std::move(act.scale_inv),
          .h2 = std::move(h2),
          .y = std::move(y)};
}

std::vector<double> unquantized_forward(const LayerShape& shape, const LayerInputs& inputs) {
  const Route routed = route(inputs.topk_ids, inputs.tokens, shape);
  std::vector<double> y(inputs.tokens * shape.hidden, 0.0);
  for (std::int64_t i = 0; i < inputs.tokens * shape.top_k; ++i) {
    if (routed.row_map[i] < 0 || inputs.topk_probs[i] == 0.0F) continue;
    const std::int64_t token = i / shape.top_k;
    const std::int64_t expert = inputs.topk_ids[i];
    std::vector<double> x(shape.hidden);
    for (std::int64_t k = 0; k < shape.hidden; ++k) {
      x[k] = float_from_bf16(inputs.x[token * shape.hidden + k]);
    }
    const std::int64_t w1_start = expert * 2 * shape.intermediate * shape.hidden;
    const std::int64_t w2_start = expert * shape.hidden * shape.intermediate;
    const std::vector<double> part = unquantized_expert(shape, x, inputs.topk_probs[i],
                                                        &inputs.w1[w1_start], &inputs.w2[w2_start]);
    for (std::int64_t k = 0; k < shape.hidden; ++k) y[token * shape.hidden + k] += part[k];
  }
  return y;
}

}  // namespace moejit::reference
