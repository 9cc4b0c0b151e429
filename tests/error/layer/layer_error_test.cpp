// SPDX-License-Identifier: Apache-2.0
// Every way to get a layer description wrong, and the sentence that the user reads.
#include "tests/error/layer/wrong_layer.h"

#include <vector>

namespace moejit::compiler {
namespace {

using namespace std::string_literals;

std::string without(std::string_view key) {
  std::string text(kValidLayer);
  const std::size_t start = text.find("\"" + std::string(key) + "\"");
  std::size_t end = text.find_first_of(",}", start);
  if (text[end] == ',') return text.erase(start, end + 2 - start);
  return text.erase(start - 2, end - start + 2);
}

TEST(LayerErrorBase, IsValidBeforeItIsBroken) {
  EXPECT_TRUE(parse_layer(kValidLayer, "layer.json"));
  EXPECT_TRUE(parse_layer(with("name", "\"x\""), "layer.json"));
  EXPECT_TRUE(parse_layer(with("hidden", "128"), "layer.json"));
}

TEST_P(LayerError, NamesThePlaceAndTheWayOut) {
  const WrongLayer& wrong = GetParam();
  const Result<Layer> layer = parse_layer(wrong.text, "layer.json");
  ASSERT_FALSE(layer) << to_json(*layer);
  const Error& error = layer.error();
  EXPECT_EQ(error.stage, Stage::kParse);
  EXPECT_EQ(to_string(error.code), to_string(wrong.code));
  EXPECT_EQ(error.message.substr(0, wrong.message.size()), wrong.message);
  EXPECT_NE(error.hint.find(wrong.hint), std::string::npos) << error.hint;
  const auto says = [&](const char* text) { return error.message.find(text) != std::string::npos; };
  EXPECT_TRUE(says("one of") || says("a double can") || !says(": $.") || !error.hint.empty());
  // One sentence on one line, fit for a terminal.
  for (const char c : error.message + error.hint)
    ASSERT_TRUE(static_cast<unsigned char>(c) >= 0x20 && c != 0x7F) << error.message;
}

std::string repeated(const std::string& text, int count) {
  std::string all;
  for (int i = 0; i < count; ++i) all += text;
  return all;
}

const WrongLayer kSyntax[] = {
    {"empty", "", ErrorCode::kInvalidJson, "layer.json:1:1: not JSON: the text is empty"},
    {"blank", " \n\t ", ErrorCode::kInvalidJson, "layer.json:1:1: not JSON: the text is empty"},
    {"byte_order_mark", "\xEF\xBB\xBF" + std::string(kValidLayer), ErrorCode::kInvalidJson,
     "layer.json:1:1: not JSON: the text begins with a byte order mark", "UTF-8"},
    {"utf16", "\xFF\xFE{\0}\0"s, ErrorCode::kInvalidJson,
     "layer.json:1:1: not JSON: got UTF-16, wanted UTF-8"},
    {"nul_after_the_text", std::string(kValidLayer) + "\0 anything"s, ErrorCode::kInvalidJson,
     "layer.json:1:81: not JSON: got a NUL byte"},
    {"nul_within", "{\n\"ex\0perts\": 8}"s, ErrorCode::kInvalidJson,
     "layer.json:2:4: not JSON: got a NUL byte"},
    {"malformed_utf8", with("name", "\"\xC3(\""), ErrorCode::kInvalidJson,
     "layer.json:1:92: not JSON: invalid string: ill-formed UTF-8"},
    {"lone_surrogate", with("name", R"("\ud800")"), ErrorCode::kInvalidJson, "layer.json:1:", ""},
    {"trailing_garbage", std::string(kValidLayer) + "\n{}", ErrorCode::kInvalidJson,
     "layer.json:2:1: not JSON: unexpected '{'; expected end of input"},
    {"trailing_comma", "{\n  \"experts\": 8,\n}", ErrorCode::kInvalidJson,
     "layer.json:3:1: not JSON: unexpected '}'", "no comma after the last"},
    {"missing_comma", "{\"experts\": 8\n \"top_k\": 2}", ErrorCode::kInvalidJson,
     "layer.json:2:8: not JSON: unexpected string literal"},
    {"line_comment", "{\n // eight\n\"experts\": 8}", ErrorCode::kInvalidJson,
     "layer.json:2:2: not JSON: ", "no comments"},
    {"c_comment", "/* eight */ {\"experts\": 8}", ErrorCode::kInvalidJson,
     "layer.json:1:1: not JSON: ", "no comments"},
    {"single_quotes", "{'experts': 8}", ErrorCode::kInvalidJson,
     "layer.json:1:2: not JSON: ", "double quotes"},
    {"unclosed_object", "{\"experts\": 8", ErrorCode::kInvalidJson,
     "layer.json:1:14: not JSON: unexpected end of input", "not closed"},
    {"unclosed_string", "{\"experts", ErrorCode::kInvalidJson,
     "layer.json:1:10: not JSON: invalid string: missing closing quote"},
    {"line_break_in_string", "{\"exp\nerts\": 8}", ErrorCode::kInvalidJson,
     "layer.json:1:6: not JSON: invalid string: control character"},
    {"not_a_number", with("hidden", "NaN"), ErrorCode::kInvalidJson, "layer.json:1:"},
    {"hexadecimal", with("hidden", "0x100"), ErrorCode::kInvalidJson, "layer.json:1:"},
    {"leading_zero", with("hidden", "0256"), ErrorCode::kInvalidJson, "layer.json:1:"},
    {"python_literal", with("hidden", "None"), ErrorCode::kInvalidJson, "layer.json:1:"},
    {"deep_nesting", std::string(100'000, '['), ErrorCode::kInvalidJson,
     "layer.json:1: nested too deeply: got more than 64"},
    {"deep_nesting_of_a_value", with("passes", std::string(70, '[') + std::string(70, ']')),
     ErrorCode::kInvalidJson, "layer.json:1: nested too deeply"},
    {"duplicate_key", "{\"experts\": 8,\n\"top_k\": 2,\n\"experts\": 8}", ErrorCode::kInvalidJson,
     "layer.json:3: $.experts: duplicate key, first given on line 1", "remove one"},
    {"duplicate_key_inside", R"({"a": [0, {"b": 1, "b": 2}]})", ErrorCode::kInvalidJson,
     "layer.json:1: $.a[1].b: duplicate key"},
    {"number_past_a_double", with("hidden", "1e400"), ErrorCode::kInvalidValue,
     "layer.json:1:42: $.hidden: got 1e400"},
    {"text_past_the_limit", std::string(kValidLayer) + std::string(std::size_t{1} << 20, ' '),
     ErrorCode::kInvalidValue, "layer.json: got 1048656 bytes, wanted at most 1048576"},
    {"values_past_the_limit", with("passes", "[" + repeated("1,", 10'000) + "1]"),
     ErrorCode::kInvalidValue, "layer.json:1: got more than 10000 values, wanted at most 10000"},
    {"keys_past_the_limit", "{\"a\": [" + repeated("{\"b\": 1},", 5'000) + "1]}",
     ErrorCode::kInvalidValue, "layer.json:1: got more than 10000 values"},
    {"configuration_of_a_model", "{\n\"hidden_size\": 64,\n\"model_type\": \"mixtral\"}",
     ErrorCode::kUnknownKey, "layer.json:3: $.model_type: unknown key of a layer description",
     "moejit layer --from-hf layer.json"},
};

INSTANTIATE_TEST_SUITE_P(Syntax, LayerError, testing::ValuesIn(kSyntax), case_name);

const WrongLayer kStructure[] = {
    {"array", "[]", ErrorCode::kWrongType, "layer.json:1: $: got an array, wanted an object"},
    {"string", "\"layer\"", ErrorCode::kWrongType,
     "layer.json:1: $: got \"layer\", wanted an object"},
    {"null", "null", ErrorCode::kWrongType, "layer.json:1: $: got null, wanted an object"},
    {"unknown_key", with("topk", "2"), ErrorCode::kUnknownKey, "layer.json:1: $.topk: unknown key",
     "did you mean top_k? known: name, experts, "},
    {"unknown_key_swapped", with("hiddne", "2"), ErrorCode::kUnknownKey,
     "layer.json:1: $.hiddne: unknown key", "did you mean hidden?"},
    {"unknown_key_unlike_all", with("zzzzzzzzzz", "2"), ErrorCode::kUnknownKey,
     "layer.json:1: $.zzzzzzzzzz: unknown key", "known: name, experts, "},
    {"unknown_key_with_escapes", with("\\u001b[31m\\n", "2"), ErrorCode::kUnknownKey,
     "layer.json:1: $[\"\\x1b[31m\\x0a\"]: unknown key"},
    {"empty_key", with("", "2"), ErrorCode::kUnknownKey, "layer.json:1: $[\"\"]: unknown key"},
    {"huge_key", with(std::string(100'000, 'k'), "2"), ErrorCode::kUnknownKey,
     "layer.json:1: $[\"kkk"},
    {"empty_object", "{}", ErrorCode::kMissingKey, "layer.json:1: $.experts: missing key"},
    {"no_experts", without("experts"), ErrorCode::kMissingKey,
     "layer.json:1: $.experts: missing key"},
    {"no_top_k", without("top_k"), ErrorCode::kMissingKey, "layer.json:1: $.top_k: missing key"},
    {"no_hidden", without("hidden"), ErrorCode::kMissingKey, "layer.json:1: $.hidden: missing key"},
    {"no_intermediate", without("intermediate"), ErrorCode::kMissingKey,
     "layer.json:1: $.intermediate: missing key"},
    {"no_max_tokens", without("max_tokens"), ErrorCode::kMissingKey,
     "layer.json:1: $.max_tokens: missing key"},
};

INSTANTIATE_TEST_SUITE_P(Structure, LayerError, testing::ValuesIn(kStructure), case_name);

const WrongLayer kNumbers[] = {
    {"zero_experts", with("experts", "0"), ErrorCode::kInvalidValue,
     "layer.json:1: $.experts: got 0, wanted 1 to 4096"},
    {"negative_experts", with("experts", "-8"), ErrorCode::kInvalidValue,
     "layer.json:1: $.experts: got -8, wanted 1 to 4096"},
    {"too_many_experts", with("experts", "4097"), ErrorCode::kInvalidValue,
     "layer.json:1: $.experts: got 4097, wanted 1 to 4096"},
    {"past_int64", with("experts", "9223372036854775808"), ErrorCode::kInvalidValue,
     "layer.json:1: $.experts: got 9223372036854775808, wanted 1 to 4096"},
    {"past_uint64", with("experts", "36893488147419103240"), ErrorCode::kInvalidValue,
     "layer.json:1: $.experts: got 36893488147419103240, wanted 1 to 4096"},
    {"wraps_to_a_valid_int32", with("experts", "4294967304"), ErrorCode::kInvalidValue,
     "layer.json:1: $.experts: got 4294967304, wanted 1 to 4096"},
    {"float_experts", with("experts", "8.0"), ErrorCode::kWrongType,
     "layer.json:1: $.experts: got 8.0, wanted 1 to 4096", "without point or exponent"},
    {"exponent", with("max_tokens", "1e3"), ErrorCode::kWrongType,
     "layer.json:1: $.max_tokens: got 1e3, wanted 1 to 1048576", "without point or exponent"},
    {"string_experts", with("experts", "\"8\""), ErrorCode::kWrongType,
     "layer.json:1: $.experts: got \"8\", wanted 1 to 4096", "without quotes"},
    {"bool_experts", with("experts", "true"), ErrorCode::kWrongType,
     "layer.json:1: $.experts: got true, wanted"},
    {"null_experts", with("experts", "null"), ErrorCode::kWrongType,
     "layer.json:1: $.experts: got null, wanted"},
    {"array_experts", with("experts", "[8]"), ErrorCode::kWrongType,
     "layer.json:1: $.experts: got an array, wanted"},
    {"null_for_an_optional", with("local_experts", "null"), ErrorCode::kWrongType,
     "layer.json:1: $.local_experts: got null, wanted 1 to 8 (experts)"},
    {"top_k_past_experts", with("top_k", "9"), ErrorCode::kInvalidValue,
     "layer.json:1: $.top_k: got 9, wanted 1 to 8 (experts)"},
    {"zero_top_k", with("top_k", "0"), ErrorCode::kInvalidValue,
     "layer.json:1: $.top_k: got 0, wanted 1 to 8 (experts)"},
    {"local_past_experts", with("local_experts", "9"), ErrorCode::kInvalidValue,
     "layer.json:1: $.local_experts: got 9, wanted 1 to 8 (experts)"},
    {"zero_local", with("local_experts", "0"), ErrorCode::kInvalidValue,
     "layer.json:1: $.local_experts: got 0, wanted 1 to 8 (experts)"},
    {"odd_hidden", with("hidden", "100"), ErrorCode::kInvalidValue,
     "layer.json:1: $.hidden: got 100, wanted a multiple of 16 from 16 to 65536"},
    {"zero_hidden", with("hidden", "0"), ErrorCode::kInvalidValue,
     "layer.json:1: $.hidden: got 0, wanted a multiple of 16"},
    {"negative_hidden", with("hidden", "-256"), ErrorCode::kInvalidValue,
     "layer.json:1: $.hidden: got -256, wanted a multiple of 16"},
    {"huge_hidden", with("hidden", "65552"), ErrorCode::kInvalidValue,
     "layer.json:1: $.hidden: got 65552, wanted a multiple of 16 from 16 to 65536"},
    {"odd_intermediate", with("intermediate", "1000"), ErrorCode::kInvalidValue,
     "layer.json:1: $.intermediate: got 1000, wanted a multiple of 16"},
    {"zero_tokens", with("max_tokens", "0"), ErrorCode::kInvalidValue,
     "layer.json:1: $.max_tokens: got 0, wanted 1 to 1048576"},
    {"too_many_tokens", with("max_tokens", "1048577"), ErrorCode::kInvalidValue,
     "layer.json:1: $.max_tokens: got 1048577, wanted 1 to 1048576"},
    {"zero_alignment", with("splits_alignment", "0"), ErrorCode::kInvalidValue,
     "layer.json:1: $.splits_alignment: got 0, wanted 1 to 4096"},
    {"huge_alignment", with("splits_alignment", "8192"), ErrorCode::kInvalidValue,
     "layer.json:1: $.splits_alignment: got 8192, wanted 1 to 4096"},
    {"rows_off_the_alignment", with("max_permuted_rows", R"(1000, "splits_alignment": 128)"),
     ErrorCode::kInvalidValue,
     "layer.json:1: $.max_permuted_rows: got 1000, wanted a multiple of 128 from 128"},
    {"zero_rows", with("max_permuted_rows", "0"), ErrorCode::kInvalidValue,
     "layer.json:1: $.max_permuted_rows: got 0, wanted 1 to 2147483647"},
    {"rows_past_int32", with("max_permuted_rows", "2147483648"), ErrorCode::kInvalidValue,
     "layer.json:1: $.max_permuted_rows: got 2147483648, wanted"},
    {"worst_case_past_int32",
     R"({"experts": 4096, "top_k": 4096, "hidden": 16, "intermediate": 16, "max_tokens": 1048576})",
     ErrorCode::kInvalidValue,
     "layer.json:1: $.max_tokens: got 1048576 tokens with 4096 experts each, which may need "
     "4295487488 rows, wanted at most 2147483647",
     "max_permuted_rows"},
    {"other_block_size", with("block_size", "64"), ErrorCode::kUnsupported,
     "layer.json:1: $.block_size: got 64, not supported", "supported: 128"},
    {"zero_block_size", with("block_size", "0"), ErrorCode::kInvalidValue,
     "layer.json:1: $.block_size: got 0, wanted 1 to 65536"},
    {"no_scale_sharing", with("scale_sharing_k", "0"), ErrorCode::kInvalidValue,
     "layer.json:1: $.scale_sharing_k: got 0, wanted 1 to 2"},
    {"scales_shared_by_three", with("scale_sharing_k", "3"), ErrorCode::kInvalidValue,
     "layer.json:1: $.scale_sharing_k: got 3, wanted 1 to 2"},
    {"shared_scales_of_bf16", with("recipe", "\"bf16\", \"scale_sharing_k\": 2"),
     ErrorCode::kInvalidValue,
     "layer.json:1: $.scale_sharing_k: got 2 with the recipe bf16, wanted 1", "fp8_flow"},
    {"native_gemm", with("recipe", "\"mxfp8\", \"native_gemm\": true"), ErrorCode::kUnsupported,
     "layer.json:1: $.native_gemm: got true, not supported",
     "no target has a GEMM that reads codes"},
    {"random_hadamard_transform", with("recipe", "\"nvfp4\", \"random_hadamard_transform\": true"),
     ErrorCode::kUnsupported, "layer.json:1: $.random_hadamard_transform: got true, not supported",
     "cast as they are"},
    {"stochastic_rounding", with("recipe", "\"mxfp8\", \"stochastic_rounding\": true"),
     ErrorCode::kUnsupported, "layer.json:1: $.stochastic_rounding: got true, not supported",
     "to nearest even"},
    {"shared_scales_of_block_scaling", with("recipe", "\"fp8_blockwise\", \"scale_sharing_k\": 2"),
     ErrorCode::kInvalidValue,
     "layer.json:1: $.scale_sharing_k: got 2 with the recipe fp8_blockwise, wanted 1", "fp8_flow"},
};

INSTANTIATE_TEST_SUITE_P(Numbers, LayerError, testing::ValuesIn(kNumbers), case_name);

const WrongLayer kWords[] = {
    {"number_as_name", with("name", "7"), ErrorCode::kWrongType,
     "layer.json:1: $.name: got 7, wanted a string"},
    {"long_name", with("name", "\"" + std::string(129, 'n') + "\""), ErrorCode::kInvalidValue,
     "layer.json:1: $.name: got 129 bytes, wanted at most 128"},
    {"control_in_name", with("name", R"("a\nb")"), ErrorCode::kInvalidValue,
     "layer.json:1: $.name: got \"a\\x0ab\", wanted text without control characters"},
    {"nul_in_name", with("name", R"("a\u0000b")"), ErrorCode::kInvalidValue,
     "layer.json:1: $.name: got \"a\\x00b\", wanted text without control characters"},
    {"other_dtype", with("dtype", "\"fp16\""), ErrorCode::kUnsupported,
     "layer.json:1: $.dtype: got \"fp16\", not supported", "supported: bf16"},
    {"unknown_dtype", with("dtype", "\"BF16\""), ErrorCode::kInvalidValue,
     "layer.json:1: $.dtype: got \"BF16\", wanted \"bf16\""},
    {"ids_of_pytorch_names", with("topk_ids_dtype", "\"int64\""), ErrorCode::kInvalidValue,
     "layer.json:1: $.topk_ids_dtype: got \"int64\", wanted one of \"i32\", \"i64\""},
    {"unknown_probs_dtype", with("topk_probs_dtype", "\"f16\""), ErrorCode::kInvalidValue,
     "layer.json:1: $.topk_probs_dtype: got \"f16\", wanted one of \"f32\", \"bf16\""},
    {"unknown_foreign_experts", with("foreign_experts", "\"ignored\""), ErrorCode::kInvalidValue,
     "layer.json:1: $.foreign_experts: got \"ignored\", wanted one of \"report\", \"ignore\"",
     "did you mean \"ignore\"?"},
    {"bool_foreign_experts", with("foreign_experts", "true"), ErrorCode::kWrongType,
     "layer.json:1: $.foreign_experts: got true, wanted one of"},
    {"misspelt_recipe", with("recipe", "\"fp8_flwo\""), ErrorCode::kInvalidValue,
     "layer.json:1: $.recipe: got \"fp8_flwo\", wanted one of \"bf16\", \"fp8_flow\"",
     "did you mean \"fp8_flow\"?"},
    {"null_recipe", with("recipe", "null"), ErrorCode::kWrongType,
     "layer.json:1: $.recipe: got null, wanted one of"},
    {"unknown_gate_up_layout", with("gate_up_layout", "\"interleave\""), ErrorCode::kInvalidValue,
     "layer.json:1: $.gate_up_layout: got \"interleave\", wanted one of \"concat\", "
     "\"interleaved\", \"separate\""},
    {"interleaved_without_gate",
     with("gate_up_layout", "\"interleaved\", \"activation\": \"relu_squared\""),
     ErrorCode::kInvalidValue,
     "layer.json:1: $.gate_up_layout: got interleaved with the activation relu_squared, wanted "
     "concat",
     "no gate"},
    {"biases_as_text", with("biases", "\"true\""), ErrorCode::kWrongType,
     "layer.json:1: $.biases: got \"true\""},
    {"unknown_dispatch", with("dispatch", "\"bf16\""), ErrorCode::kInvalidValue,
     "layer.json:1: $.dispatch: got \"bf16\", wanted one of \"none\", \"fp8\""},
    {"passes_as_string", with("passes", "\"forward\""), ErrorCode::kWrongType,
     "layer.json:1: $.passes: got \"forward\", wanted an array"},
    {"no_passes", with("passes", "[]"), ErrorCode::kInvalidValue,
     "layer.json:1: $.passes: got no \"forward\""},
    {"backward_alone", with("passes", R"(["backward"])"), ErrorCode::kInvalidValue,
     "layer.json:1: $.passes: got no \"forward\"", "backward needs"},
    {"pass_twice", with("passes", R"(["forward", "forward"])"), ErrorCode::kInvalidValue,
     "layer.json:1: $.passes[1]: got \"forward\" twice"},
    {"unknown_pass", with("passes", R"(["forward", "foward"])"), ErrorCode::kInvalidValue,
     "layer.json:1: $.passes[1]: got \"foward\", wanted one of \"forward\", \"backward\"",
     "did you mean \"forward\"?"},
    {"gradients_without_backward", with("gradients", R"(["dx"])"), ErrorCode::kInvalidValue,
     "layer.json:1: $.gradients: got an array without a backward pass", "add \"backward\""},
    {"no_gradients", with("passes", R"(["forward", "backward"], "gradients": [])"),
     ErrorCode::kInvalidValue, "layer.json:1: $.gradients: got no gradient, wanted one or more",
     "leave \"backward\" out"},
    {"gradient_as_string", with("passes", R"(["forward", "backward"], "gradients": "dx")"),
     ErrorCode::kWrongType, "layer.json:1: $.gradients: got \"dx\", wanted an array"},
    {"gradient_twice", with("passes", R"(["forward", "backward"], "gradients": ["dx", "dx"])"),
     ErrorCode::kInvalidValue,
     "layer.json:1: $.gradients[1]: got \"dx\" twice, wanted each gradient once"},
    {"unknown_gradient", with("passes", R"(["forward", "backward"], "gradients": ["dw"])"),
     ErrorCode::kInvalidValue,
     "layer.json:1: $.gradients[0]: got \"dw\", wanted one of \"dx\", \"dprobs\", \"dlogits\""},
    {"gradient_of_no_bias",
     with("passes", R"(["forward", "backward"], "gradients": ["dx", "db2"])"),
     ErrorCode::kInvalidValue,
     "layer.json:1: $.gradients[1]: got \"db2\" of a layer without biases", "\"biases\": true"},
    {"shared_no_object", with("shared", "1"), ErrorCode::kWrongType,
     "layer.json:1: $.shared: got 1, wanted an object"},
    {"shared_without_experts", with("shared", "{}"), ErrorCode::kMissingKey,
     "layer.json:1: $.shared.experts: missing"},
    {"shared_unknown", with("shared", R"({"experts": 1, "width": 64})"), ErrorCode::kUnknownKey,
     "layer.json:1: $.shared.width: unknown key", "known: experts, gate"},
    {"shared_too_many", with("shared", R"({"experts": 65})"), ErrorCode::kInvalidValue,
     "layer.json:1: $.shared.experts: got 65, wanted 1 to 64"},
    {"shared_of_a_slice", with("shared", R"({"experts": 1}, "local_experts": 4)"),
     ErrorCode::kUnsupported,
     "layer.json:1: $.shared: got shared experts with 4 of 8 experts here, wanted all of them",
     "add expert_parallel"},
    {"shared_and_dispatch_calls",
     with("shared", R"({"experts": 1}, "dispatch": "fp8", "dispatch_calls": true)"),
     ErrorCode::kUnsupported,
     "layer.json:1: $.shared: got shared experts with dispatch_calls, wanted it false",
     "not this rank's tokens"},
    {"shared_and_grouped",
     R"({"experts": 8, "hidden": 256, "intermediate": 128, "max_tokens": 64, "input": "grouped", )"
     R"("shared": {"experts": 1}})",
     ErrorCode::kInvalidValue,
     "layer.json:1: $.shared: got an object with the input \"grouped\", wanted it left out",
     "do not tell their tokens"},
    {"shared_of_too_many_choices",
     R"({"experts": 64, "top_k": 30, "hidden": 256, "intermediate": 128, "max_tokens": 64, )"
     R"("shared": {"experts": 3}, "expert_parallel": {"ranks": 2}})",
     ErrorCode::kUnsupported,
     "layer.json:1: $.shared: got 33 experts of a token, wanted at most 32 with expert_parallel"},
    {"shared_beyond_all_experts",
     R"({"experts": 4096, "top_k": 2, "hidden": 256, "intermediate": 128, "max_tokens": 64, )"
     R"("shared": {"experts": 1}})",
     ErrorCode::kUnsupported,
     "layer.json:1: $.shared: got 4097 experts with the shared ones of each rank, wanted at most "
     "4096"},
    {"dispatch_calls_without_dispatch", with("dispatch_calls", "true"), ErrorCode::kInvalidValue,
     "layer.json:1: $.dispatch_calls: got true with the dispatch none, wanted false",
     "rows that have been dispatched"},
    {"halves_without_backward", with("backward_halves", "true"), ErrorCode::kInvalidValue,
     "layer.json:1: $.backward_halves: got true without a backward pass", "add \"backward\""},
    {"linears_without_backward", with("backward_linears", "true"), ErrorCode::kInvalidValue,
     "layer.json:1: $.backward_linears: got true without a backward pass", "add \"backward\""},
    {"quantizes_without_backward", with("backward_quantizes_weights", "true"),
     ErrorCode::kInvalidValue,
     "layer.json:1: $.backward_quantizes_weights: got true without a backward pass",
     "add \"backward\""},
    {"quantizes_rows_of_weights",
     R"({"experts": 8, "top_k": 2, "hidden": 256, "intermediate": 128, "max_tokens": 64, )"
     R"("passes": ["forward", "backward"], "recipe": "fp8_rowwise", )"
     R"("backward_quantizes_weights": true})",
     ErrorCode::kInvalidValue,
     "layer.json:1: $.backward_quantizes_weights: got true with the recipe fp8_rowwise, wanted "
     "fp8_flow or fp8_blockwise",
     "other recipes"},
    {"halves_as_text", with("backward_halves", "\"true\""), ErrorCode::kWrongType,
     "layer.json:1: $.backward_halves: got \"true\", wanted true or false"},
    {"unknown_recompute", with("recompute", "\"all\""), ErrorCode::kInvalidValue,
     "layer.json:1: $.recompute: got \"all\", wanted one of \"none\", \"moe_expert\""},
    {"bool_recompute", with("recompute", "false"), ErrorCode::kWrongType,
     "layer.json:1: $.recompute: got false, wanted one of"},
    {"string_fuse_activation", with("fuse_activation", "\"false\""), ErrorCode::kWrongType,
     "layer.json:1: $.fuse_activation: got \"false\", wanted true or false"},
    {"number_fuse_activation", with("fuse_activation", "0"), ErrorCode::kWrongType,
     "layer.json:1: $.fuse_activation: got 0, wanted true or false"},
};

INSTANTIATE_TEST_SUITE_P(Words, LayerError, testing::ValuesIn(kWords), case_name);

}  // namespace
}  // namespace moejit::compiler
