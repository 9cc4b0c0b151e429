// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/c_api/last_error.h"

#include <moejit/moejit_describe.h>
#include <string_view>

namespace moejit::testing {
namespace {

constexpr std::string_view kQwen = R"({
  "model_type": "qwen3_moe", "num_experts": 16, "num_experts_per_tok": 2, "hidden_size": 256,
  "moe_intermediate_size": 128, "hidden_act": "silu"})";

class CApiDescription : public ::testing::Test {
 protected:
  void SetUp() override {
    options_.struct_size = sizeof(options_);
    info_.struct_size = sizeof(info_);
  }
  void TearDown() override { moejit_description_destroy(description_); }
  moejit_error_code describe(std::string_view json) {
    const moejit_error_code code =
        moejit_describe_hugging_face(json.data(), json.size(), &options_, &description_);
    return code != MOEJIT_OK ? code : moejit_description_get_info(description_, &info_);
  }

  moejit_hugging_face_options options_ = {};
  moejit_description* description_ = nullptr;
  moejit_description_info info_ = {};
};

TEST_F(CApiDescription, IsALayerThatCanBeCreated) {
  ASSERT_TRUE(is_ok(describe(kQwen)));
  EXPECT_STREQ(info_.model_type, "qwen3_moe");
  ASSERT_EQ(info_.used_key_count, 5u);
  EXPECT_STREQ(info_.used_keys[0], "num_experts -> experts = 16");
  ASSERT_GE(info_.note_count, 1u);
  EXPECT_NE(std::string_view(info_.notes[0]).find("router"), std::string_view::npos);
  EXPECT_NE(std::string_view(info_.router).find("\"logits_dtype\": \"bf16\""),
            std::string_view::npos);
  EXPECT_EQ(info_.shared, nullptr);
  moejit_plan* layer = nullptr;
  const std::string_view json = info_.json;
  ASSERT_TRUE(is_ok(moejit_plan_create(json.data(), json.size(), "sim", nullptr, &layer)));
  moejit_plan_destroy(layer);
}

TEST_F(CApiDescription, TakesTheOptions) {
  options_.recipe = "bf16";
  options_.max_tokens = 96;
  options_.expert_parallel = 4;
  ASSERT_TRUE(is_ok(describe(kQwen)));
  const std::string_view json = info_.json;
  for (const char* field : {"\"recipe\": \"bf16\"", "\"max_tokens\": 96", "\"local_experts\": 4"})
    EXPECT_NE(json.find(field), std::string_view::npos) << field << " in " << json;
}

TEST_F(CApiDescription, RefusesOptionsOutOfRange) {
  options_.recipe = "fp7";
  EXPECT_TRUE(is_error(describe(kQwen), MOEJIT_ERROR_INVALID_VALUE, "recipe", "fp7", "fp8_flow"));
  options_.recipe = nullptr;
  options_.expert_parallel = -1;
  EXPECT_TRUE(is_error(describe(kQwen), MOEJIT_ERROR_INVALID_VALUE, "expert_parallel", "-1"));
  options_.expert_parallel = (int64_t{1} << 32) + 1;
  EXPECT_TRUE(is_error(describe(kQwen), MOEJIT_ERROR_INVALID_VALUE, "expert_parallel"));
  options_.expert_parallel = 3;
  EXPECT_TRUE(is_error(describe(kQwen), MOEJIT_ERROR_INVALID_VALUE, "divisor of the 16 experts"));
  EXPECT_EQ(description_, nullptr);
}

TEST_F(CApiDescription, NamesThePlaceInTheConfiguration) {
  EXPECT_TRUE(
      is_error(describe("{\"model_type\": \"qwen3_moe\""), MOEJIT_ERROR_INVALID_JSON, "config:1"));
  options_.source_name = "model/config.json";
  EXPECT_TRUE(is_error(describe(R"({"model_type": "qwen3_moe", "num_experts": 16})"),
                       MOEJIT_ERROR_MISSING_KEY, "model/config.json"));
}

TEST_F(CApiDescription, WantsItsPointers) {
  EXPECT_TRUE(is_error(moejit_describe_hugging_face(nullptr, 0, nullptr, &description_),
                       MOEJIT_ERROR_INVALID_VALUE, "json"));
  EXPECT_TRUE(is_error(moejit_describe_hugging_face("{}", 2, nullptr, nullptr),
                       MOEJIT_ERROR_INVALID_VALUE, "description"));
  EXPECT_TRUE(is_error(moejit_description_get_info(nullptr, &info_), MOEJIT_ERROR_INVALID_VALUE,
                       "description"));
  moejit_description_destroy(nullptr);
}

}  // namespace
}  // namespace moejit::testing
