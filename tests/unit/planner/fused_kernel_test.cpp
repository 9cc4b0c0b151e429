// SPDX-License-Identifier: Apache-2.0
#include "compiler/compiler.h"
#include "tests/unit/planner/planner_layers.h"

#include <gtest/gtest.h>
#include <set>
#include <string>

namespace moejit::compiler {
namespace {

// The fields that take kernels of a layer apart, and how many kernels each.
std::multiset<std::string> fields_of(const Layer& layer) {
  std::multiset<std::string> fields;
  for (const KernelPlan& kernel : plan_of(layer).kernels) {
    const auto source = emit_kernel(kernel, Target{});
    EXPECT_TRUE(source);
    if (source) fields.emplace(field_that_fuses(source->entry));
  }
  fields.erase("");
  return fields;
}

TEST(FusedKernel, IsGoneWhereItsFieldIsFalse) {
  Layer layer = dsv3_like_layer();
  layer.experts = layer.local_experts = 8;
  layer.max_permuted_rows = worst_case_permuted_rows(layer);
  layer.passes = {Pass::kForward, Pass::kBackward};
  const std::multiset<std::string> all = {"fuse_activation", "fuse_activation_transpose",
                                          "fuse_transpose", "fuse_transpose"};
  EXPECT_EQ(fields_of(layer), all);
  layer.fuse_transpose = false;
  EXPECT_EQ(fields_of(layer).count("fuse_transpose"), 0U);
  layer.fuse_activation_transpose = false;
  EXPECT_EQ(fields_of(layer).count("fuse_activation_transpose"), 0U);
  layer.fuse_activation = false;
  EXPECT_TRUE(fields_of(layer).empty());
}

}  // namespace
}  // namespace moejit::compiler
