// SPDX-License-Identifier: Apache-2.0
#include "compiler/planner/operations/activation.h"

#include "compiler/planner/operation.h"
#include "compiler/planner/operations/scales.h"

#include <fmt/core.h>

namespace moejit::compiler {

template <>
KernelPlan make_kernel(const Operation& operation, const Activate& activate, const KernelContext&) {
  const QuantizeStage quantize = activate.finds_amax
                                     ? QuantizeStage::kAmax
                                     : quantize_stage(activate.format, activate.blocks_per_scale);
  KernelPlan kernel{
      .spec = with_whole_rows(
          {.load = has_gate(activate.activation) ? LoadStage::kGatedRows : LoadStage::kUpRows,
           .transform = TransformStage::kActivationProbability,
           .quantize = quantize,
           .store = StoreStage::kGroupedRows,
           .columns = activate.columns,
           .local_experts = activate.local_experts,
           .epsilon = activate.format.epsilon,
           .segments_in_flight = 2,
           .is_interleaved = activate.is_interleaved,
           .format = activate.format.dtype,
           .activation = activate.activation,
           .amax = activate.amax}),
      .reasons = {"the routing probability is applied here, so unpermute is a plain sum",
                  "a kernel of its own, which reads h1 again"},
  };
  if (activate.finds_amax) kernel.reasons = {std::string(kAmaxReason)};
  add_arguments(kernel, operation,
                {"input", "probs", "counts", "offs", "output", "expert_scales", "amax"});
  if (activate.is_interleaved) kernel.reasons.emplace_back(kInterleavedH1Reason);
  return kernel;
}

namespace {

constexpr std::string_view kDprobsReason =
    "the gradient of a probability is added up by a fixed tree: the same bits in every run";

RowChainSpec chain_of(const ActivationBackward& backward) {
  return {.load = has_gate(backward.activation) ? LoadStage::kGatedGradientRows
                                                : LoadStage::kUpGradientRows,
          .transform = TransformStage::kActivationBackward,
          .quantize = QuantizeStage::kNone,
          .columns = backward.columns,
          .local_experts = backward.local_experts,
          .is_interleaved = backward.is_interleaved,
          .activation = backward.activation};
}

// Returns the kernel that computes the gradient of the probability alone.
KernelPlan dprobs_kernel(const Operation& operation, const ActivationBackward& backward) {
  RowChainSpec spec = chain_of(backward);
  spec.store = StoreStage::kGroupedDprobs;
  KernelPlan kernel{.spec = spec, .reasons = {std::string(kDprobsReason)}};
  add_arguments(kernel, operation,
                {"input", "gradient", "probs", "counts", "offs", "output_dprobs"});
  return kernel;
}

// Returns the kernel that finds the largest magnitudes of the output's rows alone.
KernelPlan amax_kernel(const Operation& operation, const ActivationBackward& backward) {
  RowChainSpec spec = chain_of(backward);
  spec.quantize = QuantizeStage::kAmax;
  spec.store =
      has_gate(backward.activation) ? StoreStage::kGroupedGatedRows : StoreStage::kGroupedUpRows;
  KernelPlan kernel{.spec = spec, .reasons = {std::string(kAmaxReason)}};
  add_arguments(kernel, operation, {"input", "gradient", "probs", "counts", "offs", "output"});
  return kernel;
}

}  // namespace

template <>
KernelPlan make_kernel(const Operation& operation, const ActivationBackward& backward,
                       const KernelContext&) {
  const Port* const output = find_write(operation, "output");
  if (output == nullptr) return dprobs_kernel(operation, backward);
  if (backward.finds_amax) return amax_kernel(operation, backward);
  const bool is_gated = has_gate(backward.activation);
  const bool is_padded = backward.pitch != backward.columns;
  RowChainSpec spec = chain_of(backward);
  spec.quantize = quantize_stage(backward.format, 1);
  spec.format = backward.format.dtype;
  spec.store = is_gated ? StoreStage::kGroupedGatedRows : StoreStage::kGroupedUpRows;
  spec.epsilon = backward.format.epsilon;
  spec.pitch = is_padded ? backward.pitch : 0;
  spec.tells_dprobs = find_write(operation, "output_dprobs") != nullptr;
  spec.amax = backward.amax;
  KernelPlan kernel{.spec = with_whole_rows(spec)};
  add_arguments(kernel, operation,
                {"input", "gradient", "probs", "counts", "offs", "output", "output_dprobs",
                 "expert_scales", "amax"});
  if (spec.tells_dprobs) kernel.reasons.emplace_back(kDprobsReason);
  if (backward.is_interleaved) kernel.reasons.emplace_back(kInterleavedH1Reason);
  if (is_padded)
    kernel.reasons.push_back(fmt::format(
        "the {} columns of gate and up are filled up with zeros to {}: dgrad contracts over both, "
        "and no scale block may lie in two of them",
        backward.columns, backward.pitch));
  if (is_quantized(backward.format))
    kernel.reasons.emplace_back(is_gated ? "gradients of gate and up are quantized in registers"
                                         : "gradients are quantized in registers");
  return kernel;
}

void narrow(Operation& operation, const ActivationBackward&) {
  if (find_write(operation, "output") != nullptr) return;
  operation.name = "activation_dprobs";
  std::erase_if(operation.reads, [](const Port& port) { return port.role == "expert_scales"; });
  std::erase_if(operation.writes, [](const Port& port) { return port.role == "amax"; });
}

namespace {

constexpr std::string_view kCastsReason =
    "gradients of gate and up are rounded to bf16 and quantized in registers, and again by "
    "columns, "
    "with the activation, from shared memory: bf16 values are neither written nor read";

// Returns why an operation makes several results with one read of its inputs.
std::string_view reason_of(const GatedGradientSpec& spec) {
  if (spec.pass == GradientPass::kAmax)
    return "scales of rows and of columns are known only after a look at all values: magnitudes "
           "are "
           "written, not the values, which the cast computes again";
  if (spec.has_expert_scale)
    return "gradients of gate and up are cast in registers, and transposed with the activation in "
           "shared memory: rows and columns of an expert have one scale, so their bytes are the "
           "same";
  if (spec.casts_columns) return kCastsReason;
  return "gradients of gate and up are quantized in registers, and transposed with the activation "
         "in "
         "shared memory: nothing is dequantized, and wgrad has one scale a tile";
}

}  // namespace

template <>
KernelPlan make_kernel(const Operation& operation, const ActivationBackwardTranspose& backward,
                       const KernelContext&) {
  GatedGradientSpec spec{.local_experts = backward.local_experts,
                         .columns = backward.columns,
                         .epsilon = backward.format.epsilon,
                         .stores_rows = find_write(operation, "output") != nullptr,
                         .tells_dprobs = find_write(operation, "output_dprobs") != nullptr,
                         .transposes_gradient = find_write(operation, "output_colwise") != nullptr,
                         .casts_columns = is_cast_from_values(backward.operands),
                         .pass = backward.pass,
                         .has_expert_scale = has_expert_scale(backward.format),
                         .format = backward.format.dtype,
                         .amax = backward.amax,
                         .activation = backward.activation};
  KernelPlan kernel{.spec = spec};
  add_arguments(
      kernel, operation,
      {"input", "gradient", "probs", "counts", "offs", "output_offs", "output", "output_dprobs",
       "output_colwise", "act_colwise", "expert_scales", "act_expert_scales", "row_amax",
       "column_scale_inv", "act_column_scale_inv", "amax"});
  if (spec.tells_dprobs) kernel.reasons.emplace_back(kDprobsReason);
  kernel.reasons.emplace_back(reason_of(spec));
  return kernel;
}

void narrow(Operation& operation, const ActivationBackwardTranspose&) {
  const auto drop_read = [&](std::string_view role) {
    std::erase_if(operation.reads, [&](const Port& port) { return port.role == role; });
  };
  const bool has_rows = find_write(operation, "output") != nullptr;
  const bool has_columns = find_write(operation, "output_colwise") != nullptr;
  if (!has_rows) drop_read("row_amax");
  if (!has_columns) drop_read("column_scale_inv");
  if (has_rows || has_columns) return;
  std::get<ActivationBackwardTranspose>(operation.kind).amax = {};
  drop_read("expert_scales");
  std::erase_if(operation.writes, [](const Port& port) { return port.role == "amax"; });
}

}  // namespace moejit::compiler
