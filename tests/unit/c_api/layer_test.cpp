// SPDX-License-Identifier: Apache-2.0
#include "compiler/compiler.h"
#include "tests/support/matchers.h"
#include "tests/unit/c_api/last_error.h"

#include <map>
#include <memory>
#include <string_view>

namespace moejit::testing {
namespace {

using compiler::Plan;
using compiler::TensorPlan;

Plan plan_in_cpp(const compiler::PlanOptions& options = {}) {
  const auto layer = compiler::parse_layer(kTinyLayer, "tiny");
  return compiler::plan_layer(*layer, *compiler::parse_target("sim"), options).value();
}

template <typename Record>
Record sized() {
  Record record = {};
  record.struct_size = sizeof(record);
  return record;
}

class CApiLayer : public ::testing::Test {
 protected:
  void TearDown() override { moejit_plan_destroy(layer_); }
  moejit_error_code create(const moejit_plan_options* options = nullptr,
                           const char* target = "sim") {
    return moejit_plan_create(kTinyLayer, sizeof(kTinyLayer) - 1, target, options, &layer_);
  }
  moejit_plan_info info() {
    auto info = sized<moejit_plan_info>();
    EXPECT_TRUE(is_ok(moejit_plan_get_info(layer_, &info)));
    return info;
  }

  moejit_plan* layer_ = nullptr;
};

TEST_F(CApiLayer, IsThePlanOfTheCppApi) {
  const Plan plan = plan_in_cpp();
  ASSERT_TRUE(is_ok(create()));
  const moejit_plan_info got = info();
  EXPECT_EQ(std::string_view(got.name), "tiny");
  EXPECT_EQ(std::string_view(got.target), "sim");
  EXPECT_EQ(got.tensor_count, plan.tensors.size());
  EXPECT_EQ(got.kernel_count, plan.kernels.size());
  EXPECT_EQ(got.max_tokens, 16);
  EXPECT_EQ(got.workspace_bytes, plan.workspace_bytes);
  EXPECT_EQ(got.saved_bytes, plan.saved_bytes);
  EXPECT_EQ(got.deferred_bytes, 0);
  EXPECT_EQ(got.quantized_weight_bytes, plan.quantized_weight_bytes);
  EXPECT_EQ(got.has_backward, 1);
  EXPECT_EQ(got.is_prepared, 0);
  EXPECT_EQ(got.plan_digest, plan_digest(plan));
}

TEST_F(CApiLayer, HasADigestThatItsNameDoesNotChange) {
  ASSERT_TRUE(is_ok(create()));
  const std::string digest = info().plan_digest;
  const auto digest_of = [&](std::string_view key, std::string_view value) {
    std::string json = kTinyLayer;
    const std::size_t at = json.find("\"" + std::string(key) + "\": ");
    if (at == std::string::npos) {
      json.insert(json.rfind('}'), ", \"" + std::string(key) + "\": " + std::string(value));
    } else {
      const std::size_t begin = json.find(": ", at) + 2;
      json.replace(begin, json.find_first_of(",}", begin) - begin, value);
    }
    moejit_plan_destroy(layer_);
    layer_ = nullptr;
    EXPECT_TRUE(is_ok(moejit_plan_create(json.data(), json.size(), "sim", nullptr, &layer_)));
    return std::string(info().plan_digest);
  };
  EXPECT_EQ(digest_of("name", "\"huge\""), digest);
  EXPECT_EQ(std::string_view(info().name), "huge");
  EXPECT_NE(digest_of("topk_ids_dtype", "\"i64\""), digest);
  EXPECT_NE(digest_of("max_tokens", "8"), digest);
}

TEST_F(CApiLayer, GivesItsTexts) {
  const Plan plan = plan_in_cpp();
  ASSERT_TRUE(is_ok(create()));
  const char* text = nullptr;
  ASSERT_TRUE(is_ok(moejit_plan_get_description(layer_, &text)));
  EXPECT_EQ(text, to_json(*plan.layer));
  ASSERT_TRUE(is_ok(moejit_plan_get_json(layer_, &text)));
  EXPECT_EQ(text, plan_to_json(plan));
  const char* const first = text;
  ASSERT_TRUE(is_ok(moejit_plan_get_text(layer_, 0, &text)));
  EXPECT_EQ(text, print_plan(plan, false));
  ASSERT_TRUE(is_ok(moejit_plan_get_text(layer_, 1, &text)));
  EXPECT_EQ(text, print_plan(plan, true));
  ASSERT_TRUE(is_ok(moejit_plan_get_json(layer_, &text)));
  EXPECT_EQ(text, first);  // the same memory: it is made once
  EXPECT_TRUE(is_error(moejit_plan_get_description(layer_, nullptr), MOEJIT_ERROR_INVALID_VALUE));
}

TEST_F(CApiLayer, DescribesEachTensorAsThePlanDoes) {
  const Plan plan = plan_in_cpp();
  ASSERT_TRUE(is_ok(create()));
  for (std::size_t i = 0; i < plan.tensors.size(); ++i) {
    const TensorPlan& wanted = plan.tensors[i];
    SCOPED_TRACE(wanted.name);
    auto got = sized<moejit_tensor_info>();
    ASSERT_TRUE(is_ok(moejit_plan_get_tensor(layer_, i, &got)));
    EXPECT_EQ(got.name, wanted.name);
    EXPECT_EQ(got.dtype_name, to_string(wanted.dtype));
    EXPECT_EQ(got.dtype.bits, 8 * size_bytes(wanted.dtype));
    EXPECT_EQ(got.dtype.lanes, 1);
    EXPECT_EQ(got.bytes, wanted.bytes);
    ASSERT_EQ(got.ndim, static_cast<int32_t>(wanted.shape.size()));
    for (std::size_t d = 0; d < wanted.shape.size(); ++d) {
      EXPECT_EQ(got.shape[d], wanted.shape[d].value);
      EXPECT_EQ(got.symbols[d], wanted.shape[d].symbol);
    }
    EXPECT_EQ(got.is_optional != 0, wanted.is_optional);
    EXPECT_EQ(got.is_optional_in_backward != 0, wanted.is_optional_in_backward);
    EXPECT_EQ(got.is_optional_in_backward != 0, wanted.name == "status");
    EXPECT_EQ(got.offset == -1, got.role != MOEJIT_ROLE_SAVED && got.role != MOEJIT_ROLE_WORKSPACE);
    EXPECT_EQ(got.offset, std::max(wanted.saved_offset, wanted.workspace_offset));
  }
}

TEST_F(CApiLayer, PlacesQuantizedWeightsInBlocks) {
  const Plan plan = plan_in_cpp();
  ASSERT_TRUE(is_ok(create()));
  const auto forward = std::ranges::find(plan.calls, "forward", &compiler::CallPlan::name);
  std::array<int64_t, 2> bytes{}, tensors{};
  for (std::size_t i = 0; i < plan.tensors.size(); ++i) {
    auto got = sized<moejit_tensor_info>();
    ASSERT_TRUE(is_ok(moejit_plan_get_tensor(layer_, i, &got)));
    SCOPED_TRACE(got.name);
    if (got.role != MOEJIT_ROLE_QUANTIZED) {
      EXPECT_EQ(got.quantized_block, -1);
      EXPECT_EQ(got.quantized_offset, -1);
      continue;
    }
    const bool in_forward = std::ranges::find(forward->tensors, i, &compiler::CallTensor::slot) !=
                            forward->tensors.end();
    ASSERT_EQ(got.quantized_block, in_forward ? 0 : 1);
    const auto block = static_cast<std::size_t>(got.quantized_block);
    EXPECT_EQ(got.quantized_offset % 256, 0);
    EXPECT_GE(got.quantized_offset, bytes[block]);
    bytes[block] = got.quantized_offset + got.bytes;
    ++tensors[block];
  }
  EXPECT_GT(tensors[0], 0);
  EXPECT_GT(tensors[1], 0);
  EXPECT_EQ(info().quantized_rowwise_bytes, (bytes[0] + 255) / 256 * 256);
  EXPECT_EQ(info().quantized_colwise_bytes, (bytes[1] + 255) / 256 * 256);
}

TEST_F(CApiLayer, TellsEachCallAsThePlanDoes) {
  const auto bits = [](bool is_read, bool is_written) {
    return (is_read ? 1U : 0U) | (is_written ? 2U : 0U);
  };
  const auto block_bits = [&](compiler::BlockUse use) {
    return bits(use == compiler::BlockUse::kRead, use == compiler::BlockUse::kWrite);
  };
  const Plan plan = plan_in_cpp();
  ASSERT_TRUE(is_ok(create()));
  ASSERT_EQ(info().call_count, plan.calls.size());
  for (std::size_t i = 0; i < plan.calls.size(); ++i) {
    const compiler::CallPlan& wanted = plan.calls[i];
    SCOPED_TRACE(wanted.name);
    auto got = sized<moejit_call_info>();
    ASSERT_TRUE(is_ok(moejit_plan_get_call(layer_, i, &got)));
    EXPECT_EQ(got.name, wanted.name);
    EXPECT_EQ(got.kernel_count, wanted.steps.size());
    EXPECT_EQ(got.workspace, block_bits(wanted.workspace));
    EXPECT_EQ(got.saved, block_bits(wanted.saved));
    EXPECT_EQ(got.deferred, block_bits(wanted.deferred));
    EXPECT_EQ(got.adds != 0, wanted.adds);
    EXPECT_EQ(got.is_of_all_ranks, 0);
    ASSERT_EQ(got.tensor_count, wanted.tensors.size());
    for (std::size_t t = 0; t < wanted.tensors.size(); ++t) {
      const compiler::CallTensor& taken = wanted.tensors[t];
      EXPECT_EQ(got.tensors[t].index, taken.slot);
      EXPECT_EQ(got.tensors[t].access, bits(reads(taken.access), writes(taken.access)));
      EXPECT_EQ(got.tensors[t].is_optional != 0, taken.is_optional);
      EXPECT_EQ(got.tensors[t].is_shape_only != 0, taken.is_shape_only);
    }
  }
  auto got = sized<moejit_call_info>();
  EXPECT_TRUE(is_error(moejit_plan_get_call(layer_, plan.calls.size(), &got),
                       MOEJIT_ERROR_INVALID_VALUE, std::to_string(plan.calls.size())));
}

TEST_F(CApiLayer, IsOfTheKindThatTheCallerWants) {
  ASSERT_TRUE(is_ok(create()));
  EXPECT_EQ(info().kind, MOEJIT_KIND_LAYER);
  moejit_plan* other = nullptr;
  for (const auto& [kind, error] : std::map<moejit_kind, moejit_error_code>{
           {MOEJIT_KIND_OPERATION, MOEJIT_ERROR_MISSING_KEY},
           {MOEJIT_KIND_GROUP_LAYER, MOEJIT_ERROR_UNSUPPORTED}}) {
    auto options = sized<moejit_plan_options>();
    options.kind = kind;
    EXPECT_TRUE(is_error(
        moejit_plan_create(kTinyLayer, sizeof(kTinyLayer) - 1, "sim", &options, &other), error));
    EXPECT_EQ(other, nullptr);
  }
}

TEST_F(CApiLayer, FindsTensorsOfEachRole) {
  ASSERT_TRUE(is_ok(create()));
  const std::map<const char*, moejit_role> roles = {
      {"x", MOEJIT_ROLE_INPUT},  {"w1", MOEJIT_ROLE_WEIGHT}, {"w1_q", MOEJIT_ROLE_QUANTIZED},
      {"y", MOEJIT_ROLE_OUTPUT}, {"h1", MOEJIT_ROLE_SAVED},  {"h2", MOEJIT_ROLE_WORKSPACE},
      {"dy", MOEJIT_ROLE_INPUT}};
  for (const auto& [name, role] : roles) {
    auto got = sized<moejit_tensor_info>();
    ASSERT_TRUE(is_ok(moejit_plan_find_tensor(layer_, name, &got)));
    EXPECT_EQ(got.name, std::string_view(name));
    EXPECT_EQ(got.role, role) << name;
  }
  auto q = sized<moejit_tensor_info>();
  ASSERT_TRUE(is_ok(moejit_plan_find_tensor(layer_, "w1_q", &q)));
  EXPECT_EQ(q.dtype.code, 10);  // kDLFloat8_e4m3fn
  auto x = sized<moejit_tensor_info>();
  ASSERT_TRUE(is_ok(moejit_plan_find_tensor(layer_, "x", &x)));
  EXPECT_EQ(x.dtype.code, kDLBfloat);
  EXPECT_EQ(calls_with(layer_, "x"), (std::set<std::string>{"forward", "update_weights+forward"}));
}

TEST_F(CApiLayer, RefusesTensorsThatItDoesNotHave) {
  ASSERT_TRUE(is_ok(create()));
  auto got = sized<moejit_tensor_info>();
  EXPECT_TRUE(is_error(moejit_plan_find_tensor(layer_, "z", &got), MOEJIT_ERROR_MISSING_TENSOR,
                       "tiny", "z"));
  EXPECT_TRUE(
      is_error(moejit_plan_get_tensor(layer_, 1000, &got), MOEJIT_ERROR_INVALID_VALUE, "1000"));
  EXPECT_TRUE(is_error(moejit_plan_find_tensor(layer_, nullptr, &got), MOEJIT_ERROR_INVALID_VALUE,
                       "name of"));
  EXPECT_TRUE(
      is_error(moejit_plan_get_tensor(layer_, 0, nullptr), MOEJIT_ERROR_INVALID_VALUE, "info of"));
}

TEST_F(CApiLayer, TakesPlanOptions) {
  auto options = sized<moejit_plan_options>();
  options.keep_intermediates = 1;
  options.measure_gemms = 1;
  ASSERT_TRUE(is_ok(create(&options)));
  const Plan plan = plan_in_cpp({.keep_intermediates = true, .measure_gemms = true});
  EXPECT_EQ(info().workspace_bytes, plan.workspace_bytes);
  EXPECT_EQ(info().tensor_count, plan.tensors.size());
  EXPECT_NE(plan.tensors.size(), plan_in_cpp().tensors.size());
}

TEST_F(CApiLayer, RefusesATuningRecordThatIsNotThereAndTakesNone) {
  auto options = sized<moejit_plan_options>();
  options.tuning = "/no/such/record.json";
  EXPECT_TRUE(is_error(create(&options), MOEJIT_ERROR_FILE_NOT_FOUND, "/no/such/record.json"));
  EXPECT_EQ(layer_, nullptr);
  options.tuning = "";
  EXPECT_TRUE(is_ok(create(&options)));
}

TEST_F(CApiLayer, NeedsNoDeviceForAPlan) {
  ASSERT_TRUE(is_ok(create(nullptr, "cuda:sm_90a")));
  EXPECT_EQ(std::string_view(info().target), "cuda:sm_90a");
}

TEST_F(CApiLayer, CallsTheDescriptionWhatTheCallerDoes) {
  auto options = sized<moejit_plan_options>();
  options.source_name = "some/where.json";
  EXPECT_TRUE(is_error(moejit_plan_create("{", 1, "sim", &options, &layer_),
                       MOEJIT_ERROR_INVALID_JSON, "some/where.json"));
}

TEST_F(CApiLayer, RefusesWhatCannotBePlanned) {
  EXPECT_NE(create(nullptr, "cuda:sm_10"), MOEJIT_OK);
  EXPECT_EQ(layer_, nullptr);
  EXPECT_TRUE(
      is_error(moejit_plan_create("{}", 2, "sim", nullptr, &layer_), MOEJIT_ERROR_MISSING_KEY));
  EXPECT_EQ(std::string_view(moejit_last_error()->stage), "parse");
}

}  // namespace
}  // namespace moejit::testing
