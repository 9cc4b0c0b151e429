// SPDX-License-Identifier: Apache-2.0
// What a plan says of its calls.
#include "compiler/group_plan.h"
#include "compiler/operation.h"
#include "tests/unit/planner/group_layers.h"
#include "tests/unit/planner/training_layers.h"

#include <algorithm>
#include <fmt/core.h>

namespace moejit::compiler {
namespace {

const CallPlan& call_of(const Plan& plan, std::string_view name) {
  return plan.calls[find_call(plan, name).value()];
}

Names names_of_calls(const Plan& plan) {
  Names names;
  for (const CallPlan& call : plan.calls) names.push_back(call.name);
  return names;
}

// The names of the kernels and of the collective steps that a call runs.
Names steps_of(const Plan& plan, std::string_view name) {
  Names names;
  for (const CallStep& step : call_of(plan, name).steps)
    names.push_back(step.is_collective ? plan.collectives[step.index].operation
                                       : plan.kernels[step.index].operation);
  return names;
}

// What a call takes: "x", "y=" is written, "dw1+=" is read and written, "status?" is optional, and
// "dy*" tells its shape alone.
std::string taken_by(const Plan& plan, std::string_view name) {
  std::string text;
  for (const CallTensor& tensor : call_of(plan, name).tensors) {
    const std::string_view access = tensor.access == Access::kRead    ? ""
                                    : tensor.access == Access::kWrite ? "="
                                                                      : "+=";
    text += fmt::format("{}{}{}{}{}", text.empty() ? "" : " ", plan.tensors[tensor.slot].name,
                        access, tensor.is_optional ? "?" : "", tensor.is_shape_only ? "*" : "");
  }
  return text;
}

std::string error_of(const Plan& plan, std::string_view name) {
  const auto found = find_call(plan, name);
  if (found) return "";
  EXPECT_EQ(found.error().code, ErrorCode::kUnsupported);
  return found.error().message + "; " + found.error().hint;
}

Layer layer_with_all_calls() {
  Layer layer = training_layer();
  layer.name = "all";
  layer.dispatch = Dispatch::kFp8;
  layer.dispatch_calls = layer.backward_halves = true;
  return layer;
}

TEST(CallsPlan, HasTheCallsThatADescriptionAsksFor) {
  EXPECT_EQ(
      names_of_calls(plan_of(dsv3_like_layer())),
      (Names{"update_weights", "update_forward_scales", "forward", "update_weights+forward"}));
  EXPECT_EQ(names_of_calls(plan_of(training_layer())),
            (Names{"update_weights", "update_forward_scales", "update_backward_scales", "forward",
                   "backward", "backward+add", "update_weights+forward"}));
  EXPECT_EQ(names_of_calls(plan_of(layer_with_all_calls())),
            (Names{"update_weights", "update_forward_scales", "update_backward_scales", "forward",
                   "quantize", "experts", "backward", "backward+add", "backward_data",
                   "backward_weights", "backward_weights+add", "quantize_grad", "experts_grad",
                   "experts_grad+add", "update_weights+forward"}));
}

TEST(CallsPlan, SaysWhyACallIsAbsent) {
  Layer layer = dsv3_like_layer();
  layer.name = "small";
  EXPECT_EQ(
      error_of(plan_of(layer), "backward_data"),
      R"(the layer small has no backward pass; add "backward" to "passes" in its description)");
  EXPECT_EQ(
      error_of(plan_of(layer), "experts_grad"),
      "the layer small has no calls before and after a dispatch; add \"dispatch_calls\": true "
      "to its description, or run all of a pass at once");
  layer.passes = {Pass::kForward, Pass::kBackward};
  layer.fuse_wgrad_accumulation = false;
  EXPECT_EQ(error_of(plan_of(layer), "backward"), "");
  EXPECT_EQ(error_of(plan_of(layer), "backward+add"),
            "the layer small overwrites the gradients of weights and adds nothing to them; "
            "overwrite them, or add \"fuse_wgrad_accumulation\": true to its description");
  EXPECT_EQ(error_of(plan_of(layer), "backward_weights"),
            "the backward pass of the layer small has no halves; add \"backward_halves\": true to "
            "its description, or run all of it at once");
  EXPECT_EQ(error_of(plan_of(dsv3_like_layer()), "run"),
            "the layer dsv3-like has no call run, wanted one of update_weights, "
            "update_forward_scales, forward, update_weights+forward; ");
}

TEST(CallsPlan, OfHalvesShareTheKernelsOfBackward) {
  const Plan plan = plan_of(layer_with_all_calls());
  Names both = steps_of(plan, "backward_data");
  for (std::string& name : steps_of(plan, "backward_weights")) both.push_back(std::move(name));
  EXPECT_EQ(both, steps_of(plan, "backward"));
  EXPECT_EQ(call_of(plan, "backward_data").deferred, BlockUse::kWrite);
  EXPECT_EQ(call_of(plan, "backward_weights").deferred, BlockUse::kRead);
  EXPECT_EQ(taken_by(plan, "backward_weights"),
            "status+=? x_q x_scale_inv dy* dw1= dw2= dy_q dy_scale_inv");
}

// Rows that nothing permutes are the caller's, so forward saves nothing for the part of fc1.
TEST(CallsPlan, OfLinearsShareTheKernelsOfBackward) {
  Layer layer = training_layer();
  layer.backward_linears = true;
  for (const bool keeps_rows : {false, true}) {
    if (keeps_rows) {
      layer.recipe = Recipe::kBf16;
      layer.input = LayerInput::kGrouped;
      layer.top_k = layer.splits_alignment = 1;
      layer.max_permuted_rows = layer.max_tokens;
    }
    const Plan plan = plan_of(layer);
    for (const std::string_view end : {"", "+add"}) {
      Names both = steps_of(plan, fmt::format("backward_fc2{}", end));
      EXPECT_EQ(std::ranges::count(both, end.empty() ? "gemm_fc2_wgrad" : "gemm_fc2_wgrad_add"), 1);
      for (std::string& name : steps_of(plan, fmt::format("backward_fc1{}", end)))
        both.push_back(std::move(name));
      EXPECT_EQ(both, steps_of(plan, fmt::format("backward{}", end)));
    }
    EXPECT_EQ(call_of(plan, "backward_fc2").deferred, BlockUse::kWrite);
    EXPECT_EQ(call_of(plan, "backward_fc1").deferred, BlockUse::kRead);
    EXPECT_EQ(call_of(plan, "backward_fc1").saved, keeps_rows ? BlockUse::kNone : BlockUse::kRead);
    EXPECT_EQ(find_tensor(plan, keeps_rows ? "dh1" : "dh1_colwise_q")->role, TensorRole::kDeferred);
    EXPECT_NE(find_tensor(plan, "dact")->role, TensorRole::kDeferred);
  }
  EXPECT_EQ(taken_by(plan_of(layer), "backward_fc1"), "x tokens_per_expert dy* dw1=");
}

// Columns of weights are then memory of the backward call alone.
TEST(CallsPlan, OfBackwardQuantizeWeights) {
  Layer layer = training_layer();
  layer.backward_quantizes_weights = true;
  const Plan plan = plan_of(layer);
  EXPECT_EQ(steps_of(plan, "update_weights"), (Names{"quantize_w1", "quantize_w2"}));
  for (const std::string_view weights : {"w1", "w2"}) {
    const TensorPlan& columns = *find_tensor(plan, fmt::format("{}_colwise_q", weights));
    EXPECT_EQ(columns.role, TensorRole::kWorkspace);
    const Names steps = steps_of(plan, "backward");
    const auto cast = std::ranges::find(steps, fmt::format("quantize_{}_columns", weights));
    ASSERT_NE(cast, steps.end());
    EXPECT_EQ(*(cast + 1), weights == "w1" ? "gemm_fc1_dgrad" : "gemm_fc2_dgrad");
    EXPECT_TRUE(reads(*find_kernel(plan, *cast), weights));
    EXPECT_FALSE(
        std::get<TileChainSpec>(find_kernel(plan, fmt::format("quantize_{}", weights))->spec)
            .writes_colwise);
  }
}

TEST(CallsPlan, NeedsNoMoreWorkspaceThanItsKernels) {
  const Plan plan = plan_of(training_layer());
  for (const CallPlan& call : plan.calls) {
    int64_t end = 0;
    for (const TensorPlan& tensor : plan.tensors)
      for (const CallStep& step : call.steps)
        if (tensor.role == TensorRole::kWorkspace && touches(plan.kernels[step.index], tensor.name))
          end = std::max(end, tensor.workspace_offset + tensor.bytes);
    EXPECT_EQ(call.workspace_bytes, (end + 255) / 256 * 256) << call.name;
  }
  EXPECT_LT(call_of(plan, "forward").workspace_bytes, plan.workspace_bytes);
  EXPECT_EQ(call_of(plan, "backward").workspace_bytes, plan.workspace_bytes);
}

TEST(CallsPlan, OfDispatchShareTheKernelsOfAPass) {
  const Plan plan = plan_of(layer_with_all_calls());
  for (const std::string_view end : {"", "_grad"}) {
    const std::string quantize = fmt::format("quantize{}", end);
    Names both = steps_of(plan, quantize);
    EXPECT_EQ(both.size(), 1U);
    for (std::string& name : steps_of(plan, fmt::format("experts{}", end)))
      both.push_back(std::move(name));
    EXPECT_EQ(both, steps_of(plan, end.empty() ? "forward" : "backward"));
    EXPECT_FALSE(has_memory(call_of(plan, quantize)));
  }
}

TEST(CallsPlan, AddsWithKernelsOfItsOwn) {
  const Plan plan = plan_of(training_layer());
  Names overwrites = steps_of(plan, "backward"), adds = steps_of(plan, "backward+add");
  ASSERT_EQ(overwrites.size(), adds.size());
  Names differ;
  for (std::size_t i = 0; i < adds.size(); ++i)
    if (adds[i] != overwrites[i]) differ.push_back(adds[i]);
  EXPECT_EQ(differ, (Names{"gemm_fc2_wgrad_add", "gemm_fc1_wgrad_add"}));
  EXPECT_TRUE(call_of(plan, "backward+add").adds);
  EXPECT_FALSE(call_of(plan, "backward").adds);
  EXPECT_EQ(taken_by(plan, "backward"),
            "status+=? dy w1_colwise_q w1_colwise_scale_inv w2_colwise_q w2_colwise_scale_inv dx= "
            "dprobs= dw1= dw2=");
  EXPECT_EQ(taken_by(plan, "backward+add"),
            "status+=? dy w1_colwise_q w1_colwise_scale_inv w2_colwise_q w2_colwise_scale_inv dx= "
            "dprobs= dw1+= dw2+=");
}

TEST(CallsPlan, JoinsTheUpdateOfWeightsAndForward) {
  Layer layer = dsv3_like_layer();
  layer.weight_checks = true;
  const Plan plan = plan_of(layer);
  const CallPlan& both = call_of(plan, "update_weights+forward");
  Names steps = steps_of(plan, "update_weights");
  for (std::string& name : steps_of(plan, "forward")) steps.push_back(std::move(name));
  EXPECT_EQ(steps_of(plan, both.name), steps);
  // The kernel that looks at the weights sets the status word, which forward reads.
  EXPECT_EQ(taken_by(plan, both.name),
            "x topk_ids topk_probs w1 w2 skip_update? weights_digest+= w1_q= w1_scale_inv= w2_q= "
            "w2_scale_inv= y= status=");
  EXPECT_EQ(both.workspace, BlockUse::kWrite);
  EXPECT_EQ(both.saved, BlockUse::kWrite);
}

// A kernel of fp8_delayed finds the scales of weights that the next one reads.
TEST(CallsPlan, ReadsNothingThatTheCallItselfHasWritten) {
  const Plan plan = plan_of(layer_of(Recipe::kFp8Delayed));
  EXPECT_EQ(taken_by(plan, "update_weights"),
            "w1 w2 skip_update? w1_q= w1_scale= w1_scale_inv= w2_q= w2_scale= w2_scale_inv= "
            "fc1_amax_history+= fc1_scale fc2_amax_history+= fc2_scale w1_colwise_q= "
            "w2_colwise_q=");
}

TEST(CallsPlan, SaysWhatACallTakes) {
  const Plan plan = plan_of(training_layer());
  EXPECT_EQ(taken_by(plan, "update_weights"),
            "w1 w2 skip_update? w1_q= w1_scale_inv= w2_q= w2_scale_inv= w1_colwise_q= "
            "w1_colwise_scale_inv= w2_colwise_q= w2_colwise_scale_inv=");
  EXPECT_EQ(taken_by(plan, "forward"),
            "x topk_ids topk_probs w1_q w1_scale_inv w2_q w2_scale_inv y= status+=");
  EXPECT_EQ(call_of(plan, "forward").saved, BlockUse::kWrite);
  EXPECT_EQ(call_of(plan, "backward").saved, BlockUse::kRead);
  EXPECT_EQ(call_of(plan, "backward").workspace, BlockUse::kWrite);
  EXPECT_FALSE(has_memory(call_of(plan, "update_weights")));
}

// A caller who updates weights need not ask what the check found.
TEST(CallsPlan, NeedsNoOutputOfUpdatedWeights) {
  Layer layer = training_layer();
  layer.weight_checks = true;
  const Plan plan = plan_of(layer);
  int64_t outputs = 0;
  for (const CallTensor& tensor : call_of(plan, "update_weights").tensors) {
    if (plan.tensors[tensor.slot].role != TensorRole::kOutput) continue;
    ++outputs;
    EXPECT_TRUE(tensor.is_optional) << plan.tensors[tensor.slot].name;
  }
  EXPECT_GT(outputs, 0);
}

TEST(CallsPlan, OfAGroupAreMadeByAllRanksButThoseOfWeights) {
  const Plan plan =
      planned(parsed(with("\"passes\": [\"forward\", \"backward\"], ",
                          R"({"ranks": 2, "combine": "partial", "transport": "nccl"})")));
  for (const CallPlan& call : plan.calls)
    EXPECT_EQ(call.is_of_all_ranks,
              call.name.ends_with("forward") || call.name.starts_with("backward"))
        << call.name;
  const CallPlan& forward = call_of(plan, "forward");
  EXPECT_EQ(std::ranges::count(forward.steps, true, &CallStep::is_collective), 2);
  for (std::size_t i = 0; i + 1 < forward.steps.size(); ++i)
    if (forward.steps[i].is_collective && !forward.steps[i + 1].is_collective) {
      EXPECT_EQ(plan.collectives[forward.steps[i].index].before,
                static_cast<int32_t>(forward.steps[i + 1].index));
    }
}

// Every kernel has a call, no call touches a caller's tensor that it does not take, and calls take
// nothing else.
TEST(CallsPlan, TakesWhatItsKernelsTouch) {
  for (const Layer& layer : training_layers()) {
    const Plan plan = plan_of(layer);
    std::vector<bool> has_call(plan.kernels.size());
    for (const CallPlan& call : plan.calls)
      for (const CallStep& step : call.steps) has_call[step.index] = true;
    EXPECT_EQ(std::ranges::count(has_call, false), 0);
    for (const CallPlan& call : plan.calls)
      for (const TensorPlan& tensor : plan.tensors)
        if (is_callers(tensor.role)) {
          EXPECT_EQ(call_takes(plan, call.name, tensor.name), touches_in(plan, call.name, tensor))
              << call.name << " " << tensor.name;
        }
  }
}

TEST(CallsPlan, OfAnOperationIsOne) {
  const Plan plan =
      plan_operation({"quantize", {{"max_tokens", 64}, {"columns", 256}}}, {}).value();
  EXPECT_EQ(names_of_calls(plan), Names{"run"});
  EXPECT_EQ(steps_of(plan, "run"), Names{"quantize"});
  EXPECT_EQ(taken_by(plan, "run"), "input output= output_scale_inv=");
}

}  // namespace
}  // namespace moejit::compiler
