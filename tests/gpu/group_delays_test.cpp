// SPDX-License-Identifier: Apache-2.0
// Ranks of a group that are late at random: no call's bits depend on when a rank comes.
#include "runtime/device_memory.h"
#include "runtime/reference/random_inputs.h"
#include "tests/gpu/group_case.h"
#include "tests/support/matchers.h"
#include "tests/tested_target.h"

#include <algorithm>
#include <gtest/gtest.h>

namespace moejit::testing {
namespace {

using runtime::DeviceMemory;
using runtime::TensorMap;

bool are_equal(const TensorMap& a, const TensorMap& b) {
  return std::ranges::equal(a, b, [](const auto& one, const auto& other) {
    return one.first == other.first && one.second.bytes == other.second.bytes;
  });
}

// Work that lasts a random time, enqueued on a rank's stream.
class Delays {
 public:
  explicit Delays(GroupCase& group, int32_t ranks) : group_(group) {
    for (int32_t rank = 0; rank < ranks; ++rank) {
      auto memory = DeviceMemory::allocate(group.devices().device(rank), kBytes);
      EXPECT_TRUE(succeeded(memory));
      if (memory) memory_.push_back(std::move(*memory));
    }
  }
  // Up to 2 ms on an H200, which fills some 4 TB/s; a rank of three has none.
  void add(uint64_t index) {
    for (std::size_t rank = 0; rank < memory_.size(); ++rank) {
      const uint64_t drawn = index * memory_.size() + rank;
      const int64_t fills =
          random_.below(2 * drawn, 3) == 0 ? 0 : random_.below(2 * drawn + 1, kMostFills + 1);
      for (int64_t fill = 0; fill < fills; ++fill) {
        EXPECT_TRUE(succeeded(group_.devices()
                                  .device(static_cast<int32_t>(rank))
                                  .fill(memory_[rank].address(), std::byte{1}, kBytes, nullptr)));
      }
    }
  }

 private:
  static constexpr int64_t kMostFills = 32;
  // The simulator has no time that a fill could take: its own tests let ranks stand still.
  const int64_t kBytes = tested_target() == "sim" ? 1 << 10 : 1 << 28;

  GroupCase& group_;
  std::vector<DeviceMemory> memory_;
  reference::RandomStream random_{7, 11};
};

class GroupDelays : public ::testing::TestWithParam<int32_t> {};

TEST_P(GroupDelays, ChangeNoBit) {
  const int32_t ranks = GetParam();
  const compiler::Layer layer = group_layer_of_many(ranks);
  std::vector<int64_t> tokens;
  for (int64_t rank = 0; rank < ranks; ++rank) tokens.push_back(12 - (rank * 5) % 12);
  std::string why_not;
  const auto group = GroupCase::open(completed(layer), tokens, why_not);
  if (group == nullptr) GTEST_SKIP() << why_not;
  Delays delays(*group, ranks);
  std::vector<TensorMap> first;
  const int runs = tested_target() == "sim" ? 2 : 100;
  for (int run = 0; run < runs; ++run) {
    delays.add(2 * static_cast<uint64_t>(run));
    ASSERT_TRUE(succeeded(group->session().call("forward")));
    delays.add(2 * static_cast<uint64_t>(run) + 1);
    ASSERT_TRUE(succeeded(group->session().call("backward")));
    const auto status = group->session().status();
    ASSERT_TRUE(succeeded(status));
    ASSERT_EQ(*status, std::vector<uint32_t>(tokens.size()));
    if (run == 0) {
      group->expect_bits_of_one_rank();
      first = group->results();
      continue;
    }
    ASSERT_TRUE(std::ranges::equal(group->results(), first, are_equal)) << "run " << run;
  }
}
// In the simulator more ranks are those of group_layer_test.cpp.
INSTANTIATE_TEST_SUITE_P(Ranks, GroupDelays,
                         ::testing::ValuesIn(tested_target() == "sim" ? std::vector{2}
                                                                      : std::vector{2, 4}));

}  // namespace
}  // namespace moejit::testing
