// SPDX-License-Identifier: Apache-2.0
#include "compiler/planner/support_table.h"

#include <algorithm>
#include <fmt/core.h>
#include <string>

namespace moejit::compiler {
namespace {

// One row per recipe that has kernels, with what it runs.
struct SupportedRecipe {
  Recipe recipe;
  TargetKind target;
  Pass pass;
};

constexpr SupportedRecipe kSupported[] = {
    {Recipe::kBf16, TargetKind::kCuda, Pass::kForward},
    {Recipe::kBf16, TargetKind::kCuda, Pass::kBackward},
    {Recipe::kFp8Flow, TargetKind::kCuda, Pass::kForward},
    {Recipe::kFp8Flow, TargetKind::kCuda, Pass::kBackward},
    {Recipe::kBf16, TargetKind::kSim, Pass::kForward},
    {Recipe::kBf16, TargetKind::kSim, Pass::kBackward},
    {Recipe::kFp8Flow, TargetKind::kSim, Pass::kForward},
    {Recipe::kFp8Flow, TargetKind::kSim, Pass::kBackward},
};

tl::unexpected<Error> refuse(const Layer& layer, const Target& target, std::string_view field,
                             std::string_view got, const std::string& available) {
  return fail(Stage::kPlan, ErrorCode::kUnsupported,
              fmt::format("layer \"{}\": {} \"{}\" does not run on target {}", layer.name, field,
                          got, to_string(target)),
              fmt::format("it can run: {}", available));
}

// Names of the rows that `wanted` picks, without repetition.
template <typename Wanted, typename Name>
std::string names_of(Wanted wanted, Name name) {
  std::string names;
  std::string_view last;
  for (const SupportedRecipe& row : kSupported) {
    if (!wanted(row) || name(row) == last) continue;
    last = name(row);
    if (!names.empty()) names += ", ";
    names += last;
  }
  return names.empty() ? "nothing" : names;
}

Result<void> check_bf16(const Layer& layer, const Target& target) {
  if (layer.dispatch == Dispatch::kFp8)
    return refuse(layer, target, "recipe bf16 with the dispatch", to_string(layer.dispatch),
                  "dispatch \"none\"");
  // A step of wgrad's contraction takes 64 tokens: those beyond a group must be its pad rows.
  if (has_backward(layer) && layer.splits_alignment % 64 != 0)
    return refuse(layer, target, "recipe bf16 with a backward pass and splits_alignment",
                  std::to_string(layer.splits_alignment), "multiples of 64");
  return {};
}

}  // namespace

Result<void> check_support(const Layer& layer, const Target& target) {
  const auto on_target = [&](const SupportedRecipe& row) { return row.target == target.kind; };
  const auto with_recipe = [&](const SupportedRecipe& row) {
    return on_target(row) && row.recipe == layer.recipe;
  };
  if (std::ranges::none_of(kSupported, with_recipe)) {
    return refuse(layer, target, "recipe", to_string(layer.recipe),
                  names_of(on_target, [](const auto& row) { return to_string(row.recipe); }));
  }
  for (const Pass pass : layer.passes) {
    const auto with_pass = [&](const auto& row) { return with_recipe(row) && row.pass == pass; };
    if (std::ranges::none_of(kSupported, with_pass)) {
      return refuse(layer, target, "pass", to_string(pass),
                    names_of(with_recipe, [](const auto& row) { return to_string(row.pass); }));
    }
  }
  if (layer.block_size != 128)
    return refuse(layer, target, "block_size", std::to_string(layer.block_size), "128");
  return is_quantized(layer) ? Result<void>{} : check_bf16(layer, target);
}

}  // namespace moejit::compiler
