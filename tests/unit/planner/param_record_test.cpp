// SPDX-License-Identifier: Apache-2.0
#include "compiler/launch.h"
#include "tests/unit/planner/planner_layers.h"

#include <algorithm>
#include <set>

namespace moejit::compiler {
namespace {

Plan training_plan(Recipe recipe) {
  Layer layer = dsv3_like_layer();
  layer.recipe = recipe;
  layer.passes = {Pass::kForward, Pass::kBackward};
  layer.splits_alignment = 64;  // columns of wgrad's operands have offsets of their own
  layer.max_permuted_rows = worst_case_permuted_rows(layer);
  return plan_of(layer);
}

// A kernel reads what the caller gives, or what a kernel before it has written.
TEST(Access, IsThatOfADataflow) {
  for (const Recipe& recipe : {Recipe::kFp8Flow, Recipe::kBf16}) {
    const Plan plan = training_plan(recipe);
    std::set<std::string> there;
    for (const TensorPlan& tensor : plan.tensors)
      if (tensor.role == TensorRole::kInput || tensor.role == TensorRole::kWeight ||
          tensor.role == TensorRole::kOutput)
        there.insert(tensor.name);
    for (const KernelPlan& kernel : plan.kernels) {
      const auto visit = [&](const auto& argument) {
        if (argument.access != Access::kRead) return;
        EXPECT_TRUE(there.contains(argument.tensor)) << kernel.operation << " " << argument.role;
      };
      std::ranges::for_each(kernel.arguments, visit);
      std::ranges::for_each(kernel.tensor_maps, visit);
      for (const TensorPlan& tensor : plan.tensors)
        if (writes(kernel, tensor.name)) there.insert(tensor.name);
    }
    for (const TensorPlan& tensor : plan.tensors)
      EXPECT_TRUE(there.contains(tensor.name)) << tensor.name;
  }
}

TEST(Access, OfAddedGradientsIsBoth) {
  const Plan plan = training_plan(Recipe::kFp8Flow);
  int added = 0;
  for (const KernelPlan& kernel : plan.kernels) {
    if (kernel.gradient_mode.empty()) continue;
    const auto found = std::ranges::find(kernel.tensor_maps, "d_map", &TensorMapPlan::role);
    ASSERT_NE(found, kernel.tensor_maps.end());
    const bool adds = kernel.gradient_mode == "add";
    EXPECT_EQ(found->access, adds ? Access::kReadWrite : Access::kWrite) << kernel.operation;
    added += adds ? 1 : 0;
  }
  EXPECT_EQ(added, 2);
}

TEST(ParamRecord, LayoutsTellEveryRecord) {
  const std::string layouts = param_record_layouts();
  EXPECT_EQ(std::ranges::count(layouts, '\n'), 36);
  EXPECT_NE(layouts.find("\nbias_gradient "), std::string::npos);
  EXPECT_NE(layouts.find(" call.tokens@"), std::string::npos);
}

}  // namespace
}  // namespace moejit::compiler
