// SPDX-License-Identifier: Apache-2.0
#pragma once

// Layers of small groups, for tests of their plans.

#include "compiler/compiler.h"
#include "compiler/group_plan.h"

#include <gtest/gtest.h>
#include <string>
#include <string_view>

namespace moejit::compiler {

// A description on two ranks, with `more` before the field.
inline std::string with(std::string_view more,
                        std::string_view group = R"({"ranks": 2, "combine": "partial"})") {
  return R"({"experts": 8, "top_k": 2, "hidden": 256, "intermediate": 128, "max_tokens": 64, )" +
         std::string(more) + R"("expert_parallel": )" + std::string(group) + "}";
}

inline Layer parsed(const std::string& text) {
  const Result<Layer> layer = parse_layer(text, "layer.json");
  EXPECT_TRUE(layer) << layer.error().message;
  return layer.value_or(Layer{});
}

inline Plan planned(const Layer& layer, int64_t rank = 0) {
  auto plan = plan_layer(layer, {}, {.rank = rank});
  EXPECT_TRUE(plan) << plan.error().message;
  return plan ? std::move(*plan) : Plan{};
}

}  // namespace moejit::compiler
