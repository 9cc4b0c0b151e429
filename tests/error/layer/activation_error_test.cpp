// SPDX-License-Identifier: Apache-2.0
// Every way to get a layer's activation wrong, and the sentence that the user reads.
#include "tests/error/layer/wrong_layer.h"

namespace moejit::compiler {
namespace {

const WrongLayer kActivations[] = {
    {"other_libraries_activation", with("activation", "\"reglu\""), ErrorCode::kUnsupported,
     "layer.json:1: $.activation: got \"reglu\", not supported",
     "write {\"expression\": \"relu(gate) * up\"}"},
    {"other_libraries_name", with("activation", "\"swiglu_oai\""), ErrorCode::kUnsupported,
     "layer.json:1: $.activation: got \"swiglu_oai\", not supported", "clamped_swiglu"},
    {"unknown_activation", with("activation", "\"swigl\""), ErrorCode::kInvalidValue,
     "layer.json:1: $.activation: got \"swigl\", wanted one of \"swiglu\", \"clamped_swiglu\"",
     "did you mean \"swiglu\"?"},
    {"number_as_activation", with("activation", "1"), ErrorCode::kWrongType,
     "layer.json:1: $.activation: got 1, wanted the name of a preset, or an object", "swiglu"},
    {"empty_object", with("activation", "{}"), ErrorCode::kMissingKey,
     "layer.json:1: $.activation.preset: missing key"},
    {"misspelt_key", with("activation", R"({"expresion": "gate * up"})"), ErrorCode::kUnknownKey,
     "layer.json:1: $.activation.expresion: unknown key", "did you mean expression?"},
    {"parameter_alone", with("activation", R"({"limit": 7.0})"), ErrorCode::kMissingKey,
     "layer.json:1: $.activation.preset: missing key"},
    {"unknown_preset", with("activation", R"({"preset": "geglo"})"), ErrorCode::kInvalidValue,
     "layer.json:1: $.activation.preset: got \"geglo\", wanted one of", "did you mean \"geglu\"?"},
    {"misspelt_parameter", with("activation", R"({"preset": "clamped_swiglu", "limt": 7.0})"),
     ErrorCode::kUnknownKey, "layer.json:1: $.activation.limt: unknown key", "limit"},
    {"parameter_of_another_preset", with("activation", R"({"preset": "swiglu", "limit": 7.0})"),
     ErrorCode::kUnknownKey, "layer.json:1: $.activation.limit: unknown key", "known: preset"},
    {"zero_limit", with("activation", R"({"preset": "clamped_swiglu", "limit": 0})"),
     ErrorCode::kInvalidValue,
     "layer.json:1: $.activation: got 0 for limit, wanted a number above 0"},
    {"string_limit", with("activation", R"({"preset": "clamped_swiglu", "limit": "7"})"),
     ErrorCode::kWrongType, "layer.json:1: $.activation.limit: got \"7\", wanted a number"},
    {"huge_alpha", with("activation", R"({"preset": "clamped_swiglu", "alpha": 1e300})"),
     ErrorCode::kInvalidValue,
     "layer.json:1: $.activation: got 1e+300 for alpha, wanted a number of fp32"},
    {"misspelt_function", with("activation", R"({"expression": "sigmod(gate) * up"})"),
     ErrorCode::kInvalidValue,
     "layer.json:1: $.activation.expression: column 1: got the function \"sigmod\", wanted one of",
     "did you mean sigmoid?"},
    {"misspelt_variable", with("activation", R"({"expression": "silu(gat) * up"})"),
     ErrorCode::kInvalidValue,
     "layer.json:1: $.activation.expression: column 6: got \"gat\", wanted one of gate, up",
     "did you mean gate?"},
    {"expression_and_parameter",
     with("activation", R"({"expression": "silu(gate) * up", "limit": 7})"), ErrorCode::kUnknownKey,
     "layer.json:1: $.activation.limit: unknown key", "expression"},
    {"number_as_expression", with("activation", R"({"expression": 1})"), ErrorCode::kWrongType,
     "layer.json:1: $.activation.expression: got 1, wanted a string"},
    {"constant_expression", with("activation", R"({"expression": "1 + 2"})"),
     ErrorCode::kInvalidValue,
     "layer.json:1: $.activation.expression: got a formula of neither gate nor up"},
};

INSTANTIATE_TEST_SUITE_P(Activations, LayerError, testing::ValuesIn(kActivations), case_name);

}  // namespace
}  // namespace moejit::compiler
