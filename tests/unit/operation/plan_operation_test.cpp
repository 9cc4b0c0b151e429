// SPDX-License-Identifier: Apache-2.0
#include "compiler/launch.h"
#include "compiler/operation/operation_draft.h"
#include "tests/unit/operation/operation_examples.h"

#include <algorithm>
#include <set>

namespace moejit::compiler {
namespace {

TEST(PlanOperation, GivesTheOneKernelAllThatItsLaunchNeeds) {
  for (const std::string_view name : operation_names()) {
    SCOPED_TRACE(name);
    const Plan plan = plan_of(operation_of(example_text(name)));
    ASSERT_EQ(plan.kernels.size(), 1U);
    const KernelPlan& kernel = plan.kernels.front();
    EXPECT_EQ(kernel.operation, name);
    EXPECT_EQ(kernel.bounds, plan.bounds);
    EXPECT_EQ(kernel.numbers.size(), param_record(kernel.spec).numbers.size());
    EXPECT_GT(kernel.launch.threads, 0);
    EXPECT_GT(kernel.launch.max_ctas, 0);
    EXPECT_GT(kernel.min_bytes, 0);
    EXPECT_EQ(plan.workspace_bytes, 0);
    for (const KernelArgument& argument : kernel.arguments)
      EXPECT_NE(find_tensor(plan, argument.tensor), nullptr) << argument.tensor;
    for (const TensorMapPlan& map : kernel.tensor_maps)
      EXPECT_NE(find_tensor(plan, map.tensor), nullptr) << map.tensor;
    for (const TensorPlan& tensor : plan.tensors) {
      EXPECT_TRUE(touches(kernel, tensor.name)) << tensor.name;
      EXPECT_GT(tensor.bytes, 0) << tensor.name;
      EXPECT_EQ(tensor.role == TensorRole::kOutput, writes(kernel, tensor.name)) << tensor.name;
    }
  }
}

TEST(PlanOperation, KnowsWhatIsWrittenAndWhatMayBeLeftOut) {
  const auto tensors = [](std::string_view name, auto is) {
    const Plan plan = plan_of(operation_of(example_text(name)));
    std::set<std::string> names;
    for (const TensorPlan& tensor : plan.tensors)
      if (is(tensor)) names.insert(tensor.name);
    return names;
  };
  const auto is_output = [](const TensorPlan& tensor) {
    return tensor.role == TensorRole::kOutput;
  };
  const auto is_left_out = [](const TensorPlan& tensor) { return tensor.is_optional; };
  EXPECT_EQ(tensors("permute_pad", is_output),
            (std::set<std::string>{"output", "output_scale_inv", "output_probs"}));
  EXPECT_EQ(tensors("route", is_output),
            (std::set<std::string>{"counts", "offs", "row_map", "status"}));
  EXPECT_EQ(tensors("unpermute_grad", is_output), (std::set<std::string>{"output", "dprobs"}));
  EXPECT_EQ(tensors("grouped_gemm", is_output), (std::set<std::string>{"d", "elapsed"}));
  EXPECT_EQ(tensors("grouped_gemm", is_left_out), (std::set<std::string>{"elapsed"}));
  EXPECT_EQ(tensors("quantize_weights", is_left_out), (std::set<std::string>{"skip"}));
  EXPECT_EQ(tensors("transpose", is_left_out), (std::set<std::string>{"status"}));
}

TEST(PlanOperation, RoutesAMapToTheRowsOfItsChoices) {
  const Plan plan = plan_of(operation_of(R"({"operation": "route", "max_tokens": 64, "top_k": 3,
      "local_experts": 40, "input": "routing_map", "colwise_offs": true})"));
  const KernelPlan& kernel = plan.kernels.front();
  EXPECT_TRUE(std::holds_alternative<RouteMapSpec>(kernel.spec));
  EXPECT_EQ(find_tensor(plan, "routing_map")->bytes, 64 * 40);
  EXPECT_TRUE(reads(kernel, "routing_map") && !writes(kernel, "routing_map"));
  EXPECT_EQ(find_tensor(plan, "row_map")->bytes, 4 * 64 * 3);
  EXPECT_EQ(find_tensor(plan, "topk_ids"), nullptr);
}

// Programs make descriptions field by field, and may leave out what has a default.
TEST(PlanOperation, ChecksAndCompletesWhatAProgramDescribes) {
  const Plan plan = plan_of({"quantize", {{"max_tokens", 64}, {"columns", 256}}});
  EXPECT_EQ(plan.operation, operation_of(R"({"operation": "quantize", "max_tokens": 64,
                                             "columns": 256, "recipe": "fp8_flow"})"));
  const auto message = [](const OperationDescription& operation) {
    const auto wrong = plan_operation(operation, Target{});
    return wrong ? std::string() : wrong.error().message;
  };
  EXPECT_EQ(message({"quantise", {}}).substr(0, 41),
            R"(operation:2: $.operation: got "quantise",)");
  EXPECT_EQ(message({"quantize", {{"max_tokens", 64}}}), "operation:1: $.columns: missing key");
  EXPECT_EQ(message({"quantize", {{"max_tokens", 64}, {"columns", 256}, {"recipes", "mxfp8"}}}),
            "operation:5: $.recipes: unknown key");
}

TEST(PlanOperation, TellsWhichTensorHasTheScalesOfAnother) {
  const auto scales_of = [](const Plan& plan, std::string_view tensor) {
    return find_tensor(plan, tensor)->scale_inv;
  };
  for (const std::string_view name : operation_names()) {
    const Plan plan = plan_of(operation_of(example_text(name)));
    for (const TensorPlan& tensor : plan.tensors)
      EXPECT_EQ(tensor.scale_inv.empty(), find_tensor(plan, tensor.scale_inv) == nullptr);
  }
  const Plan gemm = plan_of(operation_of(example_text("grouped_gemm")));
  EXPECT_EQ(scales_of(gemm, "a"), "a_scale_inv");
  EXPECT_EQ(scales_of(gemm, "d"), "");
  const Plan permute = plan_of({"quantize_permute_pad",
                                {{"max_tokens", 64},
                                 {"top_k", 2},
                                 {"local_experts", 4},
                                 {"columns", 256},
                                 {"keep_rows", true}}});
  EXPECT_EQ(scales_of(permute, "input"), "");
  EXPECT_EQ(scales_of(permute, "kept_output"), "kept_scale_inv");
  const Plan layer = plan_layer(parse_layer(R"({"experts": 4, "top_k": 2, "hidden": 128,
      "intermediate": 128, "max_tokens": 64, "fuse_activation": false})",
                                            "layer")
                                    .value(),
                                {})
                         .value();
  EXPECT_EQ(scales_of(layer, "permuted_q"), "permuted_scale_inv");
  EXPECT_EQ(scales_of(layer, "h1"), "");
}

TEST(PlanOperation, IsPrintedAndDigestedWithItsDescription) {
  const Plan plan = plan_of(operation_of(example_text("route")));
  const std::string text = print_plan(plan, true);
  EXPECT_NE(text.find("operation route for cuda:sm_90a\nplan digest " + plan_digest(plan)),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("row_map"), std::string::npos);
  const std::string json = plan_to_json(plan);
  EXPECT_NE(json.find(R"("operation": "route")"), std::string::npos) << json;
  EXPECT_NE(json.find("\"plan_digest\": \"" + plan_digest(plan) + "\""), std::string::npos);
  std::set<std::string> digests;
  for (const std::string_view name : operation_names())
    digests.insert(plan_digest(plan_of(operation_of(example_text(name)))));
  EXPECT_EQ(digests.size(), operation_names().size());
}

}  // namespace
}  // namespace moejit::compiler
