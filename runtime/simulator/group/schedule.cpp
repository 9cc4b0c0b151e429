// SPDX-License-Identifier: Apache-2.0
#include "runtime/simulator/group/schedule.h"

#include <algorithm>
#include <numeric>

namespace moejit::runtime {
namespace {

// In one turn of so many a rank begins to stand still, for at most so many turns.
constexpr uint32_t kStillOdds = 64;
constexpr uint32_t kLongestStill = 300;

}  // namespace

Schedule::Schedule(RanksState& state, int32_t ranks, int32_t sm_count, uint64_t seed)
    : state_(state), random_(seed), ranks_(static_cast<std::size_t>(ranks)) {
  for (Rank& rank : ranks_) rank.free_parts = int64_t{sm_count} * kSmParts;
}

Schedule::~Schedule() = default;

void Schedule::enqueue(int32_t rank, void* handle, StreamItem item) {
  auto stream = std::ranges::find_if(streams_, [&](const RankStream& other) {
    return other.rank == rank && other.handle == handle;
  });
  if (stream == streams_.end()) {
    streams_.push_back(
        {.rank = rank, .index = static_cast<int32_t>(streams_.size()), .handle = handle});
    stream = std::prev(streams_.end());
  }
  if (item.launch != nullptr) item.launch->serial = ++serial_;
  stream->items.push_back(std::move(item));
}

bool Schedule::is_idle(int32_t rank) const {
  return std::ranges::all_of(streams_, [&](const RankStream& stream) {
    const bool is_wanted = rank < 0 ? !is_dead(stream.rank) : stream.rank == rank;
    return !is_wanted || stream.items.empty();
  });
}

void Schedule::add_finished_to(int32_t rank, WorldClock& clock) const {
  for (const RankStream& stream : streams_) {
    if (rank < 0 || stream.rank == rank) clock.join(stream.clock);
  }
}

void Schedule::kill(int32_t rank, int64_t parts) {
  ranks_[static_cast<std::size_t>(rank)].parts_left = parts;
}

std::optional<std::string> Schedule::run(int32_t rank) {
  while (!is_idle(rank)) {
    stand_still();
    let_stores_arrive();
    if (end_launches() || start_items() || place_ctas()) continue;
    if (is_out_of_memory_) return "no address space for simulated threads";
    choices_.clear();
    for (std::size_t i = 0; i < residents_.size(); ++i) {
      const Rank& owner = rank_of(*residents_[i].stream);
      if (owner.parts_left != 0 && owner.still_until <= turn_ &&
          residents_[i].cta->is_anybody_ready()) {
        choices_.push_back(i);
      }
    }
    if (!choices_.empty()) {
      if (std::optional<std::string> report = take_turn()) return report;
    } else if (!get_going()) {
      return describe_dead_lock();
    }
    ++turn_;
  }
  return std::nullopt;
}

// Does the simulator's own work at the heads of the streams, and starts launches there. Returns
// whether there was any.
bool Schedule::start_items() {
  bool is_any = false;
  for (RankStream& stream : streams_) {
    if (stream.items.empty() || is_dead(stream.rank)) continue;
    StreamItem& item = stream.items.front();
    if (item.launch != nullptr && item.launch->has_started()) continue;
    if (item.meeting != nullptr) {
      is_any |= meet(stream, item);
      continue;
    }
    is_any = true;
    stream.clock.join(*item.host);
    if (item.launch != nullptr) {
      start_launch(stream, *item.launch);
      continue;
    }
    item.work();
    stream.items.pop_front();
    ++stream.position;
  }
  return is_any;
}

// Lets a rank arrive at the meeting at the head of its stream, and go on once all have arrived.
// Returns whether either happened.
bool Schedule::meet(RankStream& stream, StreamItem& item) {
  const bool comes = !item.has_come;
  if (comes) {
    item.has_come = true;
    stream.clock.join(*item.host);
    item.meeting->come(stream.clock);
  }
  if (!item.meeting->is_over()) return comes;
  stream.clock.join(item.meeting->clock());
  stream.clock.prune(state_.runs);
  stream.items.pop_front();
  ++stream.position;
  return true;
}

void Schedule::start_launch(RankStream& stream, RankLaunch& launch) {
  stream.clock.prune(state_.runs);
  launch.base = std::make_shared<const WorldClock>(stream.clock);
  launch.end = stream.clock;
  const Launch& what = launch.prepared->launch;
  launch.order.resize(static_cast<std::size_t>(what.ctas / what.cluster_ctas));
  std::iota(launch.order.begin(), launch.order.end(), 0);
  for (std::size_t i = launch.order.size(); i > 1; --i) {
    std::swap(launch.order[i - 1], launch.order[random_.below(static_cast<uint32_t>(i))]);
  }
}

// Makes CTAs resident where there is room; an earlier launch of the rank goes first.
bool Schedule::place_ctas() {
  bool is_any = false;
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    if (is_dead(static_cast<int32_t>(rank))) continue;
    for (;;) {
      RankStream* next = nullptr;
      for (RankStream& stream : streams_) {
        if (stream.rank != static_cast<int32_t>(rank) || stream.items.empty()) continue;
        const RankLaunch* launch = stream.items.front().launch.get();
        if (launch == nullptr || launch->placed == launch->order.size()) continue;
        if (next == nullptr || launch->serial < next->items.front().launch->serial) next = &stream;
      }
      if (next == nullptr || !place(*next, *next->items.front().launch)) break;
      is_any = true;
    }
  }
  return is_any;
}

bool Schedule::place(RankStream& stream, RankLaunch& launch) {
  Rank& rank = rank_of(stream);
  if (rank.free_parts < launch.sm_parts) return false;
  std::unique_ptr<Cta> cta = pool_.take();
  if (cta == nullptr) {
    is_out_of_memory_ = true;
    return false;
  }
  rank.free_parts -= launch.sm_parts;
  const Launch& what = launch.prepared->launch;
  const int32_t first = launch.order[launch.placed++] * what.cluster_ctas;
  const auto run = static_cast<uint32_t>(state_.runs.size());
  state_.runs.push_back(
      {stream.index, stream.position, stream.rank, first, std::string(what.kernel)});
  constexpr uint32_t kPauseOdds[] = {0, 4, 30, 200};
  cta->begin(
      what, first,
      std::make_unique<RankCta>(state_, stream.rank, CtaKnowledge(state_.runs, run, launch.base),
                                what.threads * what.cluster_ctas, kPauseOdds[random_.below(4)]));
  residents_.push_back({std::move(cta), &stream, &launch});
  return true;
}

// Runs one of the CTAs that can go on. Returns its report, if any.
std::optional<std::string> Schedule::take_turn() {
  const std::size_t index = choices_[random_.below(static_cast<uint32_t>(choices_.size()))];
  Resident& chosen = residents_[index];
  Rank& rank = rank_of(*chosen.stream);
  if (rank.parts_left > 0) --rank.parts_left;
  switch (chosen.cta->go_on()) {
    case Cta::Part::kEnded: end_cta(index); break;
    case Cta::Part::kReported: return chosen.cta->take_report();
    case Cta::Part::kSetAside: break;
  }
  return std::nullopt;
}

void Schedule::end_cta(std::size_t index) {
  Resident ended = std::move(residents_[index]);
  residents_[index] = std::move(residents_.back());
  residents_.pop_back();
  const std::unique_ptr<RankCta> rank = ended.cta->take_rank();
  rank->knowledge.add_all_to(ended.launch->end);
  ended.launch->late.take_from(rank->stores);
  rank_of(*ended.stream).free_parts += ended.launch->sm_parts;
  pool_.give_back(std::move(ended.cta));
  state_.flags.count_change();
  ++ended.launch->ended;
}

// Ends launches whose CTAs have ended and whose stores have arrived. What follows on the stream
// sees all that they did. Returns whether there was one.
bool Schedule::end_launches() {
  bool is_any = false;
  for (RankStream& stream : streams_) {
    if (stream.items.empty() || stream.items.front().launch == nullptr || is_dead(stream.rank)) {
      continue;
    }
    const RankLaunch& launch = *stream.items.front().launch;
    if (!launch.has_started() || !launch.is_over()) continue;
    stream.clock.join(launch.end);
    stream.items.pop_front();
    stream.clock.add_launches(stream.index, ++stream.position);
    stream.clock.prune(state_.runs);
    is_any = true;
  }
  return is_any;
}

void Schedule::stand_still() {
  if (random_.below(kStillOdds) != 0) return;
  Rank& rank = ranks_[random_.below(static_cast<uint32_t>(ranks_.size()))];
  rank.still_until = turn_ + random_.below(kLongestStill);
}

// Lets some of the stores to peers' memory arrive, in any order.
void Schedule::let_stores_arrive() {
  const auto land = [&](const PeerStore& store) { state_.land(store); };
  for (Resident& resident : residents_) {
    if (random_.below(8) == 0) resident.cta->rank()->stores.land_one(random_, land);
  }
  for (RankStream& stream : streams_) {
    if (stream.items.empty() || stream.items.front().launch == nullptr) continue;
    if (random_.below(8) == 0) stream.items.front().launch->late.land_one(random_, land);
  }
}

}  // namespace moejit::runtime
