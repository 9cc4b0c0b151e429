// SPDX-License-Identifier: Apache-2.0
#include "tests/compile/planned_routers.h"

#include "compiler/compiler.h"
#include "tests/support/matchers.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

namespace moejit::testing {
namespace {

struct PlannedRouter {
  int32_t max_tokens, experts, top_k;
  const char* formula;
};

constexpr const char* kChosen = R"({"normalize": "sum"})";
constexpr const char* kGrouped =
    R"({"score": "sigmoid", "bias": true, "groups": 8, "groups_kept": 4, "normalize": "sum",
        "epsilon": 1e-20, "scale": 2.5})";
constexpr PlannedRouter kRouters[] = {
    {128, 8, 2, kChosen},
    {8192, 60, 4, R"({})"},
    {8192, 128, 8, kChosen},
    {8192, 128, 8, R"({"normalize": "sum", "logits_dtype": "bf16", "aux": "chosen", "z": true})"},
    {8192, 32, 4, R"({"when": "after", "logits_dtype": "bf16"})"},
    {128, 256, 8, kGrouped},
    {8192, 256, 8, kGrouped},
    {8192, 256, 8,
     R"({"score": "sigmoid", "bias": true, "groups": 8, "groups_kept": 4, "normalize": "sum",
         "epsilon": 1e-20, "scale": 2.5, "aux": "unbiased", "z": true})"},
    {8192, 160, 6,
     R"({"groups": 8, "groups_kept": 3, "group_score": "max", "group_fill": "zero", "scale": 16})"},
    {8192, 64, 6, R"({"score": "sqrtsoftplus", "bias": true, "softcap": 30, "normalize": "sum"})"},
    {8192, 512, 12, R"({"bias": true, "zero_experts": 256, "scale": 6})"},
    {8192, 1024, 32, R"({"score": "sigmoid", "bias": true, "normalize": "sum", "aux": "chosen"})"},
    {8192, 64, 6, R"({"ids": "given", "expert_scale": true, "normalize": "sum"})"},
};

void add_router(std::string_view operation, const PlannedRouter& router,
                std::map<std::string, PlannedKernel>& all) {
  const std::string json = fmt::format(
      R"({{"operation": "{}", "max_tokens": {}, "experts": {}, "top_k": {}, "router": {}}})",
      operation, router.max_tokens, router.experts, router.top_k, router.formula);
  const auto plan = compiler::parse_operation(json, "router").and_then([](const auto& one) {
    return compiler::plan_operation(one, compiler::Target{});
  });
  ASSERT_TRUE(succeeded(plan)) << json;
  const compiler::KernelPlan& kernel = plan->kernels.front();
  const auto source = compiler::emit_kernel(kernel, plan->target);
  ASSERT_TRUE(succeeded(source));
  all.try_emplace(source->entry, PlannedKernel{kernel.spec, *source});
}

}  // namespace

void add_routers(std::map<std::string, PlannedKernel>& all) {
  for (const PlannedRouter& router : kRouters)
    for (const char* const operation : {"router", "router_backward"})
      add_router(operation, router, all);
}

}  // namespace moejit::testing
