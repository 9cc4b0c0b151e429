// SPDX-License-Identifier: Apache-2.0
#include "compiler/emitter/emitter.h"
#include "compiler/kernels/amax_columns.h"
#include "compiler/kernels/kernel_kind.h"

#include <fmt/core.h>

namespace moejit::compiler {

namespace {

// Returns the stage that stores rows, or only the parts of the probability's gradient.
ComposedType store_stage(const GatedGradientSpec& spec) {
  if (spec.stores_rows)
    return {"Store",
            "StoreGroupedGatedRows",
            {"kColumns", "kLocalExperts", "kPitch", "kInterleaved", "kTellsDprobs"}};
  return {"Store", "StoreGroupedDprobs", {"kColumns", "kLocalExperts"}};
}

// Adds the arguments that say which magnitudes are wanted, if some are not.
void leave_out_magnitudes(const GatedGradientSpec& spec, KernelText& text) {
  std::vector<std::string>& arguments = text.types_used.back().arguments;
  arguments.emplace_back("kOfRows");
  arguments.emplace_back("kOfGradientColumns");
  text.constants.push_back(bool_constant("kOfRows", spec.stores_rows, "of the gradients by rows"));
  text.constants.push_back(bool_constant("kOfGradientColumns", spec.transposes_gradient,
                                         "and not of the activation's alone"));
}

// Adds the constants and arguments that say which results are wanted, if some are not.
void leave_out(const GatedGradientSpec& spec, KernelText& text) {
  const bool stores = spec.stores_rows || spec.tells_dprobs;
  std::vector<std::string>& arguments = text.types_used.back().arguments;
  arguments.emplace_back(stores ? "Store" : "StoreNothing");
  arguments.emplace_back("kTransposesGradient");
  if (stores) text.types_used.insert(text.types_used.begin(), store_stage(spec));
  if (spec.stores_rows) {
    text.constants.push_back(
        bool_constant("kInterleaved", false, "all of gate, then all of up, by rows"));
    text.constants.push_back(
        bool_constant("kTellsDprobs", spec.tells_dprobs, "parts of the probability's gradient"));
  }
  text.constants.push_back(bool_constant("kTransposesGradient", spec.transposes_gradient,
                                         "and not the activation alone"));
}

std::string summary_of_casts(const GatedGradientSpec& spec) {
  return fmt::format(
      "gradients of gate, up{} from bf16 rows, rounded to bf16{}{} the activation itself, to "
      "columns of {} experts, one power-of-two scale for 128 tokens of a column",
      spec.tells_dprobs ? " and probability" : "",
      spec.stores_rows ? ", to e4m3 rows with 1x128 scales" : "",
      spec.transposes_gradient ? " and, with" : "; and",
      spec.transposes_gradient ? "their" : "its");
}

std::string_view name_of_format(const GatedGradientSpec& spec) {
  return spec.format == DType::kF8E5M2 ? "e5m2" : "e4m3";
}

std::string summary_of_expert_casts(const GatedGradientSpec& spec) {
  const std::string_view format = name_of_format(spec);
  return fmt::format(
      "gradients of gate, up{} from bf16 rows{}, and {}the activation itself, with known scales of "
      "experts, to columns of these",
      spec.tells_dprobs ? " and probability" : "",
      spec.stores_rows ? fmt::format(", to {} rows", format) : std::string(),
      spec.transposes_gradient ? "with " : "");
}

std::string summary_of_amax(const GatedGradientSpec& spec) {
  return fmt::format(
      "gradients of gate and up from bf16 rows, and the activation itself, rounded to bf16, to the "
      "largest magnitudes{}{} of columns of 128 tokens",
      spec.stores_rows ? " of 128 columns of a row and" : "",
      spec.transposes_gradient ? "" : ", the activation's alone,");
}

std::string summary_of_known_scales(const GatedGradientSpec& spec) {
  return fmt::format(
      "gradients of gate, up{} from bf16 rows, rounded to bf16{}{} the activation itself, to "
      "columns of {} experts with their known scales",
      spec.tells_dprobs ? " and probability" : "",
      spec.stores_rows ? ", to e4m3 rows with a scale each" : "",
      spec.transposes_gradient ? " and, with" : "; and",
      spec.transposes_gradient ? "their" : "its");
}

std::string summary_of(const GatedGradientSpec& spec) {
  if (spec.pass == GradientPass::kAmax) return summary_of_amax(spec);
  if (spec.pass == GradientPass::kCast) return summary_of_known_scales(spec);
  if (spec.casts_columns) return summary_of_casts(spec);
  if (spec.has_expert_scale) return summary_of_expert_casts(spec);
  const std::string_view probability = spec.tells_dprobs ? " and probability" : "";
  const std::string_view rows = spec.stores_rows ? ", to e4m3 rows with 1x128 scales" : "";
  if (!spec.transposes_gradient)
    return fmt::format(
        "gradients of gate, up{} from bf16 rows{}, and the activation itself, to columns of its "
        "experts with 128x128 scales",
        probability, rows);
  return fmt::format(
      "gradients of gate, up{} from bf16 rows{}{} with the activation itself, to columns of their "
      "experts with 128x128 scales",
      probability, rows, spec.stores_rows ? " and," : ",");
}

// Returns the stage that makes codes of values.
std::string quantize_stage(const GatedGradientSpec& spec) {
  if (!spec.has_expert_scale) return "Quantize1x128<kEpsilonBits>";
  if (!spec.stores_rows && !spec.transposes_gradient) return "CastOfExpert<GradientIsDropped>";
  return fmt::format("CastOfExpert<{}{}>", spec.format == DType::kF8E5M2 ? "E5m2" : "E4m3",
                     is_recorded(spec.amax) ? ", ColumnOfExpert<kAmaxStride, kAmaxFirst>" : "");
}

ComposedType kernel_of(const GatedGradientSpec& spec) {
  if (spec.pass == GradientPass::kAmax)
    return {"Kernel",
            "GatedGradientAmax",
            {"kLocalExperts", "kColumns", "kPitch", "Activation", "kThreads"}};
  if (spec.pass == GradientPass::kCast)
    return {"Kernel",
            "GatedGradientCasts",
            {"kLocalExperts", "kColumns", "kPitch", "Activation",
             spec.stores_rows ? "ScalesOfRows<kEpsilonBits>" : "ScalesOfColumns", "kThreads"}};
  if (spec.casts_columns)
    return {"Kernel",
            "GatedGradientColumns",
            {"kLocalExperts", "kColumns", "kPitch", "Activation", "kEpsilonBits", "kThreads"}};
  return {"Kernel",
          "GatedGradientTiles",
          {"kLocalExperts", "kColumns", "kPitch", "Activation", quantize_stage(spec), "kThreads"}};
}

std::string include_of(const GatedGradientSpec& spec) {
  if (spec.pass == GradientPass::kAmax) return "transpose/gated_gradient_amax.cuh";
  return spec.casts_columns ? "transpose/gated_gradient_columns.cuh"
                            : "transpose/gated_gradient_tiles.cuh";
}

// Returns whether the kernel finds scales, either of the values that it holds or of rows.
bool finds_scales(const GatedGradientSpec& spec) {
  switch (spec.pass) {
    case GradientPass::kOnly: return !spec.has_expert_scale;
    case GradientPass::kAmax: return false;
    case GradientPass::kCast: break;
  }
  return spec.stores_rows;
}

}  // namespace

template <>
KernelText KernelKind<GatedGradientSpec>::text(const GatedGradientSpec& spec) {
  KernelText text{
      .types = fmt::format("{}_bf16_{}", spec.activation.preset,
                           spec.pass == GradientPass::kAmax ? "amax" : name_of_format(spec)),
      .tile = "128x128",
      .summary = summary_of(spec),
      .includes = {include_of(spec)},
      .params = "GatedGradientParams",
      .constants =
          {
              integer_constant("kLocalExperts", spec.local_experts, "groups of rows"),
              integer_constant("kColumns", spec.columns, "of gate and of up"),
              integer_constant("kPitch", stored_columns(spec),
                               spec.pass == GradientPass::kOnly
                                   ? "of a half that is stored, with zeros behind"
                                   : "of a half that is stored"),
          },
      .own_type = value_and_gradients_type_text(spec.activation),
      .types_used = {kernel_of(spec)},
  };
  if (finds_scales(spec))
    text.constants.push_back(
        float_bits_constant("kEpsilonBits", spec.epsilon, "the smallest amax of a scale"));
  text.constants.push_back(integer_constant("kThreads", spec.threads, "per CTA"));
  if (is_recorded(spec.amax)) add_amax_columns(text, spec.amax);
  if (spec.pass == GradientPass::kAmax) {
    if (!spec.stores_rows || !spec.transposes_gradient) leave_out_magnitudes(spec, text);
  } else if (!spec.stores_rows || !spec.tells_dprobs || !spec.transposes_gradient) {
    leave_out(spec, text);
  }
  set_threads_per_sm(text, spec.threads_per_sm);
  return text;
}

}  // namespace moejit::compiler
