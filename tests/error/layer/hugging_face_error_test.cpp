// SPDX-License-Identifier: Apache-2.0
// Model configurations that give no layer, and options that do not fit.
#include "compiler/compiler.h"

#include <gtest/gtest.h>
#include <string>

namespace moejit::compiler {
namespace {

struct Case {
  std::string name;
  std::string config;
  HuggingFaceOptions options;
  ErrorCode code;
  std::string message;    // begins with this
  std::string hint = {};  // contains this
};

void PrintTo(const Case& wrong, std::ostream* out) { *out << wrong.name; }

const std::string kMixtral = R"({"model_type": "mixtral", "num_local_experts": 8,
"num_experts_per_tok": 2, "hidden_size": 4096, "intermediate_size": 14336})";

class HuggingFaceError : public testing::TestWithParam<Case> {};

TEST(HuggingFaceErrorBase, IsValidBeforeItIsBroken) {
  EXPECT_TRUE(layer_from_hugging_face(kMixtral, "config.json", {}));
}

TEST_P(HuggingFaceError, NamesThePlaceAndTheWayOut) {
  const Case& wrong = GetParam();
  const Result<HuggingFaceLayer> made =
      layer_from_hugging_face(wrong.config, "config.json", wrong.options);
  ASSERT_FALSE(made) << to_json(made->layer);
  EXPECT_EQ(to_string(made.error().code), to_string(wrong.code));
  EXPECT_EQ(made.error().message.substr(0, wrong.message.size()), wrong.message);
  EXPECT_NE(made.error().hint.find(wrong.hint), std::string::npos) << made.error().hint;
}

const Case kCases[] = {
    {"not_json", "<html>", {}, ErrorCode::kInvalidJson, "config.json:1:1: not JSON: "},
    {"array", "[]", {}, ErrorCode::kWrongType, "config.json:1: $: got an array"},
    {"no_model_type", "{}", {}, ErrorCode::kMissingKey, "config.json:1: $.model_type: missing key"},
    {"number_as_model_type",
     R"({"model_type": 3})",
     {},
     ErrorCode::kWrongType,
     "config.json:1: $.model_type: got 3, wanted a string"},
    {"unknown_family",
     R"({"model_type": "llama", "hidden_size": 4096})",
     {},
     ErrorCode::kUnsupported,
     "config.json:1: $.model_type: got \"llama\", not a known MoE model family",
     "known: deepseek_v2 (DeepSeek-V2"},
    {"no_text_config",
     R"({"model_type": "llama4"})",
     {},
     ErrorCode::kMissingKey,
     "config.json:1: $.text_config: missing key"},
    {"text_config_is_no_object",
     R"({"model_type": "llama4", "text_config": 1})",
     {},
     ErrorCode::kWrongType,
     "config.json:1: $.text_config: got 1, wanted an object"},
    {"nested_key_missing",
     R"({"model_type": "llama4", "text_config": {"num_local_experts": 16}})",
     {},
     ErrorCode::kMissingKey,
     "config.json:1: $.text_config.num_experts_per_tok: missing key",
     "top_k"},
    {"key_of_another_family",
     R"({"model_type": "deepseek_v3", "num_experts": 64})",
     {},
     ErrorCode::kMissingKey,
     "config.json:1: $.n_routed_experts: missing key",
     "experts"},
    {"null_figure",
     R"({"model_type": "olmoe", "num_experts": null})",
     {},
     ErrorCode::kWrongType,
     "config.json:1: $.num_experts: got null, wanted 1 to 4096"},
    {"top_k_past_experts",
     R"({"model_type": "olmoe", "num_experts": 4, "num_experts_per_tok": 8})",
     {},
     ErrorCode::kInvalidValue,
     "config.json:1: $.num_experts_per_tok: got 8, wanted 1 to 4 (experts)"},
    {"odd_hidden",
     R"({"model_type": "olmoe", "num_experts": 4, "num_experts_per_tok": 2, "hidden_size": 1001})",
     {},
     ErrorCode::kInvalidValue,
     "config.json:1: $.hidden_size: got 1001, wanted a multiple of 16"},
    {"other_activation",
     R"({"model_type": "olmoe", "num_experts": 4, "num_experts_per_tok": 2, "hidden_size": 1024,
"intermediate_size": 512, "hidden_act": "mish"})",
     {},
     ErrorCode::kUnsupported,
     "config.json:2: $.hidden_act: got \"mish\", not supported",
     "silu"},
    {"negative_limit",
     R"({"model_type": "gpt_oss", "num_local_experts": 4, "num_experts_per_tok": 2,
"hidden_size": 1024, "intermediate_size": 512, "swiglu_limit": -7.0})",
     {},
     ErrorCode::kInvalidValue,
     "config.json:2: $.swiglu_limit: got -7 for limit, wanted a number above 0"},
    {"parallel_does_not_divide",
     kMixtral,
     {.expert_parallel = 3},
     ErrorCode::kInvalidValue,
     "option expert_parallel: got 3, wanted a divisor of the 8 experts"},
    {"more_ranks_than_experts",
     kMixtral,
     {.expert_parallel = 16},
     ErrorCode::kInvalidValue,
     "option expert_parallel: got 16, wanted a divisor of the 8 experts"},
    {"zero_parallel",
     kMixtral,
     {.expert_parallel = 0},
     ErrorCode::kInvalidValue,
     "option expert_parallel: got 0, wanted"},
    {"negative_parallel",
     kMixtral,
     {.expert_parallel = -8},
     ErrorCode::kInvalidValue,
     "option expert_parallel: got -8, wanted"},
    {"zero_tokens",
     kMixtral,
     {.max_tokens = 0},
     ErrorCode::kInvalidValue,
     "option max_tokens: got 0, wanted 1 to 1048576"},
    {"too_many_tokens",
     kMixtral,
     {.max_tokens = 1 << 21},
     ErrorCode::kInvalidValue,
     "option max_tokens: got 2097152, wanted 1 to 1048576"},
    {"rows_past_int32",
     R"({"model_type": "olmoe", "num_experts": 4096, "num_experts_per_tok": 4096,
"hidden_size": 1024, "intermediate_size": 512})",
     {.max_tokens = 1 << 20},
     ErrorCode::kInvalidValue,
     "option max_tokens: got 1048576, wanted"},
};

std::string case_name(const testing::TestParamInfo<Case>& info) { return info.param.name; }

INSTANTIATE_TEST_SUITE_P(All, HuggingFaceError, testing::ValuesIn(kCases), case_name);

}  // namespace
}  // namespace moejit::compiler
