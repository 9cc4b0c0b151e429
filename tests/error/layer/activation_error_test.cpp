// SPDX-License-Identifier: Apache-2.0
// Every way to get a layer's activation wrong, and the sentence that the user reads.
#include "compiler/compiler.h"

#include <gtest/gtest.h>
#include <string>

namespace moejit::compiler {
namespace {

struct WrongActivation {
  std::string name;
  std::string value;
  ErrorCode code;
  std::string message;    // begins with this
  std::string hint = {};  // contains this
};

void PrintTo(const WrongActivation& wrong, std::ostream* out) { *out << wrong.name; }

class ActivationError : public testing::TestWithParam<WrongActivation> {};

Result<Layer> layer_of_activation(const std::string& value) {
  return parse_layer(
      R"({"experts": 8, "top_k": 2, "hidden": 256, "intermediate": 128, "max_tokens": 64, )"
      R"("activation": )" +
          value + "}",
      "layer.json");
}

TEST(ActivationErrorBase, IsValidBeforeItIsBroken) {
  EXPECT_TRUE(layer_of_activation("\"swiglu\""));
}

TEST_P(ActivationError, NamesThePlaceAndTheWayOut) {
  const WrongActivation& wrong = GetParam();
  const Result<Layer> layer = layer_of_activation(wrong.value);
  ASSERT_FALSE(layer) << to_json(*layer);
  const Error& error = layer.error();
  EXPECT_EQ(error.stage, Stage::kParse);
  EXPECT_EQ(to_string(error.code), to_string(wrong.code));
  EXPECT_EQ(error.message.substr(0, wrong.message.size()), wrong.message);
  EXPECT_NE(error.hint.find(wrong.hint), std::string::npos) << error.hint;
  EXPECT_TRUE(error.message.find("one of") != std::string::npos || !error.hint.empty());
  // One sentence on one line, fit for a terminal.
  for (const char c : error.message + error.hint)
    ASSERT_TRUE(static_cast<unsigned char>(c) >= 0x20 && c != 0x7F) << error.message;
}

const WrongActivation kActivations[] = {
    {"other_libraries_activation", "\"reglu\"", ErrorCode::kUnsupported,
     "layer.json:1: $.activation: got \"reglu\", not supported",
     "write {\"expression\": \"relu(gate) * up\"}"},
    {"other_libraries_name", "\"swiglu_oai\"", ErrorCode::kUnsupported,
     "layer.json:1: $.activation: got \"swiglu_oai\", not supported", "clamped_swiglu"},
    {"unknown_activation", "\"swigl\"", ErrorCode::kInvalidValue,
     "layer.json:1: $.activation: got \"swigl\", wanted one of \"swiglu\", \"clamped_swiglu\"",
     "did you mean \"swiglu\"?"},
    {"number_as_activation", "1", ErrorCode::kWrongType,
     "layer.json:1: $.activation: got 1, wanted the name of a preset, or an object", "swiglu"},
    {"empty_object", "{}", ErrorCode::kMissingKey,
     "layer.json:1: $.activation.preset: missing key"},
    {"misspelt_key", R"({"expresion": "gate * up"})", ErrorCode::kUnknownKey,
     "layer.json:1: $.activation.expresion: unknown key", "did you mean expression?"},
    {"parameter_alone", R"({"limit": 7.0})", ErrorCode::kMissingKey,
     "layer.json:1: $.activation.preset: missing key"},
    {"unknown_preset", R"({"preset": "geglo"})", ErrorCode::kInvalidValue,
     "layer.json:1: $.activation.preset: got \"geglo\", wanted one of", "did you mean \"geglu\"?"},
    {"misspelt_parameter", R"({"preset": "clamped_swiglu", "limt": 7.0})", ErrorCode::kUnknownKey,
     "layer.json:1: $.activation.limt: unknown key", "limit"},
    {"parameter_of_another_preset", R"({"preset": "swiglu", "limit": 7.0})", ErrorCode::kUnknownKey,
     "layer.json:1: $.activation.limit: unknown key", "known: preset"},
    {"zero_limit", R"({"preset": "clamped_swiglu", "limit": 0})", ErrorCode::kInvalidValue,
     "layer.json:1: $.activation: got 0 for limit, wanted a number above 0"},
    {"string_limit", R"({"preset": "clamped_swiglu", "limit": "7"})", ErrorCode::kWrongType,
     "layer.json:1: $.activation.limit: got \"7\", wanted a number"},
    {"huge_alpha", R"({"preset": "clamped_swiglu", "alpha": 1e300})", ErrorCode::kInvalidValue,
     "layer.json:1: $.activation: got 1e+300 for alpha, wanted a number of fp32"},
    {"misspelt_function", R"({"expression": "sigmod(gate) * up"})", ErrorCode::kInvalidValue,
     "layer.json:1: $.activation.expression: column 1: got the function \"sigmod\", wanted one of",
     "did you mean sigmoid?"},
    {"misspelt_variable", R"({"expression": "silu(gat) * up"})", ErrorCode::kInvalidValue,
     "layer.json:1: $.activation.expression: column 6: got \"gat\", wanted one of gate, up",
     "did you mean gate?"},
    {"expression_and_parameter", R"({"expression": "silu(gate) * up", "limit": 7})",
     ErrorCode::kUnknownKey, "layer.json:1: $.activation.limit: unknown key", "expression"},
    {"number_as_expression", R"({"expression": 1})", ErrorCode::kWrongType,
     "layer.json:1: $.activation.expression: got 1, wanted a string"},
    {"constant_expression", R"({"expression": "1 + 2"})", ErrorCode::kInvalidValue,
     "layer.json:1: $.activation.expression: got a formula of neither gate nor up"},
};

INSTANTIATE_TEST_SUITE_P(Activations, ActivationError, testing::ValuesIn(kActivations),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace moejit::compiler
