// SPDX-License-Identifier: Apache-2.0
#include "compiler/layer.h"

#include "compiler/recipe.h"
#include "compiler/support/json_text.h"

#include <algorithm>
#include <fmt/format.h>
#include <utility>

namespace moejit::compiler {
namespace {

template <typename Enum>
std::string json_list(const std::vector<Enum>& values) {
  std::string list;
  for (const Enum value : values)
    list += fmt::format("{}{}", list.empty() ? "" : ", ", json_string(to_string(value)));
  return fmt::format("[{}]", list);
}

}  // namespace

bool has_backward(const Layer& layer) {
  return std::ranges::find(layer.passes, Pass::kBackward) != layer.passes.end();
}

GradientFormat gradient_format(const Layer& layer) {
  return layer.recipe.gradients.dtype == DType::kF8E4M3 ? GradientFormat::kE4m3
                                                        : GradientFormat::kE5m2;
}

PackedFormat weight_format(const Layer& layer) { return layer.recipe.weights.packed; }

bool is_grouped(const Layer& layer) { return layer.input == LayerInput::kGrouped; }

bool keeps_rows(const Layer& layer) { return is_grouped(layer) && layer.splits_alignment == 1; }

bool is_of_group(const Layer& layer) { return layer.expert_parallel.ranks > 0; }

bool uses_collectives(const Layer& layer) {
  return layer.expert_parallel.ranks > 1 && layer.expert_parallel.transport == Transport::kNccl;
}

bool has_shared(const Layer& layer) { return layer.shared.experts > 0; }

int32_t held_experts(const Layer& layer) { return layer.local_experts + layer.shared.experts; }

Layer with_shared_chosen(const Layer& layer) {
  if (!has_shared(layer)) return layer;
  Layer all = layer;
  all.shared = {};
  all.local_experts = held_experts(layer);
  all.experts = layer.experts + std::max(layer.expert_parallel.ranks, 1) * layer.shared.experts;
  all.top_k = layer.top_k + layer.shared.experts;
  all.topk_ids_dtype = IndexDtype::kI32;
  all.topk_probs_dtype = TopkProbsDtype::kF32;
  return all;
}

std::vector<Gradient> all_gradients(const Layer& layer) {
  using enum Gradient;
  const Gradient of_choice = layer.router ? kDlogits : kDprobs;
  if (!layer.biases) return {kDx, of_choice, kDw1, kDw2};
  return {kDx, of_choice, kDw1, kDw2, kDb1, kDb2};
}

std::vector<Gradient> gradients_of(const Layer& layer) {
  if (!has_backward(layer)) return {};
  return layer.gradients.empty() ? all_gradients(layer) : layer.gradients;
}

bool computes(const Layer& layer, Gradient gradient) {
  const std::vector<Gradient> gradients = gradients_of(layer);
  return std::ranges::find(gradients, gradient) != gradients.end();
}

Layer without_router(const Layer& layer) {
  Layer chosen = layer;
  chosen.router.reset();
  std::ranges::replace(chosen.gradients, Gradient::kDlogits, Gradient::kDprobs);
  return chosen;
}

bool fuses_wgrad_accumulation(WgradDtype dtype) { return dtype == WgradDtype::kF32; }

int32_t w1_sections(const Layer& layer) { return has_gate(layer.activation) ? 2 : 1; }

bool has_separate_gate_up(const Layer& layer) {
  return layer.gate_up_layout == GateUpLayout::kSeparate;
}

int32_t padded_intermediate(const Layer& layer) {
  const Format& gradients = layer.recipe.gradients;
  const bool has_blocks = has_scales(gradients) && !has_row_scale(gradients);
  if ((!has_blocks && !has_separate_gate_up(layer)) || w1_sections(layer) == 1)
    return layer.intermediate;
  return (layer.intermediate + 127) / 128 * 128;
}

std::string_view to_string(Pass pass) {
  switch (pass) {
    case Pass::kForward: return "forward";
    case Pass::kBackward: return "backward";
  }
  return "unknown";
}

std::string_view to_string(Gradient gradient) {
  switch (gradient) {
    case Gradient::kDx: return "dx";
    case Gradient::kDprobs: return "dprobs";
    case Gradient::kDlogits: return "dlogits";
    case Gradient::kDw1: return "dw1";
    case Gradient::kDw2: return "dw2";
    case Gradient::kDb1: return "db1";
    case Gradient::kDb2: return "db2";
  }
  return "unknown";
}

std::string_view to_string(Recompute recompute) {
  switch (recompute) {
    case Recompute::kNone: return "none";
    case Recompute::kMoeExpert: return "moe_expert";
  }
  return "unknown";
}

std::string_view to_string(WgradDtype dtype) {
  switch (dtype) {
    case WgradDtype::kF32: return "f32";
    case WgradDtype::kBf16: return "bf16";
  }
  return "unknown";
}

std::string_view to_string(LayerInput input) {
  switch (input) {
    case LayerInput::kTokens: return "tokens";
    case LayerInput::kGrouped: return "grouped";
  }
  return "unknown";
}

std::string_view to_string(IndexDtype dtype) {
  switch (dtype) {
    case IndexDtype::kI32: return "i32";
    case IndexDtype::kI64: return "i64";
  }
  return "unknown";
}

std::string_view to_string(TopkProbsDtype dtype) {
  switch (dtype) {
    case TopkProbsDtype::kF32: return "f32";
    case TopkProbsDtype::kBf16: return "bf16";
  }
  return "unknown";
}

DType dtype_of(IndexDtype dtype) { return dtype == IndexDtype::kI64 ? DType::kI64 : DType::kI32; }

DType dtype_of(TopkProbsDtype dtype) {
  return dtype == TopkProbsDtype::kBf16 ? DType::kBF16 : DType::kF32;
}

std::string_view to_string(GradientFormat format) {
  switch (format) {
    case GradientFormat::kE5m2: return "e5m2";
    case GradientFormat::kE4m3: return "e4m3";
  }
  return "unknown";
}

std::string_view to_string(AmaxComputeAlgo algorithm) {
  switch (algorithm) {
    case AmaxComputeAlgo::kMax: return "max";
    case AmaxComputeAlgo::kMostRecent: return "most_recent";
  }
  return "unknown";
}

std::string_view to_string(ForeignExperts foreign) {
  switch (foreign) {
    case ForeignExperts::kReport: return "report";
    case ForeignExperts::kIgnore: return "ignore";
  }
  return "unknown";
}

std::string_view to_string(Dispatch dispatch) {
  switch (dispatch) {
    case Dispatch::kNone: return "none";
    case Dispatch::kFp8: return "fp8";
  }
  return "unknown";
}

std::string_view to_string(Combine combine) {
  switch (combine) {
    case Combine::kPartial: return "partial";
    case Combine::kRows: return "rows";
  }
  return "unknown";
}

std::string_view to_string(Transport transport) {
  switch (transport) {
    case Transport::kPeer: return "peer";
    case Transport::kNccl: return "nccl";
  }
  return "unknown";
}

std::string_view to_string(GateUpLayout layout) {
  switch (layout) {
    case GateUpLayout::kConcat: return "concat";
    case GateUpLayout::kInterleaved: return "interleaved";
    case GateUpLayout::kSeparate: return "separate";
  }
  return "unknown";
}

std::string named_layer(const Layer& layer) {
  return layer.name.empty() ? "the layer" : "the layer " + layer.name;
}

void set_splits_alignment(Layer& layer, int32_t alignment) {
  const int64_t spare = layer.max_permuted_rows - worst_case_permuted_rows(layer);
  layer.splits_alignment = alignment;
  const int64_t rows =
      spare < 0 ? layer.max_permuted_rows : worst_case_permuted_rows(layer) + spare;
  layer.max_permuted_rows = (rows + alignment - 1) / alignment * alignment;
}

int32_t usual_splits_alignment(const Layer& layer) {
  constexpr int64_t kFewRows = 64;
  const int64_t ranks = std::max(layer.expert_parallel.ranks, 1);
  const int64_t rows = ranks * layer.max_tokens * layer.top_k / layer.experts;
  if (is_grouped(layer) || rows <= kFewRows)
    return least_splits_alignment(layer.recipe, has_backward(layer));
  return has_scales(layer.recipe.weights) ? 128 : 64;
}

void set_passes(Layer& layer, std::vector<Pass> passes) {
  const bool is_usual = layer.splits_alignment == usual_splits_alignment(layer);
  layer.passes = std::move(passes);
  if (is_usual) set_splits_alignment(layer, usual_splits_alignment(layer));
}

int64_t worst_case_permuted_rows(const Layer& layer) {
  const int64_t ranks = std::max(layer.expert_parallel.ranks, 1);
  const int64_t rows = layer.max_tokens * (ranks * layer.top_k + layer.shared.experts);
  const int64_t alignment = layer.splits_alignment;
  // A group without rows is not padded, so at most as many groups as rows have a padded end.
  const int64_t padded_groups = std::min<int64_t>(held_experts(layer), rows);
  return (rows + padded_groups * (alignment - 1)) / alignment * alignment;
}

namespace {

std::string layer_json(const Layer& layer, bool has_padding) {
  std::string text = "{\n";
  const auto add = [&text](std::string_view key, std::string_view value, bool is_last = false) {
    text += fmt::format("  \"{}\": {}{}\n", key, value, is_last ? "" : ",");
  };
  add("name", json_string(layer.name));
  add("experts", std::to_string(layer.experts));
  add("local_experts", std::to_string(layer.local_experts));
  add("top_k", std::to_string(layer.top_k));
  if (has_shared(layer)) add("shared", to_json(layer.shared));
  add("hidden", std::to_string(layer.hidden));
  add("intermediate", std::to_string(layer.intermediate));
  add("activation", to_json(layer.activation));
  add("gate_up_layout", json_string(to_string(layer.gate_up_layout)));
  add("biases", layer.biases ? "true" : "false");
  add("dtype", json_string(layer.dtype));
  if (is_grouped(layer)) {
    add("input", json_string(to_string(layer.input)));
    add("tokens_per_expert_dtype", json_string(to_string(layer.tokens_per_expert_dtype)));
  } else {
    if (layer.router) add("router", to_json(*layer.router));
    add("topk_ids_dtype", json_string(to_string(layer.topk_ids_dtype)));
    add("topk_probs_dtype", json_string(to_string(layer.topk_probs_dtype)));
    add("foreign_experts", json_string(to_string(layer.foreign_experts)));
  }
  add("recipe", json_string(to_string(layer.recipe)));
  add("block_size", std::to_string(layer.block_size));
  add("scale_sharing_k", std::to_string(layer.scale_sharing_k));
  if (is_packed(layer.recipe.weights))
    add("weight_format", json_string(to_string(weight_format(layer))));
  if (may_round_scales(layer.recipe))
    add("power_of_2_scales", layer.power_of_2_scales ? "true" : "false");
  if (has_gradient_formats(layer.recipe))
    add("gradient_format", json_string(to_string(gradient_format(layer))));
  if (layer.recipe.has_history) {
    add("margin", std::to_string(layer.margin));
    add("amax_history_len", std::to_string(layer.amax_history_len));
    add("amax_compute_algo", json_string(to_string(layer.amax_compute_algo)));
  }
  if (has_padding) add("splits_alignment", std::to_string(layer.splits_alignment));
  add("max_tokens", std::to_string(layer.max_tokens));
  if (has_padding && !is_grouped(layer))
    add("max_permuted_rows", std::to_string(layer.max_permuted_rows));
  add("dispatch", json_string(to_string(layer.dispatch)));
  add("dispatch_calls", layer.dispatch_calls ? "true" : "false");
  add("passes", json_list(layer.passes));
  if (has_backward(layer)) add("gradients", json_list(gradients_of(layer)));
  add("backward_halves", layer.backward_halves ? "true" : "false");
  if (layer.backward_linears) add("backward_linears", "true");
  if (layer.backward_quantizes_weights) add("backward_quantizes_weights", "true");
  if (layer.weight_checks) add("weight_checks", "true");
  add("recompute", json_string(to_string(layer.recompute)));
  add("wgrad_dtype", json_string(to_string(layer.wgrad_dtype)));
  if (layer.fuse_wgrad_accumulation != fuses_wgrad_accumulation(layer.wgrad_dtype))
    add("fuse_wgrad_accumulation", layer.fuse_wgrad_accumulation ? "true" : "false");
  add("fuse_activation", layer.fuse_activation ? "true" : "false");
  add("fuse_transpose", layer.fuse_transpose ? "true" : "false");
  add("fuse_activation_transpose", layer.fuse_activation_transpose ? "true" : "false",
      !is_of_group(layer));
  if (is_of_group(layer))
    add("expert_parallel",
        fmt::format(
            "{{\"ranks\": {}, \"combine\": {}{}{}}}", layer.expert_parallel.ranks,
            json_string(to_string(layer.expert_parallel.combine)),
            layer.expert_parallel.transport == Transport::kNccl ? R"(, "transport": "nccl")" : "",
            layer.expert_parallel.sms > 0 ? fmt::format(R"(, "sms": {})", layer.expert_parallel.sms)
                                          : ""),
        true);
  return text + "}\n";
}

}  // namespace

std::string to_json(const SharedExperts& shared) {
  return fmt::format(R"({{"experts": {}, "gate": {}}})", shared.experts,
                     shared.gate ? "true" : "false");
}

std::string to_json(const Layer& layer) { return layer_json(layer, true); }

std::string to_json_without_padding(const Layer& layer) { return layer_json(layer, false); }

}  // namespace moejit::compiler
