// SPDX-License-Identifier: Apache-2.0
//
// The parts of a simulated group by themselves: what is before what, stores on their way, time.

#include "runtime/simulator/group/ranks_state.h"
#include "runtime/simulator/group/symmetric_memory.h"
#include "runtime/simulator/group/world_clock.h"

#include <algorithm>
#include <gtest/gtest.h>

namespace moejit::runtime {
namespace {

AccessRecord access_of(uint32_t run, int32_t thread, uint32_t epoch) {
  return {.stamp = make_stamp(thread, epoch), .site = {}, .run = run, .bytes = 0xf};
}

// Runs of three CTAs: two of launches 0 and 1 of stream 0, one of stream 1.
std::vector<CtaRun> three_runs() {
  return {{}, {0, 0, 0, 5, "first"}, {0, 1, 0, 6, "second"}, {1, 0, 1, 7, "third"}};
}

TEST(WorldClock, KnowsWholeLaunches) {
  const auto runs = three_runs();
  WorldClock clock;
  EXPECT_FALSE(clock.covers(runs[1], access_of(1, 0, 1)));
  clock.add_launches(0, 1);
  EXPECT_TRUE(clock.covers(runs[1], access_of(1, 0, 1)));
  EXPECT_FALSE(clock.covers(runs[2], access_of(2, 0, 1)));
  EXPECT_FALSE(clock.covers(runs[3], access_of(3, 0, 1)));
}

TEST(WorldClock, KnowsAPartOfACta) {
  const auto runs = three_runs();
  Clock part;
  part.add_thread(9, 4);
  WorldClock first;
  first.add_run(3, part);
  WorldClock second;
  second.join(first);
  EXPECT_TRUE(second.covers(runs[3], access_of(3, 9, 3)));
  EXPECT_FALSE(second.covers(runs[3], access_of(3, 9, 4)));
  EXPECT_FALSE(second.covers(runs[3], access_of(3, 8, 3)));
  EXPECT_FALSE(second.covers(runs[2], access_of(2, 9, 3)));
}

TEST(WorldClock, DropsPartsOfLaunchesThatItKnowsAsAWhole) {
  const auto runs = three_runs();
  Clock part;
  part.add_thread(9, 4);
  WorldClock clock;
  clock.add_run(2, part);
  clock.add_run(3, part);
  clock.add_launches(0, 2);
  clock.prune(runs);
  EXPECT_TRUE(clock.covers(runs[2], access_of(2, 0, 99)));
  EXPECT_TRUE(clock.covers(runs[3], access_of(3, 9, 3)));
}

TEST(CtaKnowledge, PassesAnAcquisitionToThreadsBehindABarrier) {
  const auto runs = three_runs();
  CtaKnowledge knowledge(runs, 3, std::make_shared<const WorldClock>());
  Clock part;
  part.add_thread(9, 4);
  WorldClock told;
  told.add_run(1, part);
  Clock nothing;
  const Actor acquirer{make_stamp(0, 7), &nothing};
  knowledge.acquire(acquirer, told);
  Clock behind;
  behind.add_thread(0, 8);
  EXPECT_TRUE(knowledge.knows(access_of(1, 9, 3), acquirer));
  EXPECT_TRUE(knowledge.knows(access_of(1, 9, 3), {make_stamp(40, 2), &behind}));
  EXPECT_FALSE(knowledge.knows(access_of(1, 9, 3), {make_stamp(40, 2), &nothing}));
  EXPECT_FALSE(knowledge.knows(access_of(1, 9, 4), acquirer));
}

TEST(PeerStores, ArriveInOrderWhereTheyOverlap) {
  Random random(1);
  PeerStores stores;
  std::vector<uintptr_t> landed;
  const auto land = [&](const PeerStore& store) { landed.push_back(store.address); };
  stores.add(64, 16, 0, random, land);
  stores.add(128, 16, 0, random, land);
  EXPECT_TRUE(landed.empty());
  stores.add(72, 4, 0, random, land);
  EXPECT_EQ(landed, std::vector<uintptr_t>{64});
  stores.land_if([](const PeerStore&) { return true; }, land);
  std::ranges::sort(landed);
  EXPECT_EQ(landed, (std::vector<uintptr_t>{64, 72, 128}));
  EXPECT_TRUE(stores.is_empty());
}

TEST(PeerStores, ArriveWhereTheyAreTooMany) {
  Random random(1);
  PeerStores stores;
  std::size_t landed = 0;
  for (std::size_t i = 0; i < 3 * PeerStores::kMost; ++i) {
    stores.add(16 * i, 16, 0, random, [&](const PeerStore&) { ++landed; });
  }
  EXPECT_EQ(landed, 2 * PeerStores::kMost);
}

TEST(VirtualTime, GoesToTheDeadline) {
  VirtualTime time;
  const uint64_t begin = time.now();
  EXPECT_TRUE(time.pass(begin + 70'000, false));
  EXPECT_EQ(time.now(), begin + 70'000);
}

TEST(VirtualTime, TakesLongerStepsUntilSomethingHappens) {
  VirtualTime time;
  const uint64_t begin = time.now();
  EXPECT_TRUE(time.pass(0, true));
  EXPECT_TRUE(time.pass(0, true));
  EXPECT_EQ(time.now(), begin + 3000);
  EXPECT_TRUE(time.pass(begin + 3500, true));
  EXPECT_EQ(time.now(), begin + 3500);
  time.something_happened();
  EXPECT_TRUE(time.pass(0, true));
  EXPECT_EQ(time.now(), begin + 4500);
}

TEST(VirtualTime, EndsAfterAnHourWithoutEvents) {
  VirtualTime time;
  int32_t steps = 0;
  while (time.pass(0, true)) ++steps;
  EXPECT_GT(steps, 30);
  EXPECT_LT(steps, 40);
  time.something_happened();
  EXPECT_TRUE(time.pass(0, true));
}

// Memory of two ranks and a thread of each of two CTAs that know nothing of each other.
class SymmetricMemoryTest : public testing::Test {
 protected:
  Accessor by(uint32_t run) {
    return {run == 1 ? first_ : second_, {make_stamp(0, 1), &clock_}, {}};
  }
  uintptr_t at(int64_t byte) const { return reinterpret_cast<uintptr_t>(memory_->heap(1)) + byte; }
  static bool is(const std::optional<Trouble>& trouble, Trouble::Kind kind) {
    return trouble && trouble->kind == kind;
  }

  std::unique_ptr<SymmetricMemory> memory_ = SymmetricMemory::create(2, 5000);
  std::vector<CtaRun> runs_ = three_runs();
  Clock clock_;
  CtaKnowledge first_{runs_, 1, std::make_shared<const WorldClock>()};
  CtaKnowledge second_{runs_, 3, std::make_shared<const WorldClock>()};
};

TEST_F(SymmetricMemoryTest, KnowsWhoseItIs) {
  EXPECT_EQ(memory_->heap_bytes(), 8192);
  EXPECT_EQ(memory_->owner_of(at(0)), 1);
  EXPECT_EQ(memory_->owner_of(at(-4097)), 0);
  EXPECT_TRUE(memory_->holds(at(8191)));
  EXPECT_FALSE(memory_->holds(at(8192 + 4096)));
  EXPECT_FALSE(memory_->holds(0));
}

TEST_F(SymmetricMemoryTest, ReportsWhatWasNeverWrittenOrHasExpired) {
  EXPECT_TRUE(is(memory_->read(at(8), 4, by(1)), Trouble::Kind::kUnwritten));
  EXPECT_FALSE(memory_->write(at(0), 16, by(1)));
  EXPECT_TRUE(is(memory_->read(at(8), 4, by(1)), Trouble::Kind::kStale));  // it has not arrived
  memory_->mark_landed(at(0), 16);
  EXPECT_FALSE(memory_->read(at(8), 4, by(1)));
  memory_->expire(at(4), 7);
  EXPECT_FALSE(memory_->read(at(0), 4, by(1)));
  EXPECT_TRUE(is(memory_->read(at(8), 4, by(1)), Trouble::Kind::kStale));
  EXPECT_FALSE(memory_->read(at(11), 1, by(1)));
}

TEST_F(SymmetricMemoryTest, ReportsAccessesWithoutOrder) {
  EXPECT_FALSE(memory_->write(at(0), 16, by(1)));
  memory_->mark_landed(at(0), 16);
  EXPECT_TRUE(is(memory_->read(at(12), 4, by(3)), Trouble::Kind::kWritten));
  EXPECT_TRUE(is(memory_->write(at(12), 4, by(3)), Trouble::Kind::kWritten));
  EXPECT_TRUE(is(memory_->update(at(12), 4, by(3)), Trouble::Kind::kWritten));
  memory_->write_by_host(at(0), 16);
  EXPECT_FALSE(memory_->read(at(12), 4, by(3)));
  EXPECT_TRUE(is(memory_->write(at(0), 16, by(1)), Trouble::Kind::kRead));
}

TEST_F(SymmetricMemoryTest, TellsBytesOfAWordApart) {
  EXPECT_FALSE(memory_->write(at(0), 2, by(1)));
  EXPECT_TRUE(is(memory_->write(at(1), 1, by(3)), Trouble::Kind::kWritten));
  EXPECT_FALSE(memory_->write(at(2), 2, by(3)));
}

TEST_F(SymmetricMemoryTest, LetsFlagsBeWrittenByAnybody) {
  memory_->write_flag(at(0), by(1));
  memory_->write_flag(at(0), by(3));
  EXPECT_FALSE(memory_->find_unwritten(at(0), 4));
  EXPECT_TRUE(is(memory_->read(at(0), 4, by(1)), Trouble::Kind::kWritten));
}

}  // namespace
}  // namespace moejit::runtime
