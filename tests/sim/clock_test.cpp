// SPDX-License-Identifier: Apache-2.0
#include "runtime/simulator/clock.h"

#include "runtime/simulator/ordering.h"

#include <gtest/gtest.h>

namespace moejit::runtime {
namespace {

Stamp access_of(int32_t thread, uint32_t epoch) { return make_stamp(thread, epoch); }

TEST(Clock, KnowsNothingAtFirst) {
  const Clock clock;
  EXPECT_FALSE(clock.covers(access_of(0, 1)));
  EXPECT_FALSE(clock.covers(make_stamp(kFirstAgent, 0)));
  EXPECT_FALSE(clock.covers_fenced(access_of(0, 1)));
}

TEST(Clock, KnowsAllLanesOfAWarp) {
  Clock clock;
  clock.add_warp(1, 5);
  EXPECT_TRUE(clock.covers(access_of(32, 4)));
  EXPECT_TRUE(clock.covers(access_of(63, 4) | kWholeWarp));
  EXPECT_FALSE(clock.covers(access_of(63, 5)));
  EXPECT_FALSE(clock.covers(access_of(31, 4)));
}

TEST(Clock, KnowsOneLaneAlone) {
  Clock clock;
  clock.add_thread(40, 5);
  EXPECT_TRUE(clock.covers(access_of(40, 4)));
  EXPECT_FALSE(clock.covers(access_of(40, 5)));
  EXPECT_FALSE(clock.covers(access_of(41, 4)));
  // What the whole warp did was not told by one of its lanes.
  EXPECT_FALSE(clock.covers(access_of(40, 4) | kWholeWarp));
}

TEST(Clock, TakesAgentsForFenced) {
  Clock clock;
  clock.add_agent(3, 2);
  EXPECT_TRUE(clock.covers(make_stamp(kFirstAgent + 3, 1)));
  EXPECT_FALSE(clock.covers(make_stamp(kFirstAgent + 3, 2)));
  EXPECT_TRUE(clock.covers_fenced(make_stamp(kFirstAgent + 3, 9)));
}

TEST(Clock, JoinsListsOfLanes) {
  Clock first;
  for (const int32_t thread : {3, 7, 200}) first.add_thread(thread, 10);
  Clock second;
  for (const int32_t thread : {1, 7, 90, 300}) second.add_thread(thread, 20);
  second.add_fenced_thread(3, 4);
  first.join(second);
  for (const int32_t thread : {1, 7, 90, 300}) EXPECT_TRUE(first.covers(access_of(thread, 19)));
  for (const int32_t thread : {3, 200}) {
    EXPECT_TRUE(first.covers(access_of(thread, 9)));
    EXPECT_FALSE(first.covers(access_of(thread, 10)));
  }
  EXPECT_TRUE(first.covers_fenced(access_of(3, 3)));
  EXPECT_FALSE(first.covers_fenced(access_of(3, 4)));
}

TEST(Clock, MeetsInWhatBothKnow) {
  Clock first;
  first.add_warp(0, 6);
  first.add_thread(40, 9);
  first.add_thread(41, 9);
  first.add_agent(0, 3);
  Clock second;
  second.add_warp(0, 4);
  second.add_warp(1, 7);  // of threads 40 and 41, too
  second.add_thread(2, 5);
  second.add_agent(0, 2);
  second.add_agent(1, 8);
  first.meet(second);
  EXPECT_TRUE(first.covers(access_of(1, 3)));
  EXPECT_FALSE(first.covers(access_of(1, 4)));
  EXPECT_TRUE(first.covers(access_of(2, 4)));
  EXPECT_TRUE(first.covers(access_of(40, 6)));
  EXPECT_FALSE(first.covers(access_of(40, 7)));
  EXPECT_FALSE(first.covers(access_of(42, 6)));
  EXPECT_TRUE(first.covers(make_stamp(kFirstAgent, 1)));
  EXPECT_FALSE(first.covers(make_stamp(kFirstAgent, 2)));
  EXPECT_FALSE(first.covers(make_stamp(kFirstAgent + 1, 0)));
}

TEST(Clock, CompactsWhatAllLanesTold) {
  Clock clock;
  for (int32_t lane = 0; lane < 32; ++lane) clock.add_thread(lane, lane == 5 ? 9 : 4);
  clock.compact();
  EXPECT_TRUE(clock.covers(access_of(31, 3) | kWholeWarp));
  EXPECT_FALSE(clock.covers(access_of(31, 4)));
  EXPECT_TRUE(clock.covers(access_of(5, 8)));
}

TEST(Clock, DoesNotCompactForOneLaneTooFew) {
  Clock clock;
  for (int32_t lane = 0; lane < 31; ++lane) clock.add_thread(lane, 4);
  clock.compact();
  EXPECT_TRUE(clock.covers(access_of(30, 3)));
  EXPECT_FALSE(clock.covers(access_of(31, 3)));
  EXPECT_FALSE(clock.covers(access_of(30, 3) | kWholeWarp));
}

TEST(SharedClock, IsCopiedOnceOneOfItsHoldersChangesIt) {
  SharedClock first;
  first.own().add_thread(3, 10);
  SharedClock second = first;
  EXPECT_TRUE(first.is_shared());
  EXPECT_EQ(first, second);
  second.own().add_thread(3, 20);
  EXPECT_FALSE(first.is_shared());
  EXPECT_NE(first, second);
  EXPECT_FALSE(first->covers(access_of(3, 10)));
  EXPECT_TRUE(second->covers(access_of(3, 19)));
}

// What a thread's accesses look like to a thread behind the next barrier of the CTA's warps.
class Fences : public ::testing::Test {
 protected:
  static constexpr int32_t kThreads = 64;
  static constexpr uint32_t kBothWarps = 0b11;

  void SetUp() override { order_.reset(kThreads); }
  bool is_fenced(Stamp past) {
    order_.join(kBothWarps);
    return order_.actor(40).clock->covers_fenced(past);
  }

  Ordering order_;
};

TEST_F(Fences, OfAllLanesFenceStoresBefore) {
  const Stamp store = order_.actor(7).stamp;
  for (int32_t lane = 0; lane < 32; ++lane) order_.fence_async(lane);
  EXPECT_TRUE(is_fenced(store));
}

TEST_F(Fences, DoNotFenceStoresBehind) {
  order_.fence_async(7);
  const Stamp store = order_.actor(7).stamp;
  for (int32_t lane = 0; lane < 32; ++lane)
    if (lane != 7) order_.fence_async(lane);
  EXPECT_FALSE(is_fenced(store));
}

TEST_F(Fences, OfAllLanesFenceAStoreOfTheWarpThatALaneAheadStamped) {
  Clock told;
  for (int32_t arrival = 0; arrival < 3; ++arrival) order_.release(7, told);
  const Stamp store = order_.whole_warp(7).stamp;
  for (int32_t lane = 0; lane < 32; ++lane) order_.fence_async(lane);
  EXPECT_TRUE(is_fenced(store));
}

TEST_F(Fences, OfOneLaneDoNotFenceAStoreOfTheWarp) {
  const Stamp store = order_.whole_warp(7).stamp;
  order_.fence_async(7);
  EXPECT_FALSE(is_fenced(store));
}

// Lanes of a warp that acquire the same share what they then know, and those that do not must not.
TEST(Acquisitions, AreOfEachLaneWhatItKnewAndWhatItIsTold) {
  Ordering order;
  order.reset(64);
  Clock first, second;
  const Stamp of_first = order.actor(40).stamp;
  order.release(40, first);
  const Stamp of_second = order.actor(41).stamp;
  order.release(41, second);
  const auto expect_known = [&](int32_t lane, bool knows_first, bool knows_second) {
    EXPECT_EQ(order.actor(lane).clock->covers(of_first), knows_first) << lane;
    EXPECT_EQ(order.actor(lane).clock->covers(of_second), knows_second) << lane;
  };
  for (const int32_t lane : {0, 1}) order.acquire(lane, first, 1);
  for (const int32_t lane : {2, 3, 0}) order.acquire(lane, second, 2);
  order.acquire(4, second, 2);
  expect_known(0, true, true);
  expect_known(1, true, false);
  for (const int32_t lane : {2, 3, 4}) expect_known(lane, false, true);
  expect_known(5, false, false);
}

}  // namespace
}  // namespace moejit::runtime
