// SPDX-License-Identifier: Apache-2.0
#include "cli/commands/gemm_cases.h"

#include "compiler/support/file.h"
#include "runtime/trial/gemm_trial.h"
#include "tests/support/matchers.h"

#include <algorithm>
#include <gtest/gtest.h>

namespace moejit::cli {
namespace {

using measure::GemmCase;
using measure::GemmOperation;
using testing::succeeded;

std::string file_of(const std::string& cases) { return "{\"gemms\": [" + cases + "]}"; }

constexpr const char* kValid =
    R"("name": "a", "operation": "grouped_gemm", "groups": 8, "rows_per_group": 100, "k": 64)";

std::string one(const std::string& rest) { return file_of("{" + std::string(kValid) + rest + "}"); }

TEST(GemmCases, HaveDefaultsForWhatIsLeftOut) {
  const auto cases = parse_gemm_cases(one(R"(, "n": 48)"), "gemms.json");
  ASSERT_TRUE(succeeded(cases));
  EXPECT_EQ(
      *cases,
      (std::vector<GemmCase>{{.name = "a", .groups = 8, .rows_per_group = 100, .n = 48, .k = 64}}));
}

TEST(GemmCases, ReadEveryField) {
  const auto cases =
      parse_gemm_cases(one(R"(, "n": 96, "sections": 3, "ragged": true, "splits_alignment": 1,
             "scale_sharing_k": 2)"),
                       "gemms.json");
  ASSERT_TRUE(succeeded(cases));
  EXPECT_EQ(cases->front(), (GemmCase{.name = "a",
                                      .groups = 8,
                                      .rows_per_group = 100,
                                      .is_ragged = true,
                                      .splits_alignment = 1,
                                      .n = 96,
                                      .k = 64,
                                      .sections = 3,
                                      .scale_sharing_k = 2}));
  EXPECT_EQ(operation_of(cases->front(), 800),
            (compiler::OperationDescription{"grouped_gemm",
                                            {{"local_experts", 8},
                                             {"max_permuted_rows", 800},
                                             {"sections", 3},
                                             {"n", 96},
                                             {"k", 64},
                                             {"scales", "row_block"},
                                             {"accumulation", "fp32"},
                                             {"scale_sharing_k", 2}}}));
}

TEST(GemmCases, ReadEveryFieldOfAContractionGroupedOne) {
  const auto cases = parse_gemm_cases(file_of(R"({"name": "a",
             "operation": "contraction_grouped_gemm", "groups": 8, "columns_per_group": 100,
             "ragged": true, "rows": 48, "n": 96, "scales": "row", "output": "f32_add"})"),
                                      "gemms.json");
  ASSERT_TRUE(succeeded(cases));
  EXPECT_EQ(cases->front(), (GemmCase{.name = "a",
                                      .operation = GemmOperation::kContractionGroupedGemm,
                                      .groups = 8,
                                      .is_ragged = true,
                                      .n = 96,
                                      .columns_per_group = 100,
                                      .rows = 48,
                                      .gradient_scales = compiler::GradientScales::kRow,
                                      .output = compiler::GradientOutput::kF32Add}));
  EXPECT_EQ(operation_of(cases->front(), 1024),
            (compiler::OperationDescription{"contraction_grouped_gemm",
                                            {{"local_experts", 8},
                                             {"max_columns", 1024},
                                             {"rows", 48},
                                             {"n", 96},
                                             {"scales", "row"},
                                             {"output", "f32_add"},
                                             {"accumulation", "fp32"}}}));
}

struct Wrong {
  std::string text;
  ErrorCode code;
  std::string message;
};
void PrintTo(const Wrong& wrong, std::ostream* out) { *out << wrong.text; }

class GemmCaseError : public ::testing::TestWithParam<Wrong> {};

TEST_P(GemmCaseError, NamesThePlaceWhatWasGotAndWhatIsWanted) {
  const auto cases = parse_gemm_cases(GetParam().text, "gemms.json");
  ASSERT_FALSE(cases.has_value());
  EXPECT_EQ(cases.error().code, GetParam().code);
  EXPECT_EQ(cases.error().message, GetParam().message);
}

INSTANTIATE_TEST_SUITE_P(
    All, GemmCaseError,
    ::testing::Values(
        Wrong{"{}", ErrorCode::kMissingKey, "gemms.json:1: $.gemms: missing key"},
        Wrong{one(""), ErrorCode::kMissingKey, "gemms.json:1: $.gemms[0].n: missing key"},
        Wrong{one(R"(, "n": 40)"), ErrorCode::kInvalidValue,
              "gemms.json:1: $.gemms[0].n: got 40, wanted a multiple of 16 from 16 to 262144"},
        Wrong{one(R"(, "n": 48, "sections": 2)"), ErrorCode::kInvalidValue,
              "gemms.json:1: $.gemms[0].n: got 48, wanted a multiple of 32 from 32 to 262144"},
        Wrong{one(R"(, "n": 48, "ragged": 1)"), ErrorCode::kWrongType,
              "gemms.json:1: $.gemms[0].ragged: got 1, wanted true or false"},
        Wrong{one(R"(, "n": 48, "scale_sharing_k": 3)"), ErrorCode::kInvalidValue,
              "gemms.json:1: $.gemms[0].scale_sharing_k: got 3, wanted 1 to 2"},
        Wrong{one(R"(, "n": 48, "scales": "tensor", "scale_sharing_k": 2)"),
              ErrorCode::kInvalidValue,
              "gemms.json:1: $.gemms[0].scale_sharing_k: got 2 with the scales tensor, wanted 1"},
        Wrong{one(R"(, "n": 48, "scales": "block")"), ErrorCode::kInvalidValue,
              "gemms.json:1: $.gemms[0].scales: got \"block\", wanted one of \"row_block\", "
              "\"tensor\", \"row_column\", \"none\""},
        Wrong{one(R"(, "n": 48, "scales": "none", "accumulation": "fast")"),
              ErrorCode::kInvalidValue,
              "gemms.json:1: $.gemms[0].accumulation: got \"fast\" with the scales none, wanted "
              "\"fp32\""},
        Wrong{one(R"(, "n": 48, "rows": 3)"), ErrorCode::kUnknownKey,
              "gemms.json:1: $.gemms[0].rows: unknown key"},
        Wrong{file_of(R"({"name": "a b", "operation": "grouped_gemm"})"), ErrorCode::kInvalidValue,
              "gemms.json:1: $.gemms[0].name: got \"a b\", wanted 1 to 64 lower-case letters, "
              "digits, _ - and ."},
        Wrong{file_of(R"({"name": "a", "operation": "gemm"})"), ErrorCode::kInvalidValue,
              "gemms.json:1: $.gemms[0].operation: got \"gemm\", wanted one of \"grouped_gemm\", "
              "\"contraction_grouped_gemm\""},
        Wrong{file_of(R"({"name": "a", "operation": "grouped_gemm", "groups": 4096,
                          "rows_per_group": 1000000, "n": 16, "k": 16})"),
              ErrorCode::kInvalidValue,
              "gemms.json:2: $.gemms[0].rows_per_group: got 1000000 rows in each of 4096 groups, "
              "which may be 4096520192 with pad rows, wanted at most 2147483647"},
        Wrong{file_of(R"({"name": "a", "operation": "contraction_grouped_gemm", "groups": 4096,
                          "columns_per_group": 1000000, "rows": 16, "n": 16})"),
              ErrorCode::kInvalidValue,
              "gemms.json:2: $.gemms[0].columns_per_group: got 1000000 columns in each of 4096 "
              "groups, which may be 4096520192 with pad columns, wanted at most 2147483647"},
        Wrong{file_of(R"({"name": "a", "operation": "contraction_grouped_gemm", "k": 16})"),
              ErrorCode::kUnknownKey, "gemms.json:1: $.gemms[0].k: unknown key"},
        Wrong{file_of(R"({"name": "a", "operation": "contraction_grouped_gemm", "groups": 1,
                          "columns_per_group": 1, "rows": 16, "n": 16, "output": "f16"})"),
              ErrorCode::kInvalidValue,
              "gemms.json:2: $.gemms[0].output: got \"f16\", wanted one of \"bf16\", \"bf16_add\", "
              "\"f32\", \"f32_add\""},
        Wrong{file_of("{" + std::string(kValid) + ", \"n\": 16}, {" + std::string(kValid) +
                      ", \"n\": 16}"),
              ErrorCode::kInvalidValue,
              "gemms.json:1: $.gemms[1].name: got \"a\" twice, wanted each name once"}));

TEST(GemmCases, HaveBf16OperandsWithoutScales) {
  const auto cases = parse_gemm_cases(one(R"(, "n": 48, "scales": "none")"), "gemms.json");
  ASSERT_TRUE(succeeded(cases));
  EXPECT_EQ(cases->front().scales, compiler::GemmScales::kNone);
  EXPECT_EQ(operands_of(cases->front()), compiler::DType::kBF16);
  const auto others = parse_gemm_cases(
      one(R"(, "n": 48, "scales": "row_column", "accumulation": "fast")"), "gemms.json");
  ASSERT_TRUE(succeeded(others));
  EXPECT_EQ(others->front().scales, compiler::GemmScales::kRowColumn);
  EXPECT_EQ(operands_of(others->front()), compiler::DType::kF8E4M3);
  EXPECT_EQ(others->front().accumulation, compiler::GemmAccumulation::kFast);
}

TEST(GemmCases, OfTheDocsParseAndHaveKernels) {
  for (const char* name : {"hopper.json", "hopper_wgrad.json"}) {
    const std::string path = std::string(MOEJIT_SOURCE_DIR) + "/docs/examples/gemms/" + name;
    const auto text = read_text_file(path);
    ASSERT_TRUE(succeeded(text));
    const auto cases = parse_gemm_cases(*text, path);
    ASSERT_TRUE(succeeded(cases));
    EXPECT_GE(cases->size(), 20u);
    for (const GemmCase& gemm : *cases)
      EXPECT_TRUE(succeeded(trial::GemmTrial::sources(gemm, {}))) << gemm.name;
  }
}

TEST(GemmCases, AreDescribedFieldByFieldInTheDocs) {
  const auto page = read_text_file(std::string(MOEJIT_SOURCE_DIR) + "/docs/cli.md");
  ASSERT_TRUE(succeeded(page));
  for (const auto operation :
       {GemmOperation::kGroupedGemm, GemmOperation::kContractionGroupedGemm}) {
    for (const std::string_view key : gemm_case_keys(operation))
      EXPECT_NE(page->find("\n| `" + std::string(key) + "` |"), std::string::npos) << key;
  }
}

}  // namespace
}  // namespace moejit::cli
