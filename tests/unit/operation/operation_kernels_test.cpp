// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/operation/operation_examples.h"

#include <algorithm>
#include <fmt/core.h>

namespace moejit::compiler {
namespace {

Plan layer_plan(std::string_view fields) {
  const auto layer = parse_layer(fmt::format(R"({{"name": "some", "experts": 8, "top_k": 2,
      "hidden": 512, "intermediate": 192, "splits_alignment": 64, "max_tokens": 256,
      "passes": ["forward", "backward"], "fuse_transpose": false,
      "fuse_activation_transpose": false {}}})",
                                             fields),
                                 "layer");
  EXPECT_TRUE(layer) << to_string(layer.error());
  return plan_layer(*layer, Target{}).value();
}

// The operation has the kernel that the layer has under the same name: equal launches, numbers,
// and text, so that it is compiled once.
void expect_kernel_of(const Plan& layer, std::string_view json) {
  SCOPED_TRACE(json);
  const Plan plan = plan_of(operation_of(json));
  const KernelPlan& got = plan.kernels.front();
  const auto wanted = std::ranges::find(layer.kernels, got.operation, &KernelPlan::operation);
  ASSERT_NE(wanted, layer.kernels.end());
  EXPECT_EQ(to_string(got.spec), to_string(wanted->spec));
  EXPECT_EQ(got.spec, wanted->spec);
  EXPECT_EQ(got.launch, wanted->launch);
  EXPECT_EQ(got.numbers, wanted->numbers);
  EXPECT_EQ(emit_kernel(got, plan.target)->entry, emit_kernel(*wanted, plan.target)->entry);
}

std::string tokens(std::string_view operation, std::string_view more = "") {
  return fmt::format(R"({{"operation": "{}", "max_tokens": 256, "top_k": 2, "local_experts": 8,
      "splits_alignment": 64{}}})",
                     operation, more);
}

std::string rows(std::string_view operation, int64_t count, std::string_view more = "") {
  return fmt::format(R"({{"operation": "{}", "local_experts": 8, "max_permuted_rows": {}{}}})",
                     operation, count, more);
}

TEST(OperationKernels, AreThoseOfALayerInFp8) {
  const Plan layer = layer_plan("");
  const int64_t p = layer.layer->max_permuted_rows;
  expect_kernel_of(layer, tokens("route", R"(, "colwise_offs": true)"));
  expect_kernel_of(layer, tokens("quantize_permute_pad", R"(, "columns": 512)"));
  expect_kernel_of(layer, tokens("unpermute", R"(, "columns": 512)"));
  expect_kernel_of(layer, tokens("quantize_permute_pad_grad", R"(, "columns": 512)"));
  expect_kernel_of(layer, tokens("unpermute_grad", R"(, "columns": 512, "dprobs_columns": 2)"));
  expect_kernel_of(layer, rows("activation_backward_quantize", p, R"(, "intermediate": 192)"));
  const Plan apart = layer_plan(R"(, "local_experts": 4, "fuse_activation": false)");
  const std::string few = R"({"operation": "permute_pad", "max_tokens": 256, "top_k": 2,
      "local_experts": 4, "splits_alignment": 64, "columns": 512, "experts": 8})";
  expect_kernel_of(apart, few);
  expect_kernel_of(apart, R"({"operation": "quantize", "max_tokens": 256, "columns": 512})");
}

TEST(OperationKernels, AreThoseOfALayerWhoseOperandsOfWgradAreCast) {
  const Plan layer = layer_plan(R"(, "recipe": "fp8_blockwise")");
  const int64_t p = layer.layer->max_permuted_rows;
  const std::string_view recipe = R"(, "recipe": "fp8_blockwise")";
  expect_kernel_of(layer,
                   tokens("quantize_permute_pad", fmt::format(R"(, "columns": 512{})", recipe)));
  expect_kernel_of(
      layer, tokens("quantize_permute_pad_grad", fmt::format(R"(, "columns": 512{})", recipe)));
  for (const std::string_view name : {"activation_quantize", "activation_backward_quantize"})
    expect_kernel_of(layer, rows(name, p, fmt::format(R"(, "intermediate": 192{})", recipe)));
  const auto cast = [](const Plan& plan) {
    return std::get<ColumnCastSpec>(
        std::ranges::find_if(plan.kernels, [](const KernelPlan& kernel) {
          return std::holds_alternative<ColumnCastSpec>(kernel.spec);
        })->spec);
  };
  EXPECT_EQ(cast(plan_of(operation_of(rows("quantize_columns", p, R"(, "columns": 512)")))),
            cast(layer));
}

// Codes and scales in the place of the values that a layer's GEMMs multiply.
TEST(OperationKernels, MakeCodesOfGroupsWithTheirScales) {
  const std::string_view recipe = R"(, "recipe": "mxfp8")";
  const Plan rows_of = plan_of(operation_of(
      fmt::format(R"({{"operation": "quantize", "max_tokens": 64, "columns": 160{}}})", recipe)));
  const TensorPlan& scales = *find_tensor(rows_of, "output_scale_inv");
  EXPECT_EQ(scales.dtype, DType::kF8E8M0);
  EXPECT_EQ(scales.shape.back().value, 8);  // five groups, in two words
  EXPECT_EQ(std::get<RowChainSpec>(rows_of.kernels.front().spec).quantize, QuantizeStage::k1x32);
  const Plan columns = plan_of(operation_of(rows(
      "quantize_columns", 192, fmt::format(R"(, "columns": 160, "rowwise": true{})", recipe))));
  const auto& cast = std::get<BlockCastSpec>(columns.kernels.front().spec);
  EXPECT_TRUE(cast.casts_rows && cast.casts_columns);
  EXPECT_EQ(cast.result, CastResult::kCodes);
  EXPECT_EQ(find_tensor(columns, "output_colwise_scale_inv")->shape.front().value, 6);
  EXPECT_EQ(find_tensor(columns, "output_offs"), nullptr);
}

// Codes are packed along the contraction, which by columns runs along the rows.
TEST(OperationKernels, MakePackedCodesBelowOneScaleOfEachExpert) {
  const std::string_view recipe = R"(, "recipe": "nvfp4")";
  const auto sizes = [](const Plan& plan, std::string_view tensor) {
    std::vector<int64_t> all;
    for (const Dim& dim : find_tensor(plan, tensor)->shape) all.push_back(dim.value);
    return all;
  };
  using Sizes = std::vector<int64_t>;
  const Plan rows_of = plan_of(operation_of(
      fmt::format(R"({{"operation": "quantize", "max_tokens": 64, "columns": 160{}}})", recipe)));
  EXPECT_EQ(find_tensor(rows_of, "output")->dtype, DType::kF4E2M1x2);
  EXPECT_EQ(find_tensor(rows_of, "output_scale_inv")->dtype, DType::kF8E4M3);
  EXPECT_EQ(sizes(rows_of, "output"), (Sizes{64, 80}));
  EXPECT_EQ(sizes(rows_of, "output_scale_inv"), (Sizes{64, 16}));  // ten blocks, in two words
  EXPECT_EQ(sizes(rows_of, "expert_scales"), (Sizes{1}));
  const Plan columns = plan_of(operation_of(rows(
      "quantize_columns", 200, fmt::format(R"(, "columns": 160, "rowwise": true{})", recipe))));
  EXPECT_EQ(sizes(columns, "output_colwise"), (Sizes{160, 104}));  // of 208 rows
  EXPECT_EQ(sizes(columns, "output_colwise_scale_inv"), (Sizes{160, 13}));
  const auto& cast = std::get<TwoLevelCastSpec>(columns.kernels.front().spec);
  EXPECT_TRUE(cast.casts_rows && cast.casts_columns && !cast.has_tiles);
  const Plan weights = plan_of(
      operation_of(fmt::format(R"({{"operation": "quantize_weights", "local_experts": 2, "rows": 48,
                       "columns": 64, "colwise": true{}}})",
                               recipe)));
  EXPECT_EQ(sizes(weights, "output"), (Sizes{2, 48, 32}));
  EXPECT_EQ(sizes(weights, "output_colwise"), (Sizes{2, 64, 24}));
  EXPECT_EQ(sizes(weights, "output_colwise_scale_inv"), (Sizes{2, 64, 3}));
  EXPECT_TRUE(std::get<TwoLevelCastSpec>(weights.kernels.front().spec).has_tiles);
}

// One launch moves codes and scales; L2 is asked for rows where these are multiples of 16 bytes.
TEST(OperationKernels, MovePackedRowsWithTheirScales) {
  const auto permuted = [](std::string_view name, std::string_view columns) {
    return plan_of(operation_of(fmt::format(
        R"({{"operation": "{}", "max_tokens": 16384, "top_k": 8, "local_experts": 8,
             "splits_alignment": 16, "columns": {}, "format": "fp4"}})",
        name, columns)));
  };
  for (const std::string_view name : {"permute_pad", "permute_pad_grad"}) {
    const Plan plan = permuted(name, "2896");
    ASSERT_EQ(plan.kernels.size(), 1U);
    for (const std::string_view rows : {"input", "output"}) {
      const TensorPlan& codes = *find_tensor(plan, rows);
      const TensorPlan& scales = *find_tensor(plan, fmt::format("{}_scale_inv", rows));
      EXPECT_EQ(codes.dtype, DType::kF4E2M1x2);
      EXPECT_EQ(codes.shape.back().value, 1448);
      EXPECT_EQ(scales.dtype, DType::kF8E4M3);
      EXPECT_EQ(scales.shape.back().value, 184);  // 181 blocks, in words of 128 columns
    }
    const auto& spec = std::get<RowChainSpec>(plan.kernels.front().spec);
    EXPECT_EQ(spec.load, LoadStage::kTwoLevelRows);
    EXPECT_EQ(spec.moves_probs, name == "permute_pad");
    EXPECT_EQ(spec.rows_per_burst, 0);
    EXPECT_EQ(std::get<RowChainSpec>(permuted(name, "2880").kernels.front().spec).rows_per_burst,
              (int64_t{3} << 20) / 1440 / 16 * 16);
  }
}

TEST(OperationKernels, RefuseWhatGroupsDoNotHave) {
  const auto refusal = [](const std::string& json) {
    const auto plan = plan_operation(operation_of(json), Target{});
    return plan ? std::string() : plan.error().message;
  };
  EXPECT_NE(refusal(R"({"operation": "quantize_weights", "local_experts": 2, "rows": 48,
                        "columns": 64, "recipe": "mxfp8"})")
                .find("got 48 rows in 1 sections"),
            std::string::npos);
  EXPECT_NE(refusal(R"({"operation": "quantize_weights", "local_experts": 2, "rows": 64,
                        "sections": 2, "columns": 64, "recipe": "nvfp4"})")
                .find("wanted a multiple of 16 in one section"),
            std::string::npos);
  EXPECT_NE(refusal(R"({"operation": "contraction_grouped_gemm", "local_experts": 2, "rows": 64,
                        "n": 64, "max_columns": 128, "scales": "tile", "a_dtype": "bf16"})")
                .find("a \"BF16\" with the scales tile"),
            std::string::npos);
}

TEST(OperationKernels, AreThoseOfALayerWhoseRowsHaveOneScale) {
  const Plan layer = layer_plan(R"(, "recipe": "fp8_rowwise")");
  const int64_t p = layer.layer->max_permuted_rows;
  const std::string_view recipe = R"(, "recipe": "fp8_rowwise")";
  expect_kernel_of(layer,
                   tokens("quantize_permute_pad", fmt::format(R"(, "columns": 512{})", recipe)));
  expect_kernel_of(
      layer, tokens("quantize_permute_pad_grad", fmt::format(R"(, "columns": 512{})", recipe)));
  for (const std::string_view name : {"activation_quantize", "activation_backward_quantize"})
    expect_kernel_of(layer, rows(name, p, fmt::format(R"(, "intermediate": 192{})", recipe)));
  const auto spec_in = [](const Plan& plan, std::string_view operation) {
    return std::ranges::find(plan.kernels, operation, &KernelPlan::operation)->spec;
  };
  const auto pass = [&](const Plan& plan, std::string_view operation) {
    return std::get<GroupColumnsSpec>(spec_in(plan, operation));
  };
  const auto alone = [&](std::string_view name, std::string_view with) {
    return pass(plan_of(operation_of(rows(name, p, with))), name);
  };
  EXPECT_EQ(alone("scale_columns", R"(, "columns": 192)"), pass(layer, "scale_columns_act"));
  EXPECT_EQ(alone("quantize_columns", R"(, "columns": 192, "recipe": "fp8_rowwise")"),
            pass(layer, "quantize_columns_act"));
  const auto of_weights = [&](std::string_view name, std::string_view with) {
    return spec_in(
        plan_of(operation_of(fmt::format(
            R"({{"operation": "{}", "local_experts": 8, "rows": 512, "columns": 192{}}})", name,
            with))),
        name);
  };
  EXPECT_EQ(of_weights("quantize_weights", recipe), spec_in(layer, "quantize_w2"));
  EXPECT_EQ(of_weights("scale_weight_columns", ""), spec_in(layer, "scale_columns_w2"));
  EXPECT_EQ(of_weights("quantize_weight_columns", ""), spec_in(layer, "quantize_columns_w2"));
}

TEST(OperationKernels, AreThoseOfALayerWhoseRowsStayWhereTheyAre) {
  const auto layer = parse_layer(R"({"experts": 8, "hidden": 512, "intermediate": 192,
      "recipe": "bf16", "input": "grouped", "splits_alignment": 1, "max_tokens": 1024,
      "wgrad_dtype": "bf16", "passes": ["forward", "backward"]})",
                                 "layer");
  ASSERT_TRUE(layer) << to_string(layer.error());
  const Plan plan = plan_layer(*layer, Target{}).value();
  const auto expect_spec_of = [&](std::string_view of_layer, std::string_view json) {
    const Plan alone = plan_of(operation_of(json));
    const KernelPlan& got = alone.kernels.front();
    const auto wanted = std::ranges::find(plan.kernels, of_layer, &KernelPlan::operation);
    ASSERT_NE(wanted, plan.kernels.end());
    EXPECT_EQ(to_string(got.spec), to_string(wanted->spec));
    EXPECT_EQ(got.numbers, wanted->numbers);
  };
  expect_spec_of("gemm_fc2", rows("grouped_gemm", 1024, R"(, "n": 512, "k": 192, "scales": "none",
      "zeros_rest": true)"));
  expect_spec_of("gemm_fc2_wgrad", R"({"operation": "contraction_grouped_gemm", "local_experts": 8,
      "max_columns": 1024, "rows": 512, "n": 192, "scales": "none", "output": "bf16",
      "splits_alignment": 1})");
}

TEST(OperationKernels, AreThoseOfALayerInBf16) {
  const Plan layer = layer_plan(R"(, "recipe": "bf16", "gate_up_layout": "interleaved")");
  const int64_t p = layer.layer->max_permuted_rows;
  const std::string_view interleaved = R"(, "intermediate": 192, "gate_up_layout": "interleaved")";
  expect_kernel_of(layer, tokens("permute_pad", R"(, "columns": 512, "format": "bf16")"));
  expect_kernel_of(layer, tokens("permute_pad_grad", R"(, "columns": 512, "format": "bf16")"));
  expect_kernel_of(layer, rows("activation", p, interleaved));
  expect_kernel_of(layer, rows("activation_backward", p, interleaved));
}

}  // namespace
}  // namespace moejit::compiler
