// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/c_operation.h"

#include <map>
#include <set>

namespace moejit::testing {
namespace {

moejit_error_code create(const std::string& json, moejit_plan** operation,
                         const char* target = "sim", int64_t kind = MOEJIT_KIND_OPERATION) {
  moejit_plan_options options = {};
  options.struct_size = sizeof(options);
  options.kind = kind;
  return moejit_plan_create(json.data(), json.size(), target, &options, operation);
}

template <typename Record>
Record record() {
  Record made = {};
  made.struct_size = sizeof(made);
  return made;
}

TEST(OperationHandle, TellsWhatItIs) {
  moejit_plan* operation = nullptr;
  ASSERT_TRUE(is_ok(create(example_operation("permute_pad"), &operation, "cuda:sm_90a")));
  auto info = record<moejit_plan_info>();
  ASSERT_TRUE(is_ok(moejit_plan_get_info(operation, &info)));
  EXPECT_STREQ(info.name, "permute_pad");
  EXPECT_STREQ(info.target, "cuda:sm_90a");
  EXPECT_EQ(info.kernel_count, 1U);
  EXPECT_EQ(info.max_tokens, 64);
  EXPECT_EQ(info.workspace_bytes, 0);
  EXPECT_EQ(info.is_prepared, 0);
  EXPECT_EQ(std::string(info.plan_digest).size(), 32U);
  auto sizes = record<moejit_plan_sizes>();
  EXPECT_TRUE(is_ok(moejit_plan_get_sizes(operation, 64, &sizes)));
  EXPECT_TRUE(is_error(moejit_plan_get_sizes(operation, 65, &sizes), MOEJIT_ERROR_INVALID_VALUE,
                       "the operation permute_pad with 65 tokens"));
  const char* text = nullptr;
  ASSERT_TRUE(is_ok(moejit_plan_get_description(operation, &text)));
  EXPECT_NE(std::string(text).find("\"max_permuted_rows\": 176"), std::string::npos) << text;
  ASSERT_TRUE(is_ok(moejit_plan_get_json(operation, &text)));
  EXPECT_EQ(text[0], '{');
  ASSERT_TRUE(is_ok(moejit_plan_get_text(operation, 1, &text)));
  EXPECT_NE(std::string(text).find("row_chain load=quantized_rows"), std::string::npos) << text;
  moejit_plan_destroy(operation);
}

TEST(OperationHandle, DescribesItsTensors) {
  moejit_plan* operation = nullptr;
  ASSERT_TRUE(is_ok(create(example_operation("grouped_gemm"), &operation)));
  auto info = record<moejit_plan_info>();
  ASSERT_TRUE(is_ok(moejit_plan_get_info(operation, &info)));
  std::set<std::string> names;
  auto tensor = record<moejit_tensor_info>();
  for (std::size_t i = 0; i < info.tensor_count; ++i) {
    ASSERT_TRUE(is_ok(moejit_plan_get_tensor(operation, i, &tensor)));
    EXPECT_EQ(tensor.offset, -1);
    names.insert(tensor.name);
  }
  EXPECT_EQ(names, (std::set<std::string>{"a", "a_scale_inv", "b", "b_scale_inv", "counts", "d",
                                          "elapsed", "offs"}));
  EXPECT_TRUE(is_error(moejit_plan_get_tensor(operation, names.size(), &tensor),
                       MOEJIT_ERROR_INVALID_VALUE, "the operation grouped_gemm has 8 tensors"));
  ASSERT_TRUE(is_ok(moejit_plan_find_tensor(operation, "d", &tensor)));
  EXPECT_EQ(tensor.role, MOEJIT_ROLE_OUTPUT);
  EXPECT_STREQ(tensor.symbols[0], "P");
  EXPECT_EQ(tensor.shape[0], 192);
  EXPECT_TRUE(is_error(moejit_plan_find_tensor(operation, "c", &tensor),
                       MOEJIT_ERROR_MISSING_TENSOR, "the operation grouped_gemm has no tensor c"));
  moejit_plan_destroy(operation);
}

// Three tokens have 6 rows, and in each of four experts up to 15 pad rows: 66, of which groups fill
// whole ones of 16.
TEST(OperationHandle, TellsWhatACallNeeds) {
  moejit_plan* operation = nullptr;
  ASSERT_TRUE(is_ok(create(example_operation("permute_pad", "fp8", "bf16"), &operation)));
  auto info = record<moejit_plan_info>();
  ASSERT_TRUE(is_ok(moejit_plan_get_info(operation, &info)));
  auto place = record<moejit_tensor_place>();
  for (std::size_t i = 0; i < info.tensor_count; ++i) {
    auto tensor = record<moejit_tensor_info>();
    ASSERT_TRUE(is_ok(moejit_plan_get_tensor(operation, i, &tensor)));
    ASSERT_TRUE(is_ok(moejit_plan_get_tensor_place(operation, i, 3, &place)));
    EXPECT_EQ(place.offset, -1);
    if (std::string(tensor.name) != "output") continue;
    EXPECT_EQ(place.shape[0], 64);
    EXPECT_EQ(place.shape[1], 256);
    EXPECT_EQ(place.bytes, 2 * 64 * 256);
  }
  EXPECT_TRUE(is_error(moejit_plan_get_tensor_place(operation, 0, 65, &place),
                       MOEJIT_ERROR_INVALID_VALUE, "65 tokens"));
  EXPECT_TRUE(is_error(moejit_plan_get_tensor_place(operation, info.tensor_count, 3, &place),
                       MOEJIT_ERROR_INVALID_VALUE, "tensors"));
  moejit_plan_destroy(operation);
}

TEST(OperationHandle, NamesTheOutputsThatCallsAddTo) {
  const std::string adding = example_operation("contraction_grouped_gemm", "\"output\": \"f32\"",
                                               "\"output\": \"f32_add\"");
  for (const auto& [json, wanted] : std::map<std::string, std::string>{
           {example_operation("route"), "status "},
           {example_operation("contraction_grouped_gemm"), ""},
           {adding, "d "},
           {example_operation("transpose", "}", ", \"count_flushed\": true}"), "flushed status "},
           {example_operation("unpermute"), ""}}) {
    SCOPED_TRACE(json);
    moejit_plan* operation = nullptr;
    ASSERT_TRUE(is_ok(create(json, &operation)));
    auto info = record<moejit_plan_info>();
    ASSERT_TRUE(is_ok(moejit_plan_get_info(operation, &info)));
    std::string updated;
    for (std::size_t i = 0; i < info.tensor_count; ++i) {
      auto tensor = record<moejit_tensor_info>();
      ASSERT_TRUE(is_ok(moejit_plan_get_tensor(operation, i, &tensor)));
      if (tensor.is_updated != 0) updated += std::string(tensor.name) + " ";
    }
    EXPECT_EQ(updated, wanted);
    moejit_plan_destroy(operation);
  }
}

TEST(OperationHandle, RefusesWhatIsWrong) {
  moejit_plan* operation = nullptr;
  EXPECT_TRUE(is_error(create("{", &operation), MOEJIT_ERROR_INVALID_JSON, "operation:1"));
  EXPECT_EQ(operation, nullptr);
  EXPECT_TRUE(is_error(create(R"({"operation": "quantise"})", &operation),
                       MOEJIT_ERROR_INVALID_VALUE, "$.operation", "quantise"));
  EXPECT_TRUE(is_error(create(example_operation("route"), &operation, "cuda:sm_70"),
                       MOEJIT_ERROR_INVALID_VALUE, "sm_70"));
  // Every operation runs on every target; ranks that reach each other do not.
  const std::string of_group =
      R"({"experts": 8, "top_k": 2, "hidden": 256, "intermediate": 128, "max_tokens": 64,
          "expert_parallel": {"ranks": 2}})";
  EXPECT_TRUE(is_error(create(of_group, &operation, "cuda:sm_80", MOEJIT_KIND_GROUP_LAYER),
                       MOEJIT_ERROR_UNSUPPORTED, "does not run on target cuda:sm_80"));
  EXPECT_TRUE(is_error(moejit_plan_create(nullptr, 0, "sim", nullptr, &operation),
                       MOEJIT_ERROR_INVALID_VALUE, "json of moejit_plan_create() is NULL"));
  EXPECT_TRUE(is_error(moejit_operation_run(nullptr, nullptr), MOEJIT_ERROR_INVALID_VALUE,
                       "plan of moejit_plan_call() is NULL"));
  ASSERT_TRUE(is_ok(create(example_operation("route"), &operation)));
  EXPECT_TRUE(is_error(moejit_operation_run(operation, nullptr), MOEJIT_ERROR_INVALID_VALUE,
                       "call of moejit_plan_call() is NULL"));
  auto call = record<moejit_call>();
  EXPECT_TRUE(is_error(moejit_operation_run(operation, &call), MOEJIT_ERROR_INVALID_VALUE,
                       "the operation route is not prepared"));
  moejit_plan_destroy(operation);
  moejit_plan_destroy(nullptr);
}

TEST(OperationHandle, ChecksTheTensorsOfACall) {
  COperation operation(example_operation("quantize"));
  EXPECT_TRUE(
      is_error(moejit_plan_prepare(operation.get(), COperation::engine(), COperation::device()),
               MOEJIT_ERROR_INVALID_VALUE, "the operation quantize is prepared already"));
  EXPECT_TRUE(is_error(operation.run(), MOEJIT_ERROR_MISSING_TENSOR,
                       "tensor input is missing, wanted BF16 [T <= 64, 256]"));
  operation.give("input", {3, 256}, std::vector<uint16_t>(3 * 256, 0));
  operation.want("output", {4, 256});
  EXPECT_TRUE(is_error(operation.run(), MOEJIT_ERROR_TENSOR_MISMATCH, "tensor output",
                       "it has 4 tokens, tensors before it have 3"));
}

}  // namespace
}  // namespace moejit::testing
