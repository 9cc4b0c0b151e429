// SPDX-License-Identifier: Apache-2.0
// A group of two simulated ranks through the C interface, which reach each other's memory.
#include "tests/unit/c_api/group_fixture.h"

namespace moejit::testing {
namespace {

TEST_F(CApiGroup, GivesTheBitsOfOneRank) {
  expect_bits_of_one_rank();
  if (HasFatalFailure()) return;
  // A group may go before its layers.
  moejit_group_destroy(groups_[0]);
  groups_[0] = nullptr;
  EXPECT_EQ(moejit_layer_forward(layers_[0], calls_[0]->call()), MOEJIT_ERROR_INVALID_STATE);
}

TEST_F(CApiGroup, RefusesBackwardBeforeForward) {
  prepare();
  if (HasFatalFailure()) return;
  const auto calls = calls_of(0, all_inputs());
  EXPECT_EQ(moejit_layer_backward(layers_[0], MOEJIT_GRADIENT_OVERWRITE, calls->call()),
            MOEJIT_ERROR_INVALID_STATE);
}

TEST_F(CApiGroup, RefusesMemoryAndIdentitiesThatDoNotFit) {
  const auto adopt = [&] {
    return moejit_group_adopt(layers_[0], devices_[0], members_.data(), members_.size(),
                              &groups_[0]);
  };
  members_[1].base = nullptr;
  EXPECT_EQ(adopt(), MOEJIT_ERROR_INVALID_VALUE);
  members_[1].base = members_[0].base;
  EXPECT_EQ(adopt(), MOEJIT_ERROR_INVALID_VALUE);
  members_[1].base = static_cast<std::byte*>(members_[0].base) + 4096 * 4096;
  members_[1].identity = "moejit=0";
  EXPECT_EQ(adopt(), MOEJIT_ERROR_TENSOR_MISMATCH);
  EXPECT_NE(std::string(moejit_last_error()->message).find("ranks 0 and 1 of a group differ"),
            std::string::npos);
  EXPECT_EQ(groups_[0], nullptr);
  EXPECT_EQ(moejit_group_adopt(layers_[0], nullptr, members_.data(), 2, &groups_[0]),
            MOEJIT_ERROR_INVALID_VALUE);
}

TEST_F(CApiGroup, TellsItsMemory) {
  prepare();
  if (HasFatalFailure()) return;
  for (std::size_t rank = 0; rank < kRanks; ++rank) {
    moejit_group_info info = {};
    info.struct_size = sizeof(info);
    ASSERT_EQ(moejit_group_get_info(groups_[rank], &info), MOEJIT_OK);
    EXPECT_EQ(info.ranks, kRanks);
    EXPECT_EQ(info.rank, static_cast<int64_t>(rank));
    EXPECT_EQ(info.memory_bytes, infos_[rank].memory_bytes);
    EXPECT_EQ(info.allocated_bytes, 0);  // the memory is the caller's
  }
  EXPECT_EQ(moejit_group_get_info(groups_[0], nullptr), MOEJIT_ERROR_INVALID_VALUE);
}

TEST_F(CApiGroup, RefusesToOpenWithoutAPlaceOrInTheSimulator) {
  moejit_rendezvous_place place = {};
  const auto open = [&](const moejit_rendezvous_place* at) {
    return moejit_group_open(layers_[0], devices_[0], at, &groups_[0]);
  };
  EXPECT_EQ(open(nullptr), MOEJIT_ERROR_INVALID_VALUE);
  EXPECT_EQ(open(&place), MOEJIT_ERROR_INVALID_VALUE);
  EXPECT_NE(std::string(moejit_last_error()->message).find("struct_size"), std::string::npos);
  place.struct_size = sizeof(place);
  EXPECT_EQ(open(&place), MOEJIT_ERROR_INVALID_VALUE);
  EXPECT_NE(std::string(moejit_last_error()->message).find("path"), std::string::npos);
  place.path = "/tmp/none";
  EXPECT_EQ(open(&place), MOEJIT_ERROR_UNSUPPORTED);
  EXPECT_EQ(groups_[0], nullptr);
  EXPECT_EQ(moejit_group_open(layers_[0], nullptr, &place, &groups_[0]),
            MOEJIT_ERROR_INVALID_VALUE);
  EXPECT_EQ(moejit_group_open(nullptr, devices_[0], &place, &groups_[0]),
            MOEJIT_ERROR_INVALID_VALUE);
  EXPECT_EQ(moejit_group_open(layers_[0], devices_[0], &place, nullptr),
            MOEJIT_ERROR_INVALID_VALUE);
  prepare();
  if (HasFatalFailure()) return;
  EXPECT_EQ(moejit_group_reopen(groups_[0], &place), MOEJIT_ERROR_INVALID_STATE);
  EXPECT_EQ(moejit_group_reopen(nullptr, &place), MOEJIT_ERROR_INVALID_VALUE);
}

TEST_F(CApiGroup, RefusesLayersOfOneRankAndUnpreparedOnes) {
  const std::string json = json_of(kMaxTokens, "");
  moejit_plan* layer = nullptr;
  EXPECT_EQ(moejit_group_layer_create(json.data(), json.size(), "sim", 0, nullptr, &layer),
            MOEJIT_ERROR_UNSUPPORTED);
  const std::string group = group_json();
  EXPECT_EQ(moejit_group_layer_create(group.data(), group.size(), "sim", 2, nullptr, &layer),
            MOEJIT_ERROR_UNSUPPORTED);
  EXPECT_EQ(layer, nullptr);
  moejit_call call = {};
  call.struct_size = sizeof(call);
  EXPECT_EQ(moejit_layer_forward(layers_[0], &call), MOEJIT_ERROR_INVALID_VALUE);
}

TEST_F(CApiGroup, RefusesPlansOfOneRankAndDevicesAlone) {
  const std::string json = json_of(kMaxTokens, "");
  moejit_plan* of_one_rank = nullptr;
  ASSERT_EQ(moejit_plan_create(json.data(), json.size(), "sim", nullptr, &of_one_rank), MOEJIT_OK);
  EXPECT_EQ(
      moejit_group_adopt(of_one_rank, devices_[0], members_.data(), members_.size(), &groups_[0]),
      MOEJIT_ERROR_UNSUPPORTED);
  EXPECT_EQ(groups_[0], nullptr);
  moejit_plan_destroy(of_one_rank);
  EXPECT_EQ(moejit_plan_prepare(layers_[0], engine_, devices_[0]), MOEJIT_ERROR_UNSUPPORTED);
  EXPECT_EQ(infos_[0].kind, MOEJIT_KIND_GROUP_LAYER);
}

TEST_F(CApiGroup, TellsWhichCallsAllRanksMake) {
  for (std::size_t i = 0; i < infos_[0].call_count; ++i) {
    moejit_call_info info = {};
    info.struct_size = sizeof(info);
    ASSERT_EQ(moejit_plan_get_call(layers_[0], i, &info), MOEJIT_OK);
    const std::string_view name = info.name;
    EXPECT_EQ(info.is_of_all_ranks != 0, name.ends_with("forward") || name.starts_with("backward"))
        << name;
  }
}

}  // namespace
}  // namespace moejit::testing
