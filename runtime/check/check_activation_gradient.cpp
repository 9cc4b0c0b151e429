// SPDX-License-Identifier: Apache-2.0
#include "runtime/check/bounded_values.h"
#include "runtime/check/check_activation.h"
#include "runtime/check/expert_amax.h"
#include "runtime/check/kernel_checks.h"
#include "runtime/check/operand_rows.h"
#include "runtime/check/tensor_check.h"
#include "runtime/reference/activation.h"
#include "runtime/reference/compare.h"

#include <algorithm>
#include <cfloat>
#include <cmath>

namespace moejit::check {
namespace {

using runtime::copy_elements;
using runtime::elements;
using runtime::HostTensor;

using reference::ActivationGradients;

// Relative error of an activation before it is rounded to bf16: the sigmoid's error, and four
// roundings.
constexpr double kActivationError = 0x1p-17 + 4 * 0x1p-24;

// The fields of a kernel's spec that shape the gradient of its activation.
struct Shape {
  int64_t columns = 0;
  int64_t pitch = 0;  // columns of one half of a stored row
  bool is_interleaved = false;
};

ActivationGradients gradients_of(const compiler::Activation& activation, const Shape& shape,
                                 const KernelTensors& tensors) {
  const reference::Route route = tensors.route();
  ActivationGradients gradients = reference::activation_backward(
      gate_then_up(tensors.view<uint16_t>("input"), shape.columns, shape.is_interleaved),
      tensors.view<uint16_t>("gradient"), tensors.view<float>("probs"), route.rows(), shape.columns,
      reference_of(activation));
  reference::clear_pad_rows(gradients, route, shape.columns);
  return gradients;
}

void check_quantized_rows(const ActivationGradients& wanted, const Shape& shape,
                          const KernelTensors& tensors, CheckList& list) {
  const reference::Route route = tensors.route();
  std::vector<float> values;  // rows of gate, then rows of up, each followed by zeros
  for (int64_t row = 0; row < route.rows(); ++row)
    for (const std::vector<float>* half : {&wanted.gate, &wanted.up}) {
      if (half->empty()) continue;
      const auto first = half->begin() + row * shape.columns;
      values.insert(values.end(), first, first + shape.columns);
      values.resize(values.size() + static_cast<size_t>(shape.pitch - shape.columns));
    }
  list.add(check_quantized(tensors.name("output"), tensors.name("output_scale_inv"), values, route,
                           1, tensors.rows("output")));
}

// Returns the gradients as rows of dh1, before they are rounded. Each is a sum of products of dact,
// the probability, and functions of gate and up that grow no faster than the factors below. The
// terms may cancel, so the error of the largest term bounds the error of the sum. A formula's
// derivatives have errors of their own, since rounding may decide which branch they take.
BoundedRows bounded_gradients(const compiler::Activation& activation, const Shape& shape,
                              const ActivationGradients& wanted, const KernelTensors& tensors) {
  const bool is_gated = has_gate(activation);
  const reference::GatedActivation functions = reference_of(activation);
  const reference::Route route = tensors.route();
  const GatedRows h1(tensors.view<uint16_t>("input"), shape.columns, is_gated,
                     shape.is_interleaved);
  const GatedRows dh1({}, shape.pitch, is_gated, shape.is_interleaved);
  const std::span<const uint16_t> dact = tensors.view<uint16_t>("gradient");
  const std::span<const float> probs = tensors.view<float>("probs");
  const std::vector<uint8_t> is_real = reference::real_rows(route);
  const std::vector<double> zeros(static_cast<size_t>(route.rows() * dh1.width()));
  BoundedRows rows{.columns = dh1.width(), .value = zeros, .bound = zeros};
  for (int64_t row = 0; row < route.rows(); ++row) {
    if (is_real[static_cast<size_t>(row)] == 0) continue;
    for (const bool is_up : {false, true}) {
      if (!is_up && !is_gated) continue;
      const auto& slope_error = is_up ? functions.up_slope_error : functions.gate_slope_error;
      for (int64_t i = 0; i < shape.columns; ++i) {
        const auto at = static_cast<size_t>(row * shape.columns + i);
        const auto [gate, up] = h1.at(row, i);
        const double gradient =
            double{reference::float_from_bf16(dact[at])} * double{probs[static_cast<size_t>(row)]};
        const double largest = std::fabs(gradient) * (1.0 + std::fabs(gate)) *
                               (is_up && is_gated ? 1.0 : 1.0 + std::fabs(up));
        const size_t in_dh1 = dh1.index(row, is_up, i);
        rows.value[in_dh1] = is_up ? wanted.up[at] : wanted.gate[at];
        rows.bound[in_dh1] = 2 * kActivationError * largest + 0x1p-126;
        if (slope_error) rows.bound[in_dh1] += std::fabs(gradient) * slope_error(gate, up);
      }
    }
  }
  return rows;
}

void check_bf16_rows(BoundedRows rows, const KernelTensors& tensors, CheckList& list) {
  for (size_t i = 0; i < rows.bound.size(); ++i)
    if (rows.bound[i] > 0.0)
      rows.bound[i] = reference::with_bf16_rounding(rows.bound[i], rows.value[i]);
  const std::string_view name = tensors.name("output");
  list.add(check_within(
      name, testing::compare_bf16_within({name, rows.columns}, tensors.view<uint16_t>("output"),
                                         rows.value, rows.bound)));
}

// Checks the partial sums of dprobs. If products leave fp32's range, a sum may be either infinity,
// or NaN where both meet; any of these is accepted.
void check_dprobs_blocks(ActivationGradients& wanted, const KernelTensors& tensors,
                         CheckList& list) {
  const HostTensor& tensor = tensors.at("output_dprobs");
  const std::span<const float> sums = elements<float>(tensor);
  for (size_t i = 0; i < std::min(sums.size(), wanted.dprobs_blocks.size()); ++i)
    if (!std::isfinite(sums[i]) &&
        std::fabs(wanted.dprobs_blocks[i]) + wanted.dprobs_bounds[i] > double{FLT_MAX})
      wanted.dprobs_blocks[i] = sums[i];
  const std::string_view name = tensors.name("output_dprobs");
  list.add(
      check_within(name, testing::compare_f32_within({name, tensor.shape.back()}, sums,
                                                     wanted.dprobs_blocks, wanted.dprobs_bounds)));
}

// Returns a view of the gradients by rows. `wanted` must outlive it.
ValueRows rows_of(const ActivationGradients& wanted, int64_t columns) {
  const bool has_gate = !wanted.gate.empty();
  return {.parts = has_gate ? 2 : 1,
          .columns = columns,
          .at = [&wanted, columns, has_gate](int64_t row, int64_t part, int64_t column) {
            const std::vector<float>& half = has_gate && part == 0 ? wanted.gate : wanted.up;
            return half[static_cast<size_t>(row * columns + column)];
          }};
}

// Checks the gradients in the format in which the kernel stores them.
void check_output(const compiler::RowChainSpec& spec, const ActivationGradients& wanted,
                  const Shape& shape, const KernelTensors& tensors, CheckList& list) {
  const ValueRows rows = rows_of(wanted, spec.columns);
  if (spec.quantize == compiler::QuantizeStage::kAmax)
    return check_values_amax(rows, tensors, list);
  if (spec.quantize == compiler::QuantizeStage::kExpert)
    return check_values_cast(rows, spec.format, spec.amax, tensors, list);
  if (spec.quantize == compiler::QuantizeStage::k1x32)
    return check_group_codes(bounded_gradients(spec.activation, shape, wanted, tensors), tensors,
                             "output", list);
  if (spec.quantize == compiler::QuantizeStage::k1x32Values)
    return check_group_values(bounded_gradients(spec.activation, shape, wanted, tensors), tensors,
                              "output", list);
  if (stores_bf16(spec))
    return check_bf16_rows(bounded_gradients(spec.activation, shape, wanted, tensors), tensors,
                           list);
  if (spec.quantize == compiler::QuantizeStage::k1x128Rounded || has_row_scale(spec))
    return check_rounded_rows(bounded_gradients(spec.activation, shape, wanted, tensors),
                              spec.epsilon, tensors, "output", list);
  check_quantized_rows(wanted, shape, tensors, list);
}

}  // namespace

void check_activation_gradient(const compiler::RowChainSpec& spec, const KernelTensors& tensors,
                               CheckList& list) {
  if (!tensors.has("input") || !tensors.has("gradient")) return;
  const Shape shape{.columns = spec.columns,
                    .pitch = spec.pitch > 0 ? spec.pitch : spec.columns,
                    .is_interleaved = spec.is_interleaved};
  ActivationGradients wanted = gradients_of(spec.activation, shape, tensors);
  if (tensors.has("output")) check_output(spec, wanted, shape, tensors, list);
  if (tensors.has("output_dprobs")) check_dprobs_blocks(wanted, tensors, list);
}

namespace {

// The rows of the activation as another kernel stored them; with these, codes are exact. Null if no
// kernel of the plan stores them or their values are unknown.
struct StoredActivation {
  const HostTensor* codes = nullptr;
  const HostTensor* scales = nullptr;
};

StoredActivation find_activation(const KernelTensors& tensors) {
  const std::string_view h1 = tensors.name("input");
  for (const compiler::KernelPlan& kernel : tensors.plan().kernels) {
    const auto name_of = [&](std::string_view role) -> std::string_view {
      const auto found = std::ranges::find(kernel.arguments, role, &compiler::KernelArgument::role);
      return found == kernel.arguments.end() ? "" : std::string_view(found->tensor);
    };
    const auto* const chain = std::get_if<compiler::RowChainSpec>(&kernel.spec);
    const bool activates =
        chain != nullptr && chain->transform == compiler::TransformStage::kActivationProbability &&
        chain->quantize != compiler::QuantizeStage::kAmax && name_of("input") == h1;
    const auto* const gemm = std::get_if<compiler::GroupedGemmSpec>(&kernel.spec);
    const bool is_epilogue = gemm != nullptr && stores_activation(*gemm) && name_of("d") == h1;
    if (!activates && !is_epilogue) continue;
    return {tensors.find_named(name_of(activates ? "output" : "q")),
            tensors.find_named(name_of(activates ? "output_scale_inv" : "q_scale_inv"))};
  }
  return {};
}

// Checks the codes by rows, which have the scale of their row's expert, and the same bytes by
// columns.
void check_expert_casts(const compiler::GatedGradientSpec& spec, const ActivationGradients& wanted,
                        const KernelTensors& tensors, CheckList& list) {
  if (tensors.has("output") && tensors.has("expert_scales"))
    check_values_cast(rows_of(wanted, spec.columns), spec.format, spec.amax, tensors, list);
  if (tensors.has("output_colwise") && tensors.has("output"))
    check_kept_bytes(tensors, tensors.at("output"), "output_colwise", list);
  const HostTensor* const act = find_activation(tensors).codes;
  if (act != nullptr && tensors.has("act_colwise"))
    check_kept_bytes(tensors, *act, "act_colwise", list);
}

// Checks the largest magnitudes of the gradients and of the activation.
void check_magnitudes(const compiler::GatedGradientSpec& spec, const BoundedRows& gradients,
                      const KernelTensors& tensors, CheckList& list) {
  if (tensors.has("output")) check_segment_amax(gradients, spec.columns, tensors, list);
  if (tensors.has("output_colwise")) check_column_amax(gradients, tensors, "output_colwise", list);
  if (tensors.has("act_colwise"))
    check_column_amax(activation_values(spec.activation, spec.columns, false, tensors), tensors,
                      "act_colwise", list);
}

// Checks casts by columns of the gradients and of the activation. Their scales follow from the
// largest magnitudes.
void check_known_scales(const compiler::GatedGradientSpec& spec, const BoundedRows& gradients,
                        const KernelTensors& tensors, CheckList& list) {
  if (tensors.has("output_colwise") && tensors.has("column_scale_inv"))
    check_scaled_columns(gradients, tensors, "output_colwise", "column_scale_inv", list);
  if (tensors.has("act_colwise") && tensors.has("act_column_scale_inv"))
    check_scaled_columns(activation_values(spec.activation, spec.columns, false, tensors), tensors,
                         "act_colwise", "act_column_scale_inv", list);
}

// Checks casts of values that no kernel of the plan stores: by rows and by columns.
void check_casts(const compiler::GatedGradientSpec& spec, const Shape& shape,
                 const ActivationGradients& wanted, const KernelTensors& tensors, CheckList& list) {
  const BoundedRows gradients = bounded_gradients(spec.activation, shape, wanted, tensors);
  if (spec.pass == compiler::GradientPass::kAmax)
    return check_magnitudes(spec, gradients, tensors, list);
  if (tensors.has("output")) check_rounded_rows(gradients, spec.epsilon, tensors, "output", list);
  if (spec.pass == compiler::GradientPass::kCast)
    return check_known_scales(spec, gradients, tensors, list);
  if (tensors.has("output_colwise"))
    check_rounded_columns(gradients, spec.epsilon, tensors, "output_colwise", list);
  if (tensors.has("act_colwise"))
    check_rounded_columns(activation_values(spec.activation, spec.columns, false, tensors),
                          spec.epsilon, tensors, "act_colwise", list);
}

}  // namespace

void check_kernel(const compiler::GatedGradientSpec& spec, const KernelTensors& tensors,
                  CheckList& list) {
  if (!tensors.has("input") || !tensors.has("gradient")) return;
  const Shape shape{.columns = spec.columns, .pitch = stored_columns(spec)};
  ActivationGradients wanted = gradients_of(spec.activation, shape, tensors);
  if (tensors.has("output_dprobs")) check_dprobs_blocks(wanted, tensors, list);
  if (spec.casts_columns) return check_casts(spec, shape, wanted, tensors, list);
  if (spec.has_expert_scale) return check_expert_casts(spec, wanted, tensors, list);
  if (tensors.has("output")) check_quantized_rows(wanted, shape, tensors, list);
  if (tensors.has("output_colwise") && tensors.has("output"))
    check_transposed(tensors, tensors.rows("output"), "output_colwise", list);
  if (const auto [codes, scales] = find_activation(tensors);
      codes != nullptr && scales != nullptr && tensors.has("act_colwise"))
    check_transposed(tensors,
                     {codes->shape[0], codes->shape[1], copy_elements<uint8_t>(*codes),
                      copy_elements<float>(*scales)},
                     "act_colwise", list);
}

}  // namespace moejit::check
