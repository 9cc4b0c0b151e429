// SPDX-License-Identifier: Apache-2.0
#include "compiler/parser/read_layer_parts.h"

#include "compiler/parser/layer_schema.h"
#include "compiler/parser/read_fields.h"
#include "compiler/recipe.h"

#include <algorithm>
#include <array>
#include <fmt/core.h>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace moejit::compiler {
namespace {

constexpr std::array kGradientFormats = {GradientFormat::kE5m2, GradientFormat::kE4m3};
constexpr std::array kWeightFormats = {PackedFormat::kNone, PackedFormat::kMxfp4,
                                       PackedFormat::kNvfp4, PackedFormat::kInt4};
constexpr std::array kAmaxComputeAlgos = {AmaxComputeAlgo::kMax, AmaxComputeAlgo::kMostRecent};

// A choice and the recipes that have it.
struct Choice {
  std::string_view key;
  bool (*is_of)(const Recipe& recipe);
  std::string_view whose;   // describes those recipes
  std::string_view wanted;  // of others
};

constexpr bool has_history(const Recipe& recipe) { return recipe.has_history; }

constexpr std::string_view kHistory = "scales follow from the steps before";
constexpr std::string_view kNoField = "no such field";
constexpr Choice kPowersOfTwo{"power_of_2_scales", may_round_scales,
                              "scales are quotients of the values at hand", "false"};
constexpr Choice kGradientFormat{"gradient_format", has_gradient_formats,
                                 "gradients have one scale for each expert", kNoField};

// The packed formats and the recipes that have each.
struct FormatChoice {
  Format format;
  Choice choice;
};
constexpr std::string_view kPlain = "weights are bf16";
constexpr FormatChoice kFormatChoices[] = {
    {kPackedTiles,
     {"weight_format", has_weight_tiles, "weights have a scale for each 128x128 tile", "bf16"}},
    {kPackedNvfp4, {"weight_format", has_plain_weights, kPlain, "bf16"}},
    {kPackedInt4, {"weight_format", has_plain_weights, kPlain, "bf16"}}};
constexpr Choice kOfHistory[] = {{"margin", has_history, kHistory, kNoField},
                                 {"amax_history_len", has_history, kHistory, kNoField},
                                 {"amax_compute_algo", has_history, kHistory, kNoField}};

// Refuses a choice that the description makes, if the recipe does not have it.
Result<void> check_choice(const JsonView& root, const Choice& choice, const Recipe& recipe) {
  const std::optional<JsonView> view = root.find(choice.key);
  if (!view || choice.is_of(recipe)) return {};
  std::string names;
  for (const Recipe& other : kRecipes)
    if (choice.is_of(other)) names += fmt::format("{}{}", names.empty() ? "" : ", ", other.name);
  return view->fail(ErrorCode::kInvalidValue,
                    fmt::format("got {} with the recipe {}, wanted {}", view->got(),
                                to_string(recipe), choice.wanted),
                    fmt::format("the choice is for recipes whose {}: {}", choice.whose, names));
}

Result<bool> read_power_of_2_scales(const JsonView& root, const Recipe& recipe) {
  MOEJIT_TRY_ASSIGN(const bool has_powers, read_bool_at(root, "power_of_2_scales", false));
  if (has_powers) MOEJIT_TRY(check_choice(root, kPowersOfTwo, recipe));
  return has_powers;
}

// Reads the format of gradients into the recipe, of which it is a member.
Result<void> read_gradient_format(const JsonView& root, Recipe& recipe) {
  MOEJIT_TRY(check_choice(root, kGradientFormat, recipe));
  MOEJIT_TRY_ASSIGN(const GradientFormat format,
                    read_enum_at(root, "gradient_format", kGradientFormats, GradientFormat::kE5m2));
  if (has_gradient_formats(recipe))
    recipe.gradients = format == GradientFormat::kE4m3 ? kExpertE4m3 : kExpertE5m2;
  return {};
}

// Reads the format of weights into the recipe, of which it is a member.
Result<void> read_weight_format(const JsonView& root, Layer& layer) {
  MOEJIT_TRY_ASSIGN(const PackedFormat format,
                    read_enum_at(root, "weight_format", kWeightFormats, PackedFormat::kNone));
  const auto* const found = std::ranges::find(
      kFormatChoices, format, [](const FormatChoice& each) { return each.format.packed; });
  if (found == std::end(kFormatChoices)) return {};
  MOEJIT_TRY(check_choice(root, found->choice, layer.recipe));
  if (layer.scale_sharing_k > 1)
    return root.find("weight_format")
        ->fail(ErrorCode::kInvalidValue,
               fmt::format("got {} with scale_sharing_k {}, wanted bf16", to_string(format),
                           layer.scale_sharing_k),
               "each tile of packed weights has a scale of its own: leave scale_sharing_k out");
  const int32_t multiple = packed_tile(format).multiple_of;
  for (const auto& [key, width] :
       {std::pair{"hidden", layer.hidden}, {"intermediate", layer.intermediate}})
    if (width % multiple != 0)
      return root.find(key)->fail(
          ErrorCode::kInvalidValue,
          fmt::format("got {} with weight_format {}, wanted a multiple of {}", width,
                      to_string(format), multiple),
          fmt::format("{} neighbors of a row share a scale", multiple));
  layer.recipe.weights = found->format;
  return {};
}

// Reads the choices of recipes whose scales follow from a history.
Result<void> read_history(const JsonView& root, Layer& layer) {
  for (const Choice& choice : kOfHistory) MOEJIT_TRY(check_choice(root, choice, layer.recipe));
  MOEJIT_TRY_ASSIGN(layer.margin, read_int_at(root, "margin", kMarginRange, layer.margin));
  MOEJIT_TRY_ASSIGN(layer.amax_history_len, read_int_at(root, "amax_history_len", kAmaxHistoryRange,
                                                        layer.amax_history_len));
  MOEJIT_TRY_ASSIGN(
      layer.amax_compute_algo,
      read_enum_at(root, "amax_compute_algo", kAmaxComputeAlgos, layer.amax_compute_algo));
  return {};
}

}  // namespace

Result<void> read_recipe_choices(const JsonView& root, Layer& layer) {
  MOEJIT_TRY_ASSIGN(layer.power_of_2_scales, read_power_of_2_scales(root, layer.recipe));
  MOEJIT_TRY(read_gradient_format(root, layer.recipe));
  MOEJIT_TRY(read_weight_format(root, layer));
  return read_history(root, layer);
}

namespace {

constexpr std::array kExpertParallelKeys =
    std::to_array<std::string_view>({"ranks", "combine", "transport", "sms"});
constexpr std::array kCombines = std::to_array<std::string_view>({"partial", "rows"});
constexpr std::array kTransports = std::to_array<std::string_view>({"peer", "nccl"});

// The limits of an exchange. The parameter records have a place for each of 8 ranks. A token's
// choices, and the flags of a rank's chunks, fit into what one CTA looks at.
constexpr IntRange kRanksRange{.lowest = 1, .highest = 8};
constexpr IntRange kSmsRange{.lowest = 1, .highest = 256};
constexpr int64_t kMostTokens = 16384;

Result<Combine> read_combine(const JsonView& group) {
  const std::optional<JsonView> view = group.find("combine");
  if (!view) return Combine::kPartial;
  MOEJIT_TRY_ASSIGN(const std::size_t index, view->read_choice(kCombines));
  return index == 0 ? Combine::kPartial : Combine::kRows;
}

Result<Transport> read_transport(const JsonView& group) {
  const std::optional<JsonView> view = group.find("transport");
  if (!view) return Transport::kPeer;
  MOEJIT_TRY_ASSIGN(const std::size_t index, view->read_choice(kTransports));
  return index == 0 ? Transport::kPeer : Transport::kNccl;
}

Result<int32_t> read_sms(const JsonView& group, Transport transport) {
  const std::optional<JsonView> view = group.find("sms");
  if (!view) return 0;
  MOEJIT_TRY_ASSIGN(const int64_t sms, view->read_int(kSmsRange));
  if (transport == Transport::kPeer) return static_cast<int32_t>(sms);
  return view->fail(ErrorCode::kInvalidValue,
                    fmt::format(R"(got {} with the transport "nccl", wanted it left out)", sms),
                    "NCCL moves the bytes there: NCCL_MAX_CTAS limits what it takes");
}

Result<void> refuse_more(const JsonView& root, std::string_view key, int64_t got, int64_t most) {
  if (got <= most) return {};
  return root.find(key)->fail(
      ErrorCode::kUnsupported,
      fmt::format("got {} with expert_parallel, wanted at most {}", got, most),
      "an exchange between the ranks of a group takes no more");
}

Result<void> refuse_true(const JsonView& root, std::string_view key, bool got,
                         const std::string& hint) {
  if (!got) return {};
  return root.find(key)->fail(ErrorCode::kUnsupported,
                              "got true with expert_parallel, wanted false", hint);
}

}  // namespace

Result<ExpertParallel> read_expert_parallel(const JsonView& root, int32_t experts) {
  const std::optional<JsonView> group = root.find("expert_parallel");
  if (!group) return ExpertParallel{};
  MOEJIT_TRY(group->check_object());
  MOEJIT_TRY(group->check_keys(kExpertParallelKeys));
  MOEJIT_TRY_ASSIGN(const JsonView view, group->at("ranks"));
  MOEJIT_TRY_ASSIGN(const int64_t ranks, view.read_int(kRanksRange));
  if (experts % ranks != 0)
    return view.fail(
        ErrorCode::kInvalidValue,
        fmt::format("got {} with {} experts, wanted a divisor of the experts", ranks, experts),
        "each rank has as many experts");
  MOEJIT_TRY_ASSIGN(const Combine combine, read_combine(*group));
  MOEJIT_TRY_ASSIGN(const Transport transport, read_transport(*group));
  MOEJIT_TRY_ASSIGN(const int32_t sms, read_sms(*group, transport));
  return ExpertParallel{
      .ranks = static_cast<int32_t>(ranks), .combine = combine, .transport = transport, .sms = sms};
}

int32_t experts_of_rank(const Layer& layer) {
  return is_of_group(layer) ? layer.experts / layer.expert_parallel.ranks : layer.experts;
}

Result<void> check_fields_of_group(const JsonView& root, const Layer& layer) {
  if (!is_of_group(layer)) return {};
  if (layer.local_experts != experts_of_rank(layer))
    return root.find("local_experts")
        ->fail(ErrorCode::kInvalidValue,
               fmt::format("got {} with {} experts on {} ranks, wanted {}", layer.local_experts,
                           layer.experts, layer.expert_parallel.ranks, experts_of_rank(layer)),
               "leave the field out: expert_parallel tells it");
  MOEJIT_TRY(refuse_more(root, "max_tokens", layer.max_tokens, kMostTokens));
  MOEJIT_TRY(refuse_more(root, "top_k", layer.top_k, kMostChoices));
  MOEJIT_TRY(refuse_true(root, "dispatch_calls", layer.dispatch_calls,
                         "the ranks of a group dispatch rows themselves: leave the field out"));
  MOEJIT_TRY(refuse_true(root, "backward_halves", layer.backward_halves,
                         "results go home at the end of a whole backward call"));
  MOEJIT_TRY(refuse_true(root, "backward_linears", layer.backward_linears,
                         "results go home at the end of a whole backward call"));
  if (layer.foreign_experts == ForeignExperts::kIgnore)
    return root.find("foreign_experts")
        ->fail(ErrorCode::kInvalidValue, R"(got "ignore" with expert_parallel, wanted "report")",
               "a group has all experts: no id is that of another rank");
  if (has_backward(layer) && !computes(layer, Gradient::kDx))
    return root.find("gradients")
        ->fail(ErrorCode::kUnsupported, "got no dx with expert_parallel, wanted it",
               "rows of dx are what ends the exchange of a backward call");
  return {};
}

namespace {

struct RefusedOption {
  std::string_view key;
  std::string_view reason;
};

constexpr std::array kRefused = {
    RefusedOption{
        "native_gemm",
        "no target has a GEMM that reads codes of mxfp8 or nvfp4 with a scale for each 32 "
        "or 16 products, which GPUs before Blackwell do not take: leave the field out, and layers "
        "multiply the exact values in bf16; "
        "operations quantize, quantize_columns and swizzle_scales make what such GEMMs "
        "of sm_100a read"},
    RefusedOption{"random_hadamard_transform",
                  "no target has a kernel that transforms operands of wgrad before they are cast: "
                  "leave the field out, and values are cast as they are"},
    RefusedOption{"stochastic_rounding",
                  "no target has a kernel that rounds by chance: leave the field out, and values "
                  "are rounded to nearest even, the same in every run"},
};

}  // namespace

Result<void> refuse_options(const JsonView& root) {
  for (const RefusedOption& option : kRefused)
    if (const auto view = root.find(option.key))
      return view->fail(ErrorCode::kUnsupported, fmt::format("got {}, not supported", view->got()),
                        std::string(option.reason));
  return {};
}

}  // namespace moejit::compiler
