// SPDX-License-Identifier: Apache-2.0
#include "compiler/compiler.h"

namespace moejit::compiler {

std::vector<SavedMemory> compare_saved_memory(const Plan& plan) {
  std::vector<SavedMemory> all;
  if (!plan.layer || !has_backward(*plan.layer)) return all;
  std::vector<Recipe> recipes = {plan.layer->recipe};
  if (plan.layer->recipe != Recipe::kBf16) recipes.push_back(Recipe::kBf16);
  for (const Recipe& recipe : recipes) {
    for (const Recompute recompute : {Recompute::kNone, Recompute::kMoeExpert}) {
      Layer layer = *plan.layer;
      layer.recipe = recipe;
      layer.recompute = recompute;
      if (!has_scales(recipe.tokens)) {  // bf16 does not have these choices
        layer.scale_sharing_k = 1;
        layer.dispatch = Dispatch::kNone;
        layer.dispatch_calls = false;
        // wgrad in bf16 takes 64 rows at a time.
        const int32_t alignment = (layer.splits_alignment + 63) / 64 * 64;
        layer.splits_alignment = alignment;
        layer.max_permuted_rows = (layer.max_permuted_rows + alignment - 1) / alignment * alignment;
      }
      const Result<Plan> other = plan_layer(layer, plan.target);
      if (other) all.push_back({recipe, recompute, other->saved_bytes});
    }
  }
  return all;
}

}  // namespace moejit::compiler
