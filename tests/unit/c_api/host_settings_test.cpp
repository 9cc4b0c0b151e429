// SPDX-License-Identifier: Apache-2.0
//
// What a program has chosen for itself, a locale or floating-point modes, changes no layer.

#include "tests/unit/c_api/last_error.h"

#include <cfenv>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <locale.h>
#include <moejit/moejit_describe.h>
#include <string>
#include <string_view>
#include <unistd.h>

namespace moejit::testing {
namespace {

// 1.702 and 7.3 are no floats, and the formula has constants to fold.
constexpr std::string_view kLayers[] = {
    R"({"name": "clamped", "experts": 4, "top_k": 2, "hidden": 256, "intermediate": 128, "dtype": "bf16",
        "recipe": "fp8_flow", "splits_alignment": 64, "max_tokens": 16,
        "activation": {"preset": "clamped_swiglu", "limit": 7.3}})",
    R"({"name": "folded", "experts": 4, "top_k": 2, "hidden": 256, "intermediate": 128, "dtype": "bf16",
        "recipe": "fp8_flow", "splits_alignment": 64, "max_tokens": 16,
        "activation": {"expression": "0.1 * 0.7 / 3 * gate * up"}})"};
constexpr std::string_view kGptOss = R"({
  "model_type": "gpt_oss", "hidden_size": 2880, "intermediate_size": 2880, "num_local_experts": 32,
  "num_experts_per_tok": 4, "swiglu_limit": 7.0})";

std::string plan_of(std::string_view json) {
  moejit_plan* layer = nullptr;
  EXPECT_TRUE(is_ok(moejit_plan_create(json.data(), json.size(), "sim", nullptr, &layer)));
  const char* plan = "";
  EXPECT_TRUE(is_ok(moejit_plan_get_json(layer, &plan)));
  std::string text = plan;
  moejit_plan_destroy(layer);
  return text;
}

std::string description_of(std::string_view json) {
  moejit_hugging_face_options options = {};
  options.struct_size = sizeof(options);
  moejit_description_info info = {};
  info.struct_size = sizeof(info);
  moejit_description* description = nullptr;
  EXPECT_TRUE(
      is_ok(moejit_describe_hugging_face(json.data(), json.size(), &options, &description)));
  EXPECT_TRUE(is_ok(moejit_description_get_info(description, &info)));
  std::string text = info.json;
  moejit_description_destroy(description);
  return text;
}

std::vector<std::string> texts() {
  std::vector<std::string> all{description_of(kGptOss)};
  for (const std::string_view layer : kLayers) all.push_back(plan_of(layer));
  return all;
}

// Writes the part of a locale that says how numbers look, as glibc's localedef does.
void write_locale(const std::filesystem::path& folder, const std::string& point) {
  const auto padded = [](std::string text, std::size_t bytes) {
    text.resize(bytes);
    return text;
  };
  const auto words = [](std::initializer_list<uint32_t> values) {
    return std::string(reinterpret_cast<const char*>(std::data(values)), 4 * values.size());
  };
  // The magic number, six fields, and where they begin: the point, the separator, the grouping, the
  // first two as wide characters, and the character set.
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "LC_NUMERIC", std::ios::binary)
      << words({0x20031114, 6, 32, 36, 38, 40, 44, 48}) << padded(point, 4) << padded(".", 2)
      << padded("\3", 2) << words({',', '.'}) << padded("UTF-8", 6);
}

class CApiUnderALocale : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    folder_ =
        std::filesystem::path(::testing::TempDir()) / ("moejit-locale-" + std::to_string(getpid()));
    // The C library keeps a locale that it has read, by its name.
    const std::string name = "point-of-" + std::to_string(std::string_view(GetParam()).size());
    write_locale(folder_ / name, GetParam());
    setenv("LOCPATH", folder_.c_str(), 1);
    if (setlocale(LC_NUMERIC, name.c_str()) == nullptr)
      GTEST_SKIP() << "this C library takes no locale from files";
  }
  void TearDown() override {
    setlocale(LC_NUMERIC, "C");
    unsetenv("LOCPATH");
    std::filesystem::remove_all(folder_);
  }

 private:
  std::filesystem::path folder_;
};

TEST_P(CApiUnderALocale, ReadsAndWritesNumbersWithAPoint) {
  char written[8] = {};
  std::snprintf(written, sizeof(written), "%.1f", 7.5);
  ASSERT_EQ(written, "7" + std::string(GetParam()) + "5");
  const std::vector<std::string> got = texts();
  setlocale(LC_NUMERIC, "C");
  EXPECT_EQ(got, texts());
}

INSTANTIATE_TEST_SUITE_P(Points, CApiUnderALocale, ::testing::Values(",", "\xd9\xab"));

TEST(CApiUnderRoundingModes, ReadsAndFoldsTheSameNumbers) {
  const std::vector<std::string> wanted = texts();
  for (const int mode : {FE_DOWNWARD, FE_UPWARD, FE_TOWARDZERO}) {
    std::fesetround(mode);
    const std::vector<std::string> got = texts();
    const int after = std::fegetround();
    std::fesetround(FE_TONEAREST);
    EXPECT_EQ(after, mode);
    EXPECT_EQ(got, wanted) << mode;
  }
}

}  // namespace
}  // namespace moejit::testing
