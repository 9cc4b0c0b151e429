// SPDX-License-Identifier: Apache-2.0
// Model configurations that give no layer, and options that do not fit.
#include "compiler/compiler.h"

#include <gtest/gtest.h>
#include <string>

namespace moejit::compiler {
namespace {

struct WrongConfig {
  std::string name;
  std::string config;
  HuggingFaceOptions options;
  ErrorCode code;
  std::string message;    // begins with this
  std::string hint = {};  // contains this
};

void PrintTo(const WrongConfig& wrong, std::ostream* out) { *out << wrong.name; }

const std::string kMixtral = R"({"model_type": "mixtral", "num_local_experts": 8,
"num_experts_per_tok": 2, "hidden_size": 4096, "intermediate_size": 14336})";

class HuggingFaceError : public testing::TestWithParam<WrongConfig> {};

TEST(HuggingFaceErrorBase, IsValidBeforeItIsBroken) {
  EXPECT_TRUE(layer_from_hugging_face(kMixtral, "config.json", {}));
}

TEST_P(HuggingFaceError, NamesThePlaceAndTheWayOut) {
  const WrongConfig& wrong = GetParam();
  const Result<HuggingFaceLayer> made =
      layer_from_hugging_face(wrong.config, "config.json", wrong.options);
  ASSERT_FALSE(made) << to_json(made->layer);
  EXPECT_EQ(to_string(made.error().code), to_string(wrong.code));
  EXPECT_EQ(made.error().message.substr(0, wrong.message.size()), wrong.message);
  EXPECT_NE(made.error().hint.find(wrong.hint), std::string::npos) << made.error().hint;
}

const WrongConfig kWrongConfigs[] = {
    {"text_past_the_limit",
     kMixtral + std::string(std::size_t{16} << 20, ' '),
     {},
     ErrorCode::kInvalidValue,
     "config.json: got "},
    {"python_number_that_is_wanted",
     R"({"model_type": "olmoe", "num_experts": NaN})",
     {},
     ErrorCode::kWrongType,
     "config.json:1: $.num_experts: got null, wanted 1 to 4096"},
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
     "config.json:1: $.model_type: got \"llama\", a model without experts: none of num_experts, "
     "num_local_experts, n_routed_experts, moe_num_experts is there",
     "write the layer description by hand: docs/layer-description.md"},
    {"no_text_config",
     R"({"model_type": "llama4"})",
     {},
     ErrorCode::kMissingKey,
     "config.json:1: $.num_experts: missing key",
     "num_experts or num_local_experts, n_routed_experts"},
    {"text_config_is_no_object",
     R"({"model_type": "llama4", "text_config": 1})",
     {},
     ErrorCode::kMissingKey,
     "config.json:1: $.num_experts: missing key"},
    {"nested_key_missing",
     R"({"model_type": "llama4", "text_config": {"num_local_experts": 16}})",
     {},
     ErrorCode::kMissingKey,
     "config.json:1: $.text_config.num_experts_per_tok: missing key",
     "top_k"},
    {"two_numbers_of_experts",
     R"({"model_type": "qwen3_moe", "num_local_experts": 64, "num_experts": 128})",
     {},
     ErrorCode::kInvalidValue,
     "config.json:1: $.num_local_experts: got 64, but $.num_experts is 128: both are the layer's "
     "experts",
     "leave the right one"},
    {"two_top_k",
     R"({"model_type": "x", "text_config": {"model_type": "hunyuan_v1_moe", "num_experts": 8,
"moe_topk": 2, "num_experts_per_tok": 4}})",
     {},
     ErrorCode::kInvalidValue,
     "config.json:2: $.text_config.moe_topk: got 2, but $.text_config.num_experts_per_tok is 4"},
    {"two_widths",
     R"({"model_type": "hunyuan_v1_moe", "num_experts": 8, "moe_topk": 2, "hidden_size": 64,
"intermediate_size": 32, "moe_intermediate_size": [48, 48]})",
     {},
     ErrorCode::kInvalidValue,
     "config.json:2: $.moe_intermediate_size: got 48, but $.intermediate_size is 32"},
    {"layers_differ",
     R"({"model_type": "hunyuan_v1_moe", "num_experts": 8, "moe_topk": [2, 2, 4]})",
     {},
     ErrorCode::kUnsupported,
     "config.json:1: $.moe_topk[2]: got 4 after 2, wanted the same number for all decoder layers",
     "put the number of that layer there"},
    {"empty_list",
     R"({"model_type": "hunyuan_v1_moe", "num_experts": []})",
     {},
     ErrorCode::kInvalidValue,
     "config.json:1: $.num_experts: got an empty list"},
    {"layer_description",
     R"({"experts": 8, "top_k": 2, "hidden": 256, "intermediate": 128, "max_tokens": 64})",
     {},
     ErrorCode::kMissingKey,
     "config.json:1: $.model_type: missing key",
     "looks like a layer description already: moejit layer FILE"},
    {"limit_of_an_unknown_family",
     R"({"model_type": "new_moe", "num_experts": 4, "num_experts_per_tok": 2, "hidden_size": 1024,
"moe_intermediate_size": 512, "swiglu_limit": 7.0})",
     {},
     ErrorCode::kUnsupported,
     "config.json:2: $.swiglu_limit: got 7.0, which may change what experts compute",
     "by hand"},
    {"unknown_family_that_may_have_no_gate",
     R"({"model_type": "new_moe", "num_experts": 4, "num_experts_per_tok": 2, "hidden_size": 1024,
"moe_intermediate_size": 512, "hidden_act": "relu2"})",
     {},
     ErrorCode::kUnsupported,
     "config.json:2: $.hidden_act: got \"relu2\", not supported",
     "by hand"},
    {"probabilities_on_the_input",
     R"({"model_type": "laguna", "num_experts": 4, "num_experts_per_tok": 2,
"moe_apply_router_weight_on_input": true})",
     {},
     ErrorCode::kUnsupported,
     "config.json:2: $.moe_apply_router_weight_on_input: got probabilities that multiply the "
     "input of 2 experts"},
    {"limits_are_no_list",
     R"({"model_type": "step3p5", "n_routed_experts": 4, "num_experts_per_tok": 2,
"hidden_size": 1024, "moe_intermediate_size": 512, "swiglu_limits": 7})",
     {},
     ErrorCode::kWrongType,
     "config.json:2: $.swiglu_limits: got 7, wanted an array"},
    {"negative_alpha",
     R"({"model_type": "gpt_oss", "num_local_experts": 4, "num_experts_per_tok": 2,
"hidden_size": 1024, "intermediate_size": 512, "swiglu_alpha": -1})",
     {},
     ErrorCode::kInvalidValue,
     "config.json:2: $.swiglu_alpha: got -1, wanted a number above 0"},
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
     "config.json:2: $.swiglu_limit: got -7.0, wanted a number above 0"},
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

std::string name_of_config(const testing::TestParamInfo<WrongConfig>& info) {
  return info.param.name;
}

INSTANTIATE_TEST_SUITE_P(All, HuggingFaceError, testing::ValuesIn(kWrongConfigs), name_of_config);

}  // namespace
}  // namespace moejit::compiler
