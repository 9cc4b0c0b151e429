// SPDX-License-Identifier: Apache-2.0
// Groups over NCCL through the C interface, with simulated ranks: no kernel reaches a peer, and the
// simulator moves the bytes.
#include "tests/unit/c_api/group_fixture.h"

namespace moejit::testing {
namespace {

class CApiGroupOverNccl : public CApiGroup {
 protected:
  std::string described() const override {
    return json_of(kMaxTokens, R"(, "expert_parallel": {"ranks": 2, "transport": "nccl"})");
  }
  moejit_error_code open(std::size_t rank) override {
    return moejit_group_open_nccl(layers_[rank], devices_[rank], id_.data(), 0, &groups_[rank]);
  }
  static void expect_told(std::string_view words) {
    const std::string told = moejit_last_error()->message;
    EXPECT_NE(told.find(words), std::string::npos) << told;
  }

  std::array<uint8_t, MOEJIT_NCCL_ID_BYTES> id_ = {7};
};

TEST_F(CApiGroupOverNccl, GivesTheBitsOfOneRank) { expect_bits_of_one_rank(); }

TEST_F(CApiGroupOverNccl, OpensAnotherOneOnceItIsAborted) {
  prepare();
  if (HasFatalFailure()) return;
  const auto alone = calls_of(0, all_inputs());
  ASSERT_EQ(moejit_layer_update_weights(layers_[0], alone->call()), MOEJIT_OK);
  ASSERT_EQ(moejit_layer_forward(layers_[0], alone->call()), MOEJIT_OK);
  ASSERT_EQ(moejit_group_abort(groups_[0]), MOEJIT_OK);
  EXPECT_EQ(moejit_device_synchronize(devices_[0], nullptr), MOEJIT_OK)
      << moejit_last_error()->message;
  EXPECT_EQ(moejit_layer_forward(layers_[0], alone->call()), MOEJIT_ERROR_INVALID_STATE);
  uint32_t status = 0;
  for (std::size_t rank = 0; rank < kRanks; ++rank) {
    EXPECT_EQ(moejit_group_status(groups_[rank], &status), MOEJIT_ERROR_INVALID_STATE);
    EXPECT_EQ(moejit_group_reset(groups_[rank]), MOEJIT_ERROR_INVALID_STATE);
    moejit_group_destroy(groups_[rank]);
    moejit_plan_destroy(layers_[rank]);
    groups_[rank] = nullptr;
    const std::string json = described();
    ASSERT_EQ(moejit_group_layer_create(json.data(), json.size(), "sim", static_cast<int64_t>(rank),
                                        nullptr, &layers_[rank]),
              MOEJIT_OK);
  }
  id_[0] = 8;
  expect_bits_of_one_rank();
}

TEST_F(CApiGroupOverNccl, RefusesARankThatComesTwice) {
  ASSERT_EQ(open(0), MOEJIT_OK) << moejit_last_error()->message;
  moejit_group* again = nullptr;
  EXPECT_EQ(moejit_group_open_nccl(layers_[0], devices_[0], id_.data(), 0, &again),
            MOEJIT_ERROR_INVALID_VALUE);
  expect_told("rank 0 has come with this id already");
  EXPECT_EQ(moejit_group_open_nccl(layers_[0], devices_[1], id_.data(), 0, &again),
            MOEJIT_ERROR_INVALID_VALUE);
  expect_told("the transport is that of rank 1 of 2, wanted rank 0 of 2");
  EXPECT_EQ(again, nullptr);
}

TEST_F(CApiGroupOverNccl, ComparesLayers) {
  ASSERT_EQ(open(0), MOEJIT_OK) << moejit_last_error()->message;
  const std::string json = json_of(4, R"(, "expert_parallel": {"ranks": 2, "transport": "nccl"})");
  moejit_plan* other = nullptr;
  ASSERT_EQ(moejit_group_layer_create(json.data(), json.size(), "sim", 1, nullptr, &other),
            MOEJIT_OK);
  EXPECT_EQ(moejit_group_open_nccl(other, devices_[1], id_.data(), 0, &groups_[1]),
            MOEJIT_ERROR_TENSOR_MISMATCH);
  expect_told("ranks 1 and 0 of a group differ in max_tokens: 4 and 6");
  moejit_plan_destroy(other);
}

TEST_F(CApiGroupOverNccl, RefusesOtherTransportsAndOtherDevices) {
  moejit_group* group = nullptr;
  const std::string of_peers = group_json();
  moejit_plan* layer = nullptr;
  ASSERT_EQ(moejit_group_layer_create(of_peers.data(), of_peers.size(), "sim", 0, nullptr, &layer),
            MOEJIT_OK);
  EXPECT_EQ(moejit_group_open_nccl(layer, devices_[0], id_.data(), 0, &group),
            MOEJIT_ERROR_UNSUPPORTED);
  expect_told("has the transport peer");
  EXPECT_EQ(moejit_group_adopt_nccl(layer, devices_[0], &id_, &group), MOEJIT_ERROR_UNSUPPORTED);
  expect_told("has the transport peer");
  moejit_plan_destroy(layer);
  moejit_device* alone = nullptr;
  ASSERT_EQ(moejit_device_open_simulator(nullptr, &alone), MOEJIT_OK);
  EXPECT_EQ(moejit_group_open_nccl(layers_[0], alone, id_.data(), 0, &group),
            MOEJIT_ERROR_UNSUPPORTED);
  expect_told("the device is the simulator");
  moejit_device_destroy(alone);
  EXPECT_EQ(moejit_group_adopt_nccl(layers_[0], devices_[0], &id_, &group),
            MOEJIT_ERROR_UNSUPPORTED);
  expect_told("the device is the simulator");
  EXPECT_EQ(group, nullptr);
}

TEST_F(CApiGroupOverNccl, RefusesNull) {
  moejit_group* group = nullptr;
  EXPECT_EQ(moejit_nccl_make_id(nullptr), MOEJIT_ERROR_INVALID_VALUE);
  EXPECT_EQ(moejit_group_abort(nullptr), MOEJIT_ERROR_INVALID_VALUE);
  EXPECT_EQ(moejit_group_open_nccl(layers_[0], devices_[0], nullptr, 0, &group),
            MOEJIT_ERROR_INVALID_VALUE);
  EXPECT_EQ(moejit_group_open_nccl(layers_[0], nullptr, id_.data(), 0, &group),
            MOEJIT_ERROR_INVALID_VALUE);
  EXPECT_EQ(moejit_group_open_nccl(nullptr, devices_[0], id_.data(), 0, &group),
            MOEJIT_ERROR_INVALID_VALUE);
  EXPECT_EQ(moejit_group_open_nccl(layers_[0], devices_[0], id_.data(), 0, nullptr),
            MOEJIT_ERROR_INVALID_VALUE);
  EXPECT_EQ(moejit_group_adopt_nccl(layers_[0], devices_[0], nullptr, &group),
            MOEJIT_ERROR_INVALID_VALUE);
  EXPECT_EQ(moejit_group_adopt_nccl(layers_[0], nullptr, &id_, &group), MOEJIT_ERROR_INVALID_VALUE);
  EXPECT_EQ(moejit_group_adopt_nccl(nullptr, devices_[0], &id_, &group),
            MOEJIT_ERROR_INVALID_VALUE);
  EXPECT_EQ(moejit_group_adopt_nccl(layers_[0], devices_[0], &id_, nullptr),
            MOEJIT_ERROR_INVALID_VALUE);
  EXPECT_EQ(group, nullptr);
}

}  // namespace
}  // namespace moejit::testing
