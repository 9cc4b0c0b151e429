// SPDX-License-Identifier: Apache-2.0
#include "runtime/check/check_activation.h"

#include "runtime/check/bounded_values.h"
#include "runtime/check/expert_amax.h"
#include "runtime/check/kernel_checks.h"
#include "runtime/check/operand_rows.h"
#include "runtime/check/tensor_check.h"
#include "runtime/reference/activation.h"
#include "runtime/reference/compare.h"

#include <algorithm>
#include <cmath>
#include <memory>

namespace moejit::check {
namespace {

using compiler::Activation;

float parameter(const Activation& activation, std::string_view name) {
  const auto found =
      std::ranges::find(activation.parameters, name, &compiler::ActivationParameter::name);
  return found == activation.parameters.end() ? 0.0F : static_cast<float>(found->value);
}

// Returns the values of the variables of a formula.
compiler::Values values_at(double gate, double up) { return {{"gate", gate}, {"up", up}}; }

reference::GatedActivation of_formula(const Activation& activation) {
  const compiler::Expression& formula = activation.formula;
  const auto code_of = [](const compiler::Expression& e) {
    return std::make_shared<const compiler::StraightLine>(compiler::straight_line({&e, 1}));
  };
  const auto value = code_of(formula);
  const auto gate_slope = code_of(compiler::differentiate(formula, "gate"));
  const auto up_slope = code_of(compiler::differentiate(formula, "up"));
  const auto at = [](const auto& code, double gate, double up) {
    return compiler::evaluate(*code, values_at(gate, up)).front();
  };
  // Doubles the first-order error to cover higher orders; adds the rounding of the product with the
  // gradient.
  const auto error_at = [](const auto& code, double gate, double up) {
    const compiler::BoundedValue bounded =
        compiler::evaluate_with_error(*code, values_at(gate, up));
    return 2.0 * bounded.error + 0x1p-24 * std::fabs(bounded.value);
  };
  return {
      .value = [=](double gate, double up) { return at(value, gate, up); },
      .fp32_value = [=](float gate, float up) { return static_cast<float>(at(value, gate, up)); },
      .gate_gradient = [=](double gate, double up,
                           double gradient) { return gradient * at(gate_slope, gate, up); },
      .up_gradient = [=](double gate, double up,
                         double gradient) { return gradient * at(up_slope, gate, up); },
      .value_error = [=](double gate, double up) { return error_at(value, gate, up); },
      .gate_slope_error = [=](double gate, double up) { return error_at(gate_slope, gate, up); },
      .up_slope_error = [=](double gate, double up) { return error_at(up_slope, gate, up); },
      .has_gate = compiler::has_gate(activation)};
}

}  // namespace

reference::GatedActivation reference_of(const Activation& activation) {
  if (activation.preset == "swiglu") return reference::swiglu_activation();
  if (activation.preset == "geglu") return reference::geglu_activation();
  if (activation.preset == "quick_geglu") return reference::quick_geglu_activation();
  if (activation.preset == "clamped_swiglu")
    return reference::clamped_swiglu_activation(parameter(activation, "limit"),
                                                parameter(activation, "alpha"),
                                                parameter(activation, "offset"));
  if (activation.preset == "relu_squared") return reference::relu_squared_activation();
  return of_formula(activation);
}

BoundedRows activation_values(const compiler::Activation& spec, int64_t columns,
                              bool is_interleaved, const KernelTensors& tensors,
                              std::string_view input) {
  const reference::GatedActivation activation = reference_of(spec);
  const reference::Route route = tensors.route();
  const GatedRows h1(tensors.view<uint16_t>(input), columns, has_gate(spec), is_interleaved);
  const std::span<const float> probs = tensors.view<float>("probs");
  const std::vector<uint8_t> is_real = reference::real_rows(route);
  BoundedRows rows{.columns = columns, .value = {}, .bound = {}};
  for (int64_t row = 0; row < route.rows(); ++row) {
    if (is_real[static_cast<size_t>(row)] == 0) {
      rows.value.insert(rows.value.end(), static_cast<size_t>(columns), 0.0);
      rows.bound.insert(rows.bound.end(), static_cast<size_t>(columns), 0.0);
      continue;
    }
    for (int64_t i = 0; i < columns; ++i) {
      const auto [gate, up] = h1.at(row, i);
      const double prob = probs[static_cast<size_t>(row)];
      rows.value.push_back(prob == 0.0 ? 0.0 : activation.value(gate, up) * prob);
      // The kernel may flush a factor of the activation below 2^-126 to 0. The other factors
      // multiply that error; they are at most these.
      const double subnormal = 0x1p-126 * (1.0 + std::fabs(gate)) * (2.0 + std::fabs(up));
      rows.bound.push_back(std::fabs(prob) * (activation.value_error(gate, up) + subnormal) +
                           0x1p-24 * std::fabs(rows.value.back()) + 0x1p-126);
    }
  }
  return rows;
}

void check_bf16_activation(const compiler::Activation& activation, int64_t columns,
                           bool is_interleaved, const KernelTensors& tensors,
                           std::string_view input, std::string_view output, CheckList& list) {
  BoundedRows rows = activation_values(activation, columns, is_interleaved, tensors, input);
  for (size_t i = 0; i < rows.bound.size(); ++i)
    if (rows.bound[i] > 0.0)
      rows.bound[i] = reference::with_bf16_rounding(rows.bound[i], rows.value[i]);
  const std::string_view name = tensors.name(output);
  list.add(check_within(
      name, testing::compare_bf16_within({name, columns}, tensors.view<uint16_t>(output),
                                         rows.value, rows.bound)));
}

void check_activation(const compiler::RowChainSpec& spec, const KernelTensors& tensors,
                      CheckList& list) {
  if (!tensors.has("input")) return;
  const auto values = [&] {
    return activation_values(spec.activation, spec.columns, spec.is_interleaved, tensors);
  };
  if (spec.quantize == compiler::QuantizeStage::k1x32)
    return check_group_codes(values(), tensors, "output", list);
  if (spec.quantize == compiler::QuantizeStage::k1x32Values)
    return check_group_values(values(), tensors, "output", list);
  if (stores_bf16(spec))
    return check_bf16_activation(spec.activation, spec.columns, spec.is_interleaved, tensors,
                                 "input", "output", list);
  if (spec.quantize == compiler::QuantizeStage::k1x128Rounded || has_row_scale(spec))
    return check_rounded_rows(values(), spec.epsilon, tensors, "output", list);
  const reference::Route route = tensors.route();
  const std::vector<float> activated = reference::activate(
      gate_then_up(tensors.view<uint16_t>("input"), spec.columns, spec.is_interleaved),
      tensors.view<float>("probs"), route.rows(), spec.columns, reference_of(spec.activation));
  const ValueRows rows{.columns = spec.columns, .at = [&](int64_t row, int64_t, int64_t column) {
                         return activated[static_cast<size_t>(row * spec.columns + column)];
                       }};
  if (spec.quantize == compiler::QuantizeStage::kAmax)
    return check_values_amax(rows, tensors, list);
  if (spec.quantize == compiler::QuantizeStage::kExpert)
    return check_values_cast(rows, spec.format, spec.amax, tensors, list);
  list.add(check_quantized(tensors.name("output"), tensors.name("output_scale_inv"), activated,
                           route, spec.quantize == compiler::QuantizeStage::k1x128Pairs ? 2 : 1,
                           tensors.rows("output")));
}

}  // namespace moejit::check
