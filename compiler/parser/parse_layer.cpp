// SPDX-License-Identifier: Apache-2.0
#include "compiler/compiler.h"
#include "compiler/parser/layer_schema.h"
#include "compiler/parser/read_fields.h"
#include "compiler/parser/read_layer_parts.h"
#include "compiler/recipe.h"
#include "compiler/support/json_document.h"
#include "compiler/support/json_view.h"

#include <algorithm>
#include <array>
#include <fmt/core.h>
#include <fmt/ranges.h>
#include <optional>

namespace moejit::compiler {
namespace {

constexpr std::array kLayerKeys = std::to_array<std::string_view>({"name",
                                                                   "experts",
                                                                   "local_experts",
                                                                   "top_k",
                                                                   "shared",
                                                                   "hidden",
                                                                   "intermediate",
                                                                   "activation",
                                                                   "gate_up_layout",
                                                                   "biases",
                                                                   "dtype",
                                                                   "input",
                                                                   "tokens_per_expert_dtype",
                                                                   "router",
                                                                   "topk_ids_dtype",
                                                                   "topk_probs_dtype",
                                                                   "foreign_experts",
                                                                   "recipe",
                                                                   "block_size",
                                                                   "scale_sharing_k",
                                                                   "weight_format",
                                                                   "power_of_2_scales",
                                                                   "gradient_format",
                                                                   "margin",
                                                                   "amax_history_len",
                                                                   "amax_compute_algo",
                                                                   "splits_alignment",
                                                                   "max_tokens",
                                                                   "max_permuted_rows",
                                                                   "dispatch",
                                                                   "dispatch_calls",
                                                                   "passes",
                                                                   "gradients",
                                                                   "backward_halves",
                                                                   "backward_linears",
                                                                   "backward_quantizes_weights",
                                                                   "weight_checks",
                                                                   "recompute",
                                                                   "wgrad_dtype",
                                                                   "fuse_wgrad_accumulation",
                                                                   "fuse_activation",
                                                                   "fuse_transpose",
                                                                   "fuse_activation_transpose",
                                                                   "expert_parallel"});

constexpr std::array kPasses = {Pass::kForward, Pass::kBackward};
constexpr std::array kGradients = {Gradient::kDx,  Gradient::kDprobs, Gradient::kDlogits,
                                   Gradient::kDw1, Gradient::kDw2,    Gradient::kDb1,
                                   Gradient::kDb2};
constexpr std::array kRecomputes = {Recompute::kNone, Recompute::kMoeExpert};
constexpr std::array kWgradDtypes = {WgradDtype::kF32, WgradDtype::kBf16};
constexpr std::array kIndexDtypes = {IndexDtype::kI32, IndexDtype::kI64};
constexpr std::array kTopkProbsDtypes = {TopkProbsDtype::kF32, TopkProbsDtype::kBf16};
constexpr std::array kForeignExperts = {ForeignExperts::kReport, ForeignExperts::kIgnore};
constexpr std::array kGateUpLayouts = {GateUpLayout::kConcat, GateUpLayout::kInterleaved,
                                       GateUpLayout::kSeparate};
constexpr std::array kDispatches = {Dispatch::kNone, Dispatch::kFp8};
constexpr std::array<std::string_view, 1> kLayerDTypes = {"bf16"};

// Names that users of other libraries will try; moejit does not support them (yet), and says so
// rather than calling them wrong.
constexpr std::array kOtherDTypes =
    std::to_array<std::string_view>({"fp16", "fp32", "fp8", "float16", "float32", "bfloat16"});

// Returns kUnsupported for one of `others`; anything else is left to the caller.
Result<void> refuse_unsupported(const JsonView& view, std::span<const std::string_view> others,
                                std::span<const std::string_view> supported) {
  const JsonValue& value = view.value();
  if (value.kind != JsonKind::kString) return {};
  if (std::find(others.begin(), others.end(), value.text) == others.end()) return {};
  return view.fail(ErrorCode::kUnsupported, fmt::format("got {}, not supported", view.got()),
                   fmt::format("supported: {}", fmt::join(supported, ", ")));
}

Result<std::string> read_name(const JsonView& root) {
  const std::optional<JsonView> view = root.find("name");
  if (!view) return std::string();
  MOEJIT_TRY_ASSIGN(std::string name, view->read_string());
  if (name.size() > kMaxNameBytes)
    return view->fail(ErrorCode::kInvalidValue,
                      fmt::format("got {} bytes, wanted at most {}", name.size(), kMaxNameBytes),
                      "the name is for people alone: a shorter one gives the same kernels");
  const bool has_control = std::any_of(name.begin(), name.end(), [](char c) {
    return static_cast<unsigned char>(c) < 0x20u || c == 0x7F;
  });
  if (has_control)
    return view->fail(ErrorCode::kInvalidValue,
                      fmt::format("got {}, wanted text without control characters", view->got()),
                      "leave out line breaks and the like: messages are one line");
  return name;
}

Result<GateUpLayout> read_gate_up_layout(const JsonView& root, const Activation& activation) {
  MOEJIT_TRY_ASSIGN(const GateUpLayout layout,
                    read_enum_at(root, "gate_up_layout", kGateUpLayouts, GateUpLayout::kConcat));
  if (layout == GateUpLayout::kConcat || has_gate(activation)) return layout;
  return root.find("gate_up_layout")
      ->fail(ErrorCode::kInvalidValue,
             fmt::format("got {} with the activation {}, wanted {}", to_string(layout),
                         to_string(activation), to_string(GateUpLayout::kConcat)),
             "the activation has no gate: there is only up");
}

Result<std::string> read_dtype(const JsonView& root) {
  const std::optional<JsonView> view = root.find("dtype");
  if (!view) return std::string(kLayerDTypes.front());
  MOEJIT_TRY(refuse_unsupported(*view, kOtherDTypes, kLayerDTypes));
  MOEJIT_TRY_ASSIGN(const std::size_t index, view->read_choice(kLayerDTypes));
  return std::string(kLayerDTypes[index]);
}

Result<int32_t> read_block_size(const JsonView& root) {
  constexpr IntRange kAnySize{.lowest = 1, .highest = kWidthRange.highest};
  MOEJIT_TRY_ASSIGN(const int32_t size, read_int_at(root, "block_size", kAnySize, kBlockSize));
  if (size == kBlockSize) return size;
  return root.find("block_size")
      ->fail(ErrorCode::kUnsupported, fmt::format("got {}, not supported", size),
             fmt::format("supported: {}", kBlockSize));
}

Result<int32_t> read_scale_sharing(const JsonView& root, const Recipe& recipe) {
  MOEJIT_TRY_ASSIGN(const int32_t blocks,
                    read_int_at(root, "scale_sharing_k", kScaleSharingRange, 1));
  if (blocks == 1 || recipe.shares_scales) return blocks;
  return root.find("scale_sharing_k")
      ->fail(ErrorCode::kInvalidValue,
             fmt::format("got {} with the recipe {}, wanted 1", blocks, to_string(recipe)),
             "blocks share their scales in the recipe fp8_flow alone");
}

// Reads the values of a list, ordered. `what` is the word for one of them.
template <typename Read>
auto read_each_once(const std::vector<JsonView>& elements, std::string_view what, const Read& read)
    -> Result<std::vector<typename decltype(read(elements.front()))::value_type>> {
  std::vector<typename decltype(read(elements.front()))::value_type> values;
  for (const JsonView& element : elements) {
    MOEJIT_TRY_ASSIGN(const auto value, read(element));
    if (std::find(values.begin(), values.end(), value) != values.end())
      return element.fail(ErrorCode::kInvalidValue,
                          fmt::format("got {} twice, wanted each {} once", element.got(), what),
                          "leave one of the two out");
    values.push_back(value);
  }
  std::sort(values.begin(), values.end());
  return values;
}

Result<std::vector<Pass>> read_passes(const JsonView& root) {
  const std::optional<JsonView> view = root.find("passes");
  if (!view) return std::vector<Pass>{Pass::kForward};
  MOEJIT_TRY_ASSIGN(const std::vector<JsonView> elements, view->read_array());
  MOEJIT_TRY_ASSIGN(const std::vector<Pass> passes,
                    read_each_once(elements, "pass", [](const JsonView& element) {
                      return read_enum(element, kPasses);
                    }));
  if (passes.empty() || passes.front() != Pass::kForward)
    return view->fail(ErrorCode::kInvalidValue, "got no \"forward\", wanted it among the passes",
                      "backward needs what forward saves");
  return passes;
}

// Returns the error that a field means nothing without a backward pass.
tl::unexpected<Error> needs_backward(const JsonView& view) {
  return view.fail(ErrorCode::kInvalidValue,
                   fmt::format("got {} without a backward pass", view.got()),
                   R"(add "backward" to "passes", or leave the field out)");
}

Result<Gradient> read_gradient(const JsonView& element, const Layer& layer) {
  MOEJIT_TRY_ASSIGN(const Gradient gradient, read_enum(element, kGradients));
  const std::vector<Gradient> all = all_gradients(layer);
  if (std::find(all.begin(), all.end(), gradient) != all.end()) return gradient;
  if (gradient == Gradient::kDprobs)
    return element.fail(ErrorCode::kInvalidValue,
                        fmt::format("got {} of a layer with a router", element.got()),
                        R"(name "dlogits", which the router makes of it)");
  const bool is_of_router = gradient == Gradient::kDlogits;
  return element.fail(ErrorCode::kInvalidValue,
                      fmt::format("got {} of a layer without {}", element.got(),
                                  is_of_router ? "a router" : "biases"),
                      is_of_router ? R"(name "dprobs", or add "router")"
                                   : R"(add "biases": true, or leave it out)");
}

// Reads the gradients. If all are named, the record names none, so that equal layers have equal
// records.
Result<std::vector<Gradient>> read_gradients(const JsonView& root, const Layer& layer) {
  const std::optional<JsonView> view = root.find("gradients");
  if (!view) return std::vector<Gradient>{};
  MOEJIT_TRY_ASSIGN(const std::vector<JsonView> elements, view->read_array());
  if (!has_backward(layer)) return needs_backward(*view);
  MOEJIT_TRY_ASSIGN(std::vector<Gradient> gradients,
                    read_each_once(elements, "gradient", [&](const JsonView& element) {
                      return read_gradient(element, layer);
                    }));
  if (gradients.empty())
    return view->fail(ErrorCode::kInvalidValue, "got no gradient, wanted one or more",
                      R"(leave "backward" out of "passes" where none is needed)");
  return gradients == all_gradients(layer) ? std::vector<Gradient>{} : gradients;
}

Result<bool> read_dispatch_calls(const JsonView& root, const Layer& layer) {
  MOEJIT_TRY_ASSIGN(const bool calls, read_bool_at(root, "dispatch_calls", false));
  if (!calls || layer.dispatch != Dispatch::kNone) return calls;
  return root.find("dispatch_calls")
      ->fail(ErrorCode::kInvalidValue,
             fmt::format("got true with the dispatch {}, wanted false", to_string(layer.dispatch)),
             "forward() then takes rows that have been dispatched: nothing is done before");
}

Result<bool> read_backward_halves(const JsonView& root, const Layer& layer) {
  MOEJIT_TRY_ASSIGN(const bool halves, read_bool_at(root, "backward_halves", false));
  if (halves && !has_backward(layer)) return needs_backward(*root.find("backward_halves"));
  return halves;
}

Result<bool> read_backward_linears(const JsonView& root, const Layer& layer) {
  MOEJIT_TRY_ASSIGN(const bool linears, read_bool_at(root, "backward_linears", false));
  if (!linears) return false;
  const JsonView field = *root.find("backward_linears");
  if (!has_backward(layer)) return needs_backward(field);
  if (layer.backward_halves)
    return field.fail(ErrorCode::kInvalidValue, "got true with backward_halves, wanted false",
                      "a backward pass is parted in one way: leave one of the fields out");
  return true;
}

Result<bool> read_backward_quantizes_weights(const JsonView& root, const Layer& layer) {
  constexpr std::string_view kField = "backward_quantizes_weights";
  MOEJIT_TRY_ASSIGN(const bool quantizes, read_bool_at(root, kField, false));
  if (!quantizes) return false;
  const JsonView field = *root.find(kField);
  if (!has_backward(layer)) return needs_backward(field);
  if (layer.recipe.weights != kTiles128x128)
    return field.fail(ErrorCode::kInvalidValue,
                      fmt::format("got true with the recipe {}, wanted fp8_flow or fp8_blockwise",
                                  to_string(layer.recipe)),
                      "other recipes find the scales of rows and of columns together");
  return true;
}

Result<int64_t> read_max_permuted_rows(const JsonView& root, const Layer& layer) {
  if (const std::optional<JsonView> view = root.find("max_permuted_rows"))
    return view->read_int({.lowest = layer.splits_alignment,
                           .highest = kMaxPermutedRows,
                           .multiple_of = layer.splits_alignment});
  const int64_t rows = worst_case_permuted_rows(layer);
  if (rows <= kMaxPermutedRows) return rows;
  MOEJIT_TRY_ASSIGN(const JsonView tokens, root.at("max_tokens"));
  return tokens.fail(
      ErrorCode::kInvalidValue,
      fmt::format("got {} tokens with {} experts each, which may need {} rows, wanted at most {}",
                  layer.max_tokens, layer.top_k, rows, kMaxPermutedRows),
      "lower max_tokens, or give max_permuted_rows");
}

// Later fields are bounded by earlier ones, so the order matters.
Result<Layer> read_layer(const JsonView& root) {
  Layer layer;
  MOEJIT_TRY_ASSIGN(layer.name, read_name(root));
  MOEJIT_TRY_ASSIGN(layer.input, read_input(root));
  MOEJIT_TRY_ASSIGN(layer.experts, read_int_at(root, "experts", kExpertsRange));
  const IntRange up_to_all = up_to_experts(layer.experts);
  MOEJIT_TRY_ASSIGN(layer.expert_parallel, read_expert_parallel(root, layer.experts));
  MOEJIT_TRY_ASSIGN(layer.local_experts,
                    read_int_at(root, "local_experts", up_to_all, experts_of_rank(layer)));
  MOEJIT_TRY_ASSIGN(layer.top_k, is_grouped(layer) ? 1 : read_int_at(root, "top_k", up_to_all));
  MOEJIT_TRY_ASSIGN(layer.router, read_router_of_layer(root, layer));
  MOEJIT_TRY_ASSIGN(layer.shared, read_shared(root));
  MOEJIT_TRY_ASSIGN(layer.hidden, read_int_at(root, "hidden", kWidthRange));
  MOEJIT_TRY_ASSIGN(layer.intermediate, read_int_at(root, "intermediate", kWidthRange));
  if (const std::optional<JsonView> activation = root.find("activation")) {
    MOEJIT_TRY_ASSIGN(layer.activation, read_activation(*activation));
  }
  MOEJIT_TRY_ASSIGN(layer.gate_up_layout, read_gate_up_layout(root, layer.activation));
  MOEJIT_TRY_ASSIGN(layer.biases, read_bool_at(root, "biases", layer.biases));
  MOEJIT_TRY_ASSIGN(layer.dtype, read_dtype(root));
  MOEJIT_TRY_ASSIGN(
      layer.tokens_per_expert_dtype,
      read_enum_at(root, "tokens_per_expert_dtype", kIndexDtypes, layer.tokens_per_expert_dtype));
  MOEJIT_TRY_ASSIGN(layer.topk_ids_dtype,
                    read_enum_at(root, "topk_ids_dtype", kIndexDtypes, layer.topk_ids_dtype));
  MOEJIT_TRY_ASSIGN(layer.topk_probs_dtype, read_enum_at(root, "topk_probs_dtype", kTopkProbsDtypes,
                                                         layer.topk_probs_dtype));
  MOEJIT_TRY_ASSIGN(layer.foreign_experts,
                    read_enum_at(root, "foreign_experts", kForeignExperts, layer.foreign_experts));
  MOEJIT_TRY_ASSIGN(layer.recipe, read_enum_at(root, "recipe", kRecipes, Recipe::kFp8Flow));
  MOEJIT_TRY_ASSIGN(layer.block_size, read_block_size(root));
  MOEJIT_TRY_ASSIGN(layer.scale_sharing_k, read_scale_sharing(root, layer.recipe));
  MOEJIT_TRY(read_recipe_choices(root, layer));
  MOEJIT_TRY_ASSIGN(layer.passes, read_passes(root));
  MOEJIT_TRY_ASSIGN(layer.max_tokens, read_int_at(root, "max_tokens", kTokensRange));
  MOEJIT_TRY_ASSIGN(
      layer.splits_alignment,
      read_int_at(root, "splits_alignment", kSplitsAlignmentRange, usual_splits_alignment(layer)));
  MOEJIT_TRY_ASSIGN(layer.max_permuted_rows, read_max_permuted_rows(root, layer));
  MOEJIT_TRY_ASSIGN(layer.dispatch,
                    read_enum_at(root, "dispatch", kDispatches, default_dispatch(layer)));
  MOEJIT_TRY_ASSIGN(layer.dispatch_calls, read_dispatch_calls(root, layer));
  MOEJIT_TRY_ASSIGN(layer.gradients, read_gradients(root, layer));
  MOEJIT_TRY_ASSIGN(layer.backward_halves, read_backward_halves(root, layer));
  MOEJIT_TRY_ASSIGN(layer.backward_linears, read_backward_linears(root, layer));
  MOEJIT_TRY_ASSIGN(layer.backward_quantizes_weights, read_backward_quantizes_weights(root, layer));
  MOEJIT_TRY_ASSIGN(layer.weight_checks, read_bool_at(root, "weight_checks", false));
  MOEJIT_TRY_ASSIGN(layer.recompute,
                    read_enum_at(root, "recompute", kRecomputes, Recompute::kNone));
  MOEJIT_TRY_ASSIGN(layer.wgrad_dtype,
                    read_enum_at(root, "wgrad_dtype", kWgradDtypes, WgradDtype::kF32));
  MOEJIT_TRY_ASSIGN(
      layer.fuse_wgrad_accumulation,
      read_bool_at(root, "fuse_wgrad_accumulation", fuses_wgrad_accumulation(layer.wgrad_dtype)));
  MOEJIT_TRY_ASSIGN(layer.fuse_activation,
                    read_bool_at(root, "fuse_activation", layer.fuse_activation));
  MOEJIT_TRY_ASSIGN(layer.fuse_transpose,
                    read_bool_at(root, "fuse_transpose", layer.fuse_transpose));
  MOEJIT_TRY_ASSIGN(layer.fuse_activation_transpose, read_bool_at(root, "fuse_activation_transpose",
                                                                  layer.fuse_activation_transpose));
  MOEJIT_TRY(check_fields_of_group(root, layer));
  MOEJIT_TRY(check_fields_of_input(root, layer));
  MOEJIT_TRY(check_fields_of_router(root, layer));
  MOEJIT_TRY(check_fields_of_shared(root, layer));
  return layer;
}

// Refuses a model's config.json with a hint about descriptions. Otherwise its first key would be
// refused.
Result<void> refuse_configuration(const JsonView& root) {
  for (const std::string_view key : {"model_type", "architectures"})
    if (const std::optional<JsonView> view = root.find(key))
      return view->fail(ErrorCode::kUnknownKey, "unknown key of a layer description",
                        fmt::format("this looks like a model's configuration; moejit layer "
                                    "--from-hf {} makes a description of it",
                                    root.source_name()));
  return {};
}

}  // namespace

std::span<const std::string_view> layer_keys() { return kLayerKeys; }

Result<Layer> parse_layer(std::string_view json, std::string_view source_name) {
  MOEJIT_TRY_ASSIGN(const JsonDocument document,
                    parse_json(json, {.source_name = source_name,
                                      .max_bytes = kMaxDescriptionBytes,
                                      .max_values = kMaxDescriptionValues}));
  const JsonView root(document);
  MOEJIT_TRY(refuse_configuration(root));
  MOEJIT_TRY(refuse_options(root));
  MOEJIT_TRY(root.check_keys(layer_keys()));
  return read_layer(root);
}

}  // namespace moejit::compiler
