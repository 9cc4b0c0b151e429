// SPDX-License-Identifier: Apache-2.0
// Layers whose operands have one scale for each row, and for each column of an expert.
#include "tests/unit/planner/training_layers.h"

#include <algorithm>

namespace moejit::compiler {
namespace {

TEST(RowScalesPlan, PlanScalesOfWholeRowsAndColumns) {
  const Plan plan = plan_of(layer_of(Recipe::kFp8Rowwise));
  EXPECT_EQ(operations_of(plan, "weights"),
            (Names{"quantize_w1", "scale_columns_w1", "quantize_columns_w1", "quantize_w2",
                   "scale_columns_w2", "quantize_columns_w2"}));
  EXPECT_EQ(operations_of(plan, "forward"),
            (Names{"route", "quantize_permute_pad", "gemm_fc1", "activation_quantize", "gemm_fc2",
                   "unpermute"}));
  EXPECT_EQ(operations_of(plan, "backward"),
            (Names{"quantize_permute_pad_grad", "gemm_fc2_dgrad", "activation_backward_amax",
                   "scale_columns_dh1", "scale_columns_act", "activation_backward_quantize_both",
                   "permute_scale_columns_grad", "permute_quantize_columns_grad", "gemm_fc2_wgrad",
                   "gemm_fc2_wgrad_add", "permute_scale_columns_x", "permute_quantize_columns_x",
                   "gemm_fc1_wgrad", "gemm_fc1_wgrad_add", "gemm_fc1_dgrad", "unpermute_grad"}));
  for (const std::string_view gemm : {"gemm_fc1", "gemm_fc2", "gemm_fc1_dgrad", "gemm_fc2_dgrad"}) {
    const auto& spec = std::get<GroupedGemmSpec>(find_kernel(plan, gemm)->spec);
    EXPECT_EQ(spec.scales, GemmScales::kRowColumn) << gemm;
    EXPECT_EQ(spec.accumulation, GemmAccumulation::kFast) << gemm;
  }
  const auto& wgrad =
      std::get<ContractionGroupedGemmSpec>(find_kernel(plan, "gemm_fc2_wgrad")->spec);
  EXPECT_EQ(wgrad.scales, GradientScales::kRowColumn);
  EXPECT_EQ(wgrad.accumulation, GemmAccumulation::kFast);
  const auto& chain = std::get<RowChainSpec>(find_kernel(plan, "activation_quantize")->spec);
  EXPECT_EQ(chain.quantize, QuantizeStage::kRow);
  EXPECT_EQ(chain.epsilon, 1e-12f);
  const auto symbols = [&](std::string_view tensor) {
    Names names;
    for (const Dim& dim : find_tensor(plan, tensor)->shape) names.push_back(dim.symbol);
    return names;
  };
  EXPECT_EQ(symbols("permuted_scale_inv"), Names{"P"});
  EXPECT_EQ(symbols("dh1_scale_inv"), Names{"P"});
  EXPECT_EQ(symbols("w1_scale_inv"), (Names{"E", "2I"}));
  EXPECT_EQ(symbols("w1_colwise_scale_inv"), (Names{"E", "H"}));
  EXPECT_EQ(symbols("x_colwise_scale_inv"), (Names{"E", "H"}));
  EXPECT_EQ(symbols("dh1_amax"), (Names{"P", "ceil(I/128)"}));
  EXPECT_EQ(symbols("dh1_colwise_amax"), (Names{"C/128", "2I"}));
  EXPECT_EQ(symbols("act_colwise_amax"), (Names{"C/128", "I"}));
  for (const std::string_view unsaved : {"x_q", "permuted", "grad_permuted", "act", "dh1"})
    EXPECT_EQ(find_tensor(plan, unsaved), nullptr) << unsaved;
}

TEST(RowScalesPlan, FindMagnitudesOfWhatIsCastAlone) {
  const auto spec_of = [](const Layer& layer, std::string_view operation) {
    return std::get<GatedGradientSpec>(find_kernel(plan_of(layer), operation)->spec);
  };
  Layer layer = layer_of(Recipe::kFp8Rowwise);
  layer.gradients = {Gradient::kDw1, Gradient::kDw2};  // no rows
  for (const char* operation : {"activation_backward_amax", "activation_backward_quantize_both"})
    EXPECT_FALSE(spec_of(layer, operation).stores_rows) << operation;
  EXPECT_EQ(find_tensor(plan_of(layer), "dh1_amax"), nullptr);
  layer.gradients = {Gradient::kDx, Gradient::kDw2};  // no columns of dh1
  for (const char* operation : {"activation_backward_amax", "activation_backward_quantize_both"})
    EXPECT_FALSE(spec_of(layer, operation).transposes_gradient) << operation;
  EXPECT_EQ(find_kernel(plan_of(layer), "scale_columns_dh1"), nullptr);
  EXPECT_EQ(find_tensor(plan_of(layer), "dh1_colwise_amax"), nullptr);
}

// What the two passes do not have: values of both casts in one tile, or a use for them.
TEST(RowScalesPlan, CastValuesOfDh1InKernelsOfTheirOwnWhereTheyAreKeptApart) {
  const auto is_apart = [](const Layer& layer) {
    return find_kernel(plan_of(layer), "activation_backward_amax") == nullptr;
  };
  Layer layer = layer_of(Recipe::kFp8Rowwise);
  EXPECT_FALSE(is_apart(layer));
  layer.recompute = Recompute::kMoeExpert;
  EXPECT_FALSE(is_apart(layer));
  layer.fuse_activation_transpose = false;
  EXPECT_TRUE(is_apart(layer));
  for (const char* operation :
       {"activation", "scale_columns_act", "quantize_columns_act", "activation_backward_quantize",
        "activation_backward", "scale_columns_dh1", "quantize_columns_dh1"})
    EXPECT_NE(find_kernel(plan_of(layer), operation), nullptr) << operation;
  for (const std::vector<Gradient>& gradients :
       {std::vector{Gradient::kDx, Gradient::kDw1}, {Gradient::kDw2, Gradient::kDprobs}}) {
    layer = layer_of(Recipe::kFp8Rowwise);
    layer.gradients = gradients;
    EXPECT_TRUE(is_apart(layer));
  }
  layer = layer_of(Recipe::kFp8Rowwise);
  layer.activation = make_activation("relu_squared").value();
  EXPECT_TRUE(is_apart(layer));
}

// wgrad sorts rows by whole tiles; dgrad takes rows that no zeros fill up.
TEST(RowScalesPlan, FillUpWhatWgradSortsAlone) {
  Layer layer = layer_of(Recipe::kFp8Rowwise);
  layer.gate_up_layout = GateUpLayout::kInterleaved;
  layer.intermediate = 144;
  const Plan plan = plan_of(layer);
  const auto columns = [&](std::string_view tensor, size_t dim) {
    return find_tensor(plan, tensor)->shape[dim].value;
  };
  EXPECT_EQ(columns("dh1_q", 1), 288);
  EXPECT_EQ(columns("w1_colwise_q", 2), 288);
  EXPECT_EQ(columns("dh1", 1), 512);
  EXPECT_EQ(columns("dh1_colwise_q", 1), 512);
  EXPECT_EQ(columns("dh1_colwise_scale_inv", 1), 512);
}

// x is an argument of backward: nothing quantized is kept of it.
TEST(RowScalesPlan, QuantizeRowsAgainWhereBackwardRecomputes) {
  Layer layer = layer_of(Recipe::kFp8Rowwise);
  layer.recompute = Recompute::kMoeExpert;
  const Plan plan = plan_of(layer);
  EXPECT_EQ(operations_of(plan, "backward").front(), "quantize_permute_pad");
  EXPECT_EQ(find_tensor(plan, "x_q"), nullptr);
  EXPECT_EQ(find_tensor(plan, "permuted_q")->role, TensorRole::kWorkspace);
}

TEST(RowScalesPlan, RefuseWhatScalesOfWholeRowsCannotHave) {
  Layer layer = layer_of(Recipe::kFp8Rowwise);
  layer.biases = true;
  EXPECT_EQ(plan_layer(layer, Target{}).error().code, ErrorCode::kUnsupported);
  layer = layer_of(Recipe::kFp8Rowwise);
  layer.dispatch = Dispatch::kFp8;
  EXPECT_EQ(plan_layer(layer, Target{}).error().code, ErrorCode::kUnsupported);
  Recipe recipe = Recipe::kFp8Rowwise;
  recipe.weights_colwise = Recipe::kFp8Flow.weights_colwise;
  recipe.gradients = Recipe::kFp8Flow.gradients;
  EXPECT_EQ(plan_layer(layer_of(recipe), Target{}).error().code, ErrorCode::kUnsupported);
}

}  // namespace
}  // namespace moejit::compiler
