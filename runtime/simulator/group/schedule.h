// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/simulator/group/rank_launch.h"
#include "runtime/simulator/prepared_launch.h"

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace moejit::runtime {

// Runs the launches of all ranks of a group. It takes one CTA after the other, at random, and lets
// it run until it waits or is set aside. Now and then a rank stands still, so that the others get
// as far ahead as the kernels let them.
//
// The CTAs of a rank are resident from their start to their end, as many as its SMs hold. The
// others wait for room, in the order of the launches.
class Schedule {
 public:
  Schedule(RanksState& state, int32_t ranks, int32_t sm_count, uint64_t seed);
  ~Schedule();

  void enqueue(int32_t rank, void* stream, StreamItem item);
  // Runs until the streams of a rank, or with -1 of all ranks that live, are empty. Returns a
  // sentence about the first rule that was broken, or about a dead-lock.
  std::optional<std::string> run(int32_t rank);
  bool is_idle(int32_t rank) const;
  // Adds what finished launches of a rank did, or with -1 finished launches of all ranks.
  void add_finished_to(int32_t rank, WorldClock& clock) const;
  bool is_dead(int32_t rank) const {
    return ranks_[static_cast<std::size_t>(rank)].parts_left == 0;
  }
  void kill(int32_t rank, int64_t parts);
  uint64_t seed_of_next_launch() { return random_.next(); }

 private:
  struct Resident {
    std::unique_ptr<Cta> cta;
    RankStream* stream = nullptr;
    RankLaunch* launch = nullptr;
  };
  struct Rank {
    int64_t free_parts = 0;
    uint64_t still_until = 0;  // turn
    int64_t parts_left = -1;   // until it dies; negative: it does not
  };
  Rank& rank_of(const RankStream& stream) { return ranks_[static_cast<std::size_t>(stream.rank)]; }

  bool start_items();
  bool meet(RankStream& stream, StreamItem& item);
  void start_launch(RankStream& stream, RankLaunch& launch);
  bool place_ctas();
  bool place(RankStream& stream, RankLaunch& launch);
  std::optional<std::string> take_turn();
  void end_cta(std::size_t index);
  bool end_launches();
  void stand_still();
  void let_stores_arrive();
  bool get_going();
  bool land_one_late_store();
  std::string describe_dead_lock() const;

  RanksState& state_;
  Random random_;
  CtaPool pool_;
  std::vector<Rank> ranks_;
  std::deque<RankStream> streams_;
  std::vector<Resident> residents_;
  std::vector<std::size_t> choices_;  // residents that can go on
  uint64_t turn_ = 0;
  uint64_t serial_ = 0;
  uint64_t seen_changes_ = 0;
  int32_t idle_rounds_ = 0;
  bool is_out_of_memory_ = false;
};

}  // namespace moejit::runtime
