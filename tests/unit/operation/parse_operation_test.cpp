// SPDX-License-Identifier: Apache-2.0
#include "compiler/operation/operation_draft.h"
#include "tests/unit/operation/operation_examples.h"

#include <regex>

namespace moejit::compiler {
namespace {

TEST(ParseOperation, ReadsEveryExampleAndWhatItWrites) {
  for (const std::string_view name : operation_names()) {
    const OperationDescription operation = operation_of(example_text(name));
    EXPECT_EQ(operation.name, name);
    EXPECT_EQ(operation_of(to_json(operation)), operation) << to_json(operation);
    EXPECT_TRUE(describes_operation(to_json(operation)));
  }
  EXPECT_FALSE(describes_operation(R"({"experts": 4})"));
  EXPECT_FALSE(describes_operation(R"(["operation"])"));
  EXPECT_FALSE(describes_operation("operation"));
}

TEST(ParseOperation, FillsInTheRowsThatAnyRoutingNeeds) {
  const OperationDescription route =
      operation_of(R"({"operation": "route", "max_tokens": 64, "top_k": 2, "local_experts": 4})");
  EXPECT_EQ(*find_field<int64_t>(route, "max_permuted_rows"), (64 * 2 + 4 * 127) / 128 * 128);
  EXPECT_EQ(*find_field<int64_t>(route, "splits_alignment"), 128);
  EXPECT_EQ(find_field<int64_t>(route, "columns"), nullptr);
  EXPECT_EQ(find_field<bool>(route, "splits_alignment"), nullptr);
}

struct Refused {
  std::string json;
  ErrorCode code;
  std::string message;
};

TEST(ParseOperation, SaysWhatIsWrongAndWhere) {
  const std::string route = R"("operation": "route", "max_tokens": 64, "local_experts": 4)";
  const std::string gemm =
      R"("operation": "grouped_gemm", "local_experts": 4, "max_permuted_rows": 64, "k": 128)";
  const Refused all[] = {
      {"[]", ErrorCode::kWrongType, "operation:1: $: got an array, wanted an object"},
      {"{}", ErrorCode::kMissingKey, "operation"},
      {R"({"operation": "rout"})", ErrorCode::kInvalidValue, R"($.operation: got "rout")"},
      {"{" + route + "}", ErrorCode::kMissingKey, "top_k"},
      {"{" + route + R"(, "top_k": 0})", ErrorCode::kInvalidValue,
       "$.top_k: got 0, wanted 1 to 4096"},
      {"{" + route + R"(, "top_k": 2, "hidden": 64})", ErrorCode::kUnknownKey, "$.hidden"},
      {"{" + route + R"(, "top_k": "two"})", ErrorCode::kWrongType, "$.top_k"},
      {"{" + route + R"(, "top_k": 2, "max_permuted_rows": 100})", ErrorCode::kInvalidValue,
       "$.max_permuted_rows: got 100, wanted a multiple of 128"},
      {"{" + route + R"(, "top_k": 2, "input": "map"})", ErrorCode::kInvalidValue,
       R"($.input: got "map", wanted one of "topk_ids", "routing_map")"},
      {"{" + route + R"(, "top_k": 2, "input": "routing_map", "topk_ids_dtype": "i64"})",
       ErrorCode::kInvalidValue, R"($.topk_ids_dtype: got "i64" with a routing_map, wanted i32)"},
      {"{" + route + R"(, "top_k": 2, "input": "routing_map", "foreign_experts": "ignore"})",
       ErrorCode::kInvalidValue, "with a routing_map, wanted report"},
      {"{" + route + R"(, "top_k": 2, "any_permuted_rows": true})", ErrorCode::kUnknownKey,
       "$.any_permuted_rows"},
      {R"({"operation": "route", "max_tokens": 1048576, "local_experts": 4, "top_k": 4096})",
       ErrorCode::kInvalidValue, "may need"},
      {R"({"operation": "quantize", "max_tokens": 4, "columns": 100})", ErrorCode::kInvalidValue,
       "$.columns: got 100, wanted a multiple of 16"},
      {R"({"operation": "quantize", "max_tokens": 4, "columns": 64, "recipe": "fp8_blockwise",
           "scale_sharing_k": 2})",
       ErrorCode::kInvalidValue,
       "$.scale_sharing_k: got 2 with the recipe fp8_blockwise, wanted 1"},
      {R"({"operation": "quantize_columns", "local_experts": 1, "max_permuted_rows": 8,
           "columns": 64, "rowwise": true})",
       ErrorCode::kInvalidValue, "$.rowwise: got true with the recipe fp8_blockwise, wanted false"},
      {R"({"operation": "activation_quantize", "local_experts": 1, "max_permuted_rows": 8,
           "intermediate": 64, "recipe": "bf16"})",
       ErrorCode::kInvalidValue, R"($.recipe: got "bf16", wanted)"},
      {R"({"operation": "quantize_weights", "local_experts": 1, "rows": 64, "columns": 64,
           "gate_up_layout": "interleaved"})",
       ErrorCode::kInvalidValue, R"(got "interleaved" with 1 section, wanted "concat")"},
      {R"({"operation": "quantize_weights", "local_experts": 1, "rows": 48, "sections": 2,
           "columns": 64})",
       ErrorCode::kInvalidValue, "$.rows: got 48, wanted a multiple of 32"},
      {R"({"operation": "quantize_weights", "local_experts": 1, "rows": 64, "columns": 64,
           "recipe": "fp8_rowwise", "colwise": true})",
       ErrorCode::kInvalidValue, "$.colwise: got true with the recipe fp8_rowwise, wanted false"},
      {R"({"operation": "quantize_weights", "local_experts": 1, "rows": 64, "columns": 64,
           "recipe": "fp8_rowwise", "scale_sharing_k": 2})",
       ErrorCode::kInvalidValue, "got 2 with the recipe fp8_rowwise, wanted 1"},
      {R"({"operation": "contraction_grouped_gemm", "local_experts": 1, "max_columns": 128,
           "rows": 64, "n": 64, "scales": "tile", "splits_alignment": 64})",
       ErrorCode::kInvalidValue,
       "$.splits_alignment: got 64 with the scales tile, wanted a multiple of 128"},
      {R"({"operation": "activation", "local_experts": 1, "max_permuted_rows": 8,
           "intermediate": 64, "activation": "relu_squared", "gate_up_layout": "interleaved"})",
       ErrorCode::kInvalidValue, "with the activation relu_squared"},
      {R"({"operation": "multi_cast_transpose"})", ErrorCode::kMissingKey, "sizes"},
      {R"({"operation": "multi_cast_transpose", "sizes": []})", ErrorCode::kInvalidValue,
       "got 0 sizes"},
      {R"({"operation": "multi_cast_transpose", "sizes": [[16777216, 16777216], [1, 1]]})",
       ErrorCode::kInvalidValue,
       "$.sizes: got 281474976710657 elements in the first 2 tensors, wanted at most "
       "281474976710656"},
      {R"({"operation": "multi_cast_transpose", "sizes": [[1, 2, 3]]})", ErrorCode::kInvalidValue,
       "$.sizes[0]: got 3 numbers, wanted [rows, columns]"},
      {"{" + gemm + R"(, "n": 64, "scales": "tensor", "scale_sharing_k": 2})",
       ErrorCode::kInvalidValue, "$.scale_sharing_k: got 2 with the scales tensor, wanted 1"},
      {"{" + gemm + R"(, "n": 64, "scales": "tensor", "bias": "columns"})",
       ErrorCode::kInvalidValue, R"($.bias: got "columns" with the scales tensor, wanted "none")"},
      {R"({"operation": "permute_pad", "max_tokens": 4, "top_k": 1, "local_experts": 4,
           "columns": 64, "experts": 2})",
       ErrorCode::kInvalidValue, "$.experts: got 2 with 4 of them local"},
      {R"({"operation": "permute_pad", "max_tokens": 4, "top_k": 1, "local_experts": 4,
           "columns": 64, "format": "fp4", "recipe": "mxfp8"})",
       ErrorCode::kInvalidValue, R"($.recipe: got "mxfp8", wanted "nvfp4")"},
      {R"({"operation": "permute_pad", "max_tokens": 4, "top_k": 1, "local_experts": 4,
           "columns": 64, "format": "fp16"})",
       ErrorCode::kInvalidValue, R"(wanted one of "fp8", "bf16", "fp4")"},
  };
  for (const Refused& wrong : all) {
    const auto operation = parse_operation(wrong.json, "operation");
    ASSERT_FALSE(operation) << wrong.json;
    EXPECT_EQ(operation.error().code, wrong.code) << to_string(operation.error());
    EXPECT_NE(operation.error().message.find(wrong.message), std::string::npos)
        << operation.error().message << "\n"
        << wrong.message;
  }
}

TEST(ParseOperation, LeavesTheRestToThePlanner) {
  const auto refused = plan_operation(
      operation_of(R"({"operation": "grouped_gemm", "local_experts": 4, "max_permuted_rows": 64,
                       "n": 64, "k": 128, "accumulation": "fast"})"),
      Target{});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kUnsupported);
}

}  // namespace
}  // namespace moejit::compiler
