// SPDX-License-Identifier: Apache-2.0
#include "cli/check/check_quantized.h"
#include "cli/check/gated_rows.h"
#include "cli/check/kernel_checks.h"
#include "cli/check/reference_activation.h"
#include "runtime/reference/activation.h"
#include "runtime/reference/sum_error.h"

#include <cmath>

namespace moejit::cli {
namespace {

// Checks an activation that is stored in bf16.
void check_bf16(const compiler::RowChainSpec& spec, const KernelTensors& tensors, CheckList& list) {
  const reference::GatedActivation activation = reference_of(spec.activation);
  const reference::Route route = tensors.route();
  const GatedRows h1(tensors.view<uint16_t>("input"), spec.columns, has_gate(spec.activation),
                     spec.is_interleaved);
  const std::span<const float> probs = tensors.view<float>("probs");
  const std::vector<uint8_t> is_real = reference::real_rows(route);
  std::vector<double> values, bounds;
  for (int64_t row = 0; row < route.rows(); ++row) {
    if (is_real[static_cast<size_t>(row)] == 0) {
      values.insert(values.end(), static_cast<size_t>(spec.columns), 0.0);
      bounds.insert(bounds.end(), static_cast<size_t>(spec.columns), 0.0);
      continue;
    }
    for (int64_t i = 0; i < spec.columns; ++i) {
      const auto [gate, up] = h1.at(row, i);
      const double prob = probs[static_cast<size_t>(row)];
      values.push_back(prob == 0.0 ? 0.0 : activation.value(gate, up) * prob);
      // The kernel may flush a factor of the activation below 2^-126 to 0; the other factors, which
      // multiply that error, are at most these.
      const double subnormal = 0x1p-126 * (1.0 + std::fabs(gate)) * (2.0 + std::fabs(up));
      const double error = std::fabs(prob) * (activation.value_error(gate, up) + subnormal) +
                           0x1p-24 * std::fabs(values.back()) + 0x1p-126;
      bounds.push_back(reference::with_bf16_rounding(error, values.back()));
    }
  }
  const std::string_view name = tensors.name("output");
  list.add(check_within(
      name, testing::compare_bf16_within({name, spec.columns}, tensors.view<uint16_t>("output"),
                                         values, bounds)));
}

}  // namespace

void check_activation(const compiler::RowChainSpec& spec, const KernelTensors& tensors,
                      CheckList& list) {
  if (!tensors.has("input")) return;
  if (stores_bf16(spec)) return check_bf16(spec, tensors, list);
  const reference::Route route = tensors.route();
  const std::vector<float> values = reference::activate(
      gate_then_up(tensors.view<uint16_t>("input"), spec.columns, spec.is_interleaved),
      tensors.view<float>("probs"), route.rows(), spec.columns, reference_of(spec.activation));
  list.add(check_quantized(tensors.name("output"), tensors.name("output_scale_inv"), values, route,
                           spec.quantize == compiler::QuantizeStage::k1x128Pairs ? 2 : 1,
                           tensors.rows("output")));
}

}  // namespace moejit::cli
