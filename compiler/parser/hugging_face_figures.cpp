// SPDX-License-Identifier: Apache-2.0
// Facts about the configurations of all families: names of figures, and keys to report.
#include "compiler/parser/hugging_face_figures.h"

#include "compiler/parser/hugging_face_families.h"

#include <algorithm>
#include <fmt/core.h>
#include <fmt/ranges.h>

namespace moejit::compiler {
namespace {

constexpr std::string_view kSizesHint =
    "docs/layer-description.md says which sizes a layer may have, and why";
constexpr std::string_view kLayersDiffer =
    "a description is of one MoE layer: put the number of that layer there instead of the list";

Result<int64_t> read_number(const JsonView& view, const IntRange& range) {
  Result<int64_t> number = view.read_int(range);
  if (!number && number.error().hint.empty()) number.error().hint = kSizesHint;
  return number;
}

Result<int64_t> read_number_or_list(const JsonView& view, const IntRange& range,
                                    bool has_image_experts) {
  if (view.value().kind != JsonKind::kArray) return read_number(view, range);
  MOEJIT_TRY_ASSIGN(const std::vector<JsonView> elements, view.read_array());
  if (elements.empty())
    return view.fail(ErrorCode::kInvalidValue, "got an empty list, wanted a number");
  MOEJIT_TRY_ASSIGN(const int64_t first, read_number(elements.front(), range));
  if (has_image_experts) return first;
  for (const JsonView& element : elements) {
    MOEJIT_TRY_ASSIGN(const int64_t number, read_number(element, range));
    if (number != first)
      return element.fail(
          ErrorCode::kUnsupported,
          fmt::format("got {} after {}, wanted the same number for all decoder layers", number,
                      first),
          std::string(kLayersDiffer));
  }
  return first;
}

}  // namespace

std::string_view short_path(const JsonView& view) {
  std::string_view path = view.path();
  path.remove_prefix(std::min(path.size(), std::string_view("$.").size()));
  return path;
}

std::optional<JsonView> FigureReader::find(std::string_view key) const {
  std::optional<JsonView> view = source_->config.find(key);
  if (!view && source_->parent) view = source_->parent->find(key);
  if (view && view->is_null()) return std::nullopt;
  return view;
}

bool FigureReader::has_read(std::string_view key) const {
  return std::ranges::find(read_keys_, key) != read_keys_.end();
}

void FigureReader::note_use(const JsonView& view, std::string_view field, std::string_view value) {
  read_keys_.emplace_back(view.key());
  used_keys.push_back(fmt::format("{} -> {} = {}", short_path(view), field, value));
}

std::vector<JsonView> FigureReader::find_all(std::span<const std::string_view> keys) const {
  std::vector<JsonView> found;
  for (const std::string_view key : keys) {
    if (key.empty()) continue;
    if (const std::optional<JsonView> view = source_->config.find(key); view && !view->is_null())
      found.push_back(*view);
    if (!source_->parent) continue;
    if (const std::optional<JsonView> view = source_->parent->find(key); view && !view->is_null())
      found.push_back(*view);
  }
  return found;
}

Result<int32_t> FigureReader::read(std::span<const std::string_view> keys, std::string_view field,
                                   const IntRange& range, bool has_image_experts) {
  const std::vector<JsonView> found = find_all(keys);
  if (found.empty()) {
    // An explicit null is the more likely place of the error.
    for (const std::string_view key : keys)
      if (const std::optional<JsonView> view = source_->config.find(key))
        return view->fail(
            ErrorCode::kWrongType, fmt::format("got null, wanted {}", to_string(range)),
            fmt::format("the configuration leaves the layer's {} open: put a number there", field));
    Result<JsonView> absent = source_->config.at(keys.front());
    if (absent) return absent->fail(ErrorCode::kInternal, "found twice");
    std::string others;
    for (const std::string_view key : keys.subspan(1))
      if (!key.empty()) others += fmt::format("{}{}", others.empty() ? " or " : ", ", key);
    absent.error().hint =
        fmt::format("{}{} gives the layer's {}; or {}", keys.front(), others, field, kWriteByHand);
    return tl::make_unexpected(std::move(absent).error());
  }
  MOEJIT_TRY_ASSIGN(const int64_t number,
                    read_number_or_list(found.front(), range, has_image_experts));
  for (std::size_t i = 1; i < found.size(); ++i) {
    MOEJIT_TRY_ASSIGN(const int64_t other, read_number_or_list(found[i], range, has_image_experts));
    if (other != number)
      return found[i].fail(ErrorCode::kInvalidValue,
                           fmt::format("got {}, but {} is {}: both are the layer's {}", other,
                                       found.front().path(), number, field),
                           "leave the right one of the two");
    read_keys_.emplace_back(found[i].key());
  }
  note_use(found.front(), field, fmt::to_string(number));
  return static_cast<int32_t>(number);
}

namespace {

// Errors about absent keys use the first name of a list.
constexpr std::array kExpertCountKeys = std::to_array<std::string_view>(
    {"num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"});
constexpr std::array kTopKKeys = std::to_array<std::string_view>(
    {"num_experts_per_tok", "num_experts_per_token", "moe_topk", "moe_top_k", "moe_k",
     "top_k_experts", "num_selected_experts", "experts_per_token"});
constexpr std::array kHiddenKeys =
    std::to_array<std::string_view>({"hidden_size", "d_model", "n_embd"});

constexpr std::string_view kSharedNote =
    "shared experts run beside the layer and are not part of it";
constexpr std::string_view kScaleNote =
    "multiply topk_probs by it before the layer, unless a router in the layer does";
constexpr std::string_view kDenseNote = "so many of the first decoder layers are dense, not MoE";
constexpr std::string_view kEveryNote = "only every so many decoder layers one is MoE";

constexpr std::array kFacts = std::to_array<HuggingFaceFact>({
    {"n_shared_experts", "", kSharedNote},
    {"num_shared_experts", "", kSharedNote},
    {"moe_num_shared_experts", "", kSharedNote},
    {"num_shared_expert", "", kSharedNote},
    {"shared_expert_intermediate_size", "", kSharedNote},
    {"shared_intermediate_size", "", kSharedNote},
    {"share_expert_dim", "", kSharedNote},
    {"shared_expert_combination_strategy", "sum",
     "how the shared experts' result joins that of the layer, where there are any; average means "
     "half of their sum"},
    {"zero_expert_num", "",
     "this many experts after the others return the token unchanged: give -1 in topk_ids for them, "
     "and add the token times the probability after the layer"},
    {"moe_token_dropout", "",
     "at inference the model multiplies the experts' results by 1 less this: multiply topk_probs"},
    {"first_k_dense_replace", "", kDenseNote},
    {"num_dense_layers", "", kDenseNote},
    {"decoder_sparse_step", "1", kEveryNote},
    {"encoder_sparse_step", "1", kEveryNote},
    {"interleave_moe_layer_step", "1", kEveryNote},
    {"expert_layer_period", "1", kEveryNote},
    {"moe_layer_interval", "1", kEveryNote},
    {"moe_layer_freq", "1", kEveryNote},
    {"mlp_only_layers", "", "these decoder layers are dense, not MoE"},
    {"routed_scaling_factor", "1", kScaleNote},
    {"router_scaling_factor", "1", kScaleNote},
    {"moe_routed_scaling_factor", "1", kScaleNote},
    {"moe_router_scaling_factor", "1", kScaleNote},
    {"route_scale", "1", kScaleNote},
    {"mlp_bias", "",
     "of dense and shared MLPs; where the experts have biases too, set biases to true"},
    {"use_bias", "",
     "of dense and shared MLPs; where the experts have biases too, set biases to true"},
    {"quantization_config", "", "the checkpoint's weights are quantized"},
});

constexpr std::array kExpertFormulaKeys = std::to_array<std::string_view>(
    {"swiglu_limit", "swiglu_alpha", "swiglu_limits", "swiglu_beta", "swiglu_clamp", "glu_limit",
     "activation_limit", "mlp_gate_softcap", "mlp_up_softcap", "moe_latent_size", "moe_hidden_size",
     "expert_bias", "expert_biases", "experts_bias", "moe_bias", "gate_up_layout"});

}  // namespace

std::span<const std::string_view> expert_count_keys() { return kExpertCountKeys; }
std::span<const std::string_view> top_k_keys() { return kTopKKeys; }
std::span<const std::string_view> hidden_keys() { return kHiddenKeys; }

std::span<const HuggingFaceFact> hugging_face_facts() { return kFacts; }

std::span<const std::string_view> expert_formula_keys() { return kExpertFormulaKeys; }

}  // namespace moejit::compiler
