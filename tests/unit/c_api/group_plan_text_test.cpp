// SPDX-License-Identifier: Apache-2.0
// What programs in C are told about the plan of a rank, and what they plan it with.
#include <gtest/gtest.h>
#include <moejit/moejit_group.h>
#include <string_view>

namespace moejit::testing {
namespace {

constexpr std::string_view kGroup = R"({"experts": 4, "top_k": 1, "hidden": 144, "intermediate": 80,
    "splits_alignment": 16, "dispatch": "fp8", "max_tokens": 6, "expert_parallel": {"ranks": 2}})";

moejit_error_code create(const moejit_plan_options* options, moejit_plan** layer) {
  return moejit_group_layer_create(kGroup.data(), kGroup.size(), "sim", 1, options, layer);
}

TEST(CApiGroupPlan, ExplainsThePlanOfARank) {
  moejit_plan* layer = nullptr;
  ASSERT_EQ(create(nullptr, &layer), MOEJIT_OK);
  const char *text = nullptr, *explained = nullptr, *json = nullptr, *again = nullptr;
  ASSERT_EQ(moejit_plan_get_text(layer, 0, &text), MOEJIT_OK);
  ASSERT_EQ(moejit_plan_get_text(layer, 1, &explained), MOEJIT_OK);
  ASSERT_EQ(moejit_plan_get_json(layer, &json), MOEJIT_OK);
  const auto has = [](std::string_view all, std::string_view part) {
    return all.find(part) != std::string_view::npos;
  };
  EXPECT_TRUE(has(text, "on a group of 2 ranks"));
  EXPECT_FALSE(has(text, "64 SMs send"));
  EXPECT_TRUE(has(explained, "64 SMs send"));
  EXPECT_TRUE(has(explained, "bytes to the other rank in the mean"));
  EXPECT_TRUE(has(explained, "group_status_1"));
  EXPECT_TRUE(has(json, "\"sent_bytes\""));
  EXPECT_TRUE(has(json, "\"group\""));
  ASSERT_EQ(moejit_plan_get_text(layer, 1, &again), MOEJIT_OK);
  EXPECT_EQ(again, explained);
  EXPECT_EQ(moejit_plan_get_text(nullptr, 1, &again), MOEJIT_ERROR_INVALID_VALUE);
  EXPECT_EQ(again, nullptr);
  EXPECT_EQ(moejit_plan_get_json(layer, nullptr), MOEJIT_ERROR_INVALID_VALUE);
  moejit_plan_destroy(layer);
}

TEST(CApiGroupPlan, ReadsTuningRecordsAsLayersDo) {
  const moejit_plan_options options = {.struct_size = sizeof(options), .tuning = "nowhere.json"};
  moejit_plan* layer = nullptr;
  EXPECT_EQ(create(&options, &layer), MOEJIT_ERROR_FILE_NOT_FOUND);
}

}  // namespace
}  // namespace moejit::testing
