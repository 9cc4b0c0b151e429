// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tests/unit/planner/planner_layers.h"

#include <set>
#include <string>
#include <vector>

namespace moejit::compiler {

// The names of operations or tensors, in order.
using Names = std::vector<std::string>;

// The layer of 8 local experts and 32768 rows that memory is stated for.
inline Layer training_layer() {
  Layer layer = dsv3_like_layer();
  layer.experts = layer.local_experts = 8;
  layer.max_permuted_rows = 32768;
  layer.passes = {Pass::kForward, Pass::kBackward};
  return layer;
}

// Returns the training layer with this recipe.
inline Layer layer_of(const Recipe& recipe) {
  Layer layer = training_layer();
  layer.recipe = recipe;
  return layer;
}

// Returns the layer with this recipe and as many rows as its largest call may have at the worst.
inline Layer worst_case_layer(const Recipe& recipe = Recipe::kFp8Flow) {
  Layer layer = layer_of(recipe);
  layer.max_permuted_rows = worst_case_permuted_rows(layer);
  return layer;
}

// Layers with a backward pass whose kernels differ: both recipes, with biases and without, with
// recomputation, dispatch and each way to fuse, and others that forbid to fuse.
inline std::vector<Layer> training_layers() {
  std::vector<Layer> layers;
  const auto add_recipes = [&](Layer layer) {
    layers.push_back(layer);
    layer.recipe = Recipe::kBf16;
    layer.dispatch = Dispatch::kNone;
    layer.scale_sharing_k = 1;
    layer.splits_alignment = 128;
    layers.push_back(layer);
  };
  for (const bool biases : {false, true}) {
    for (const Recompute recompute : {Recompute::kNone, Recompute::kMoeExpert}) {
      Layer layer = training_layer();
      layer.biases = biases;
      layer.recompute = recompute;
      add_recipes(layer);
      for (bool Layer::*const flag :
           {&Layer::fuse_activation, &Layer::fuse_transpose, &Layer::fuse_activation_transpose}) {
        Layer apart = layer;
        apart.*flag = false;
        layers.push_back(apart);
      }
      Layer other = layer;
      other.activation = make_activation("relu_squared").value();
      other.splits_alignment = 16;
      other.dispatch = Dispatch::kFp8;
      add_recipes(other);
      if (!biases) {
        other = layer;
        other.recipe = Recipe::kFp8Delayed;
        layers.push_back(other);
      }
      other = layer;
      other.scale_sharing_k = 2;
      layers.push_back(other);
      other = layer;
      other.max_permuted_rows = 4096;  // a row for each token: nothing is gathered
      layers.push_back(other);
    }
  }
  return layers;
}

// Every list of some of them, also of all.
inline std::vector<std::vector<Gradient>> subsets_of(const std::vector<Gradient>& all) {
  std::vector<std::vector<Gradient>> subsets;
  for (unsigned bits = 1; bits < 1U << all.size(); ++bits) {
    std::vector<Gradient>& subset = subsets.emplace_back();
    for (size_t i = 0; i < all.size(); ++i)
      if ((bits >> i & 1) != 0) subset.push_back(all[i]);
  }
  return subsets;
}

// Returns whether a kernel of the plan's call touches the tensor.
inline bool touches_in(const Plan& plan, std::string_view call, const TensorPlan& tensor) {
  return touches(plan, plan.calls[find_call(plan, call).value()], tensor.name);
}

// Returns the names of a phase's operations, in order.
inline Names operations_of(const Plan& plan, std::string_view phase) {
  Names names;
  for (const KernelPlan& kernel : plan.kernels)
    if (kernel.phase == phase) names.push_back(kernel.operation);
  return names;
}

inline std::set<std::string> tensors_of_role(const Plan& plan, TensorRole role) {
  std::set<std::string> names;
  for (const TensorPlan& tensor : plan.tensors)
    if (tensor.role == role) names.insert(tensor.name);
  return names;
}

}  // namespace moejit::compiler
