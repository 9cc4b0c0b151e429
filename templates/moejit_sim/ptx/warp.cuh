// SPDX-License-Identifier: Apache-2.0
#pragma once

// Simulator's version of moejit_device/ptx/warp.cuh. The last lane to come serves all 32.

#include "moejit_device/ptx/thread.cuh"

namespace moejit::device::ptx {

struct ShuffleLane {
  uint64_t value;
  uint64_t result;
  int32_t source;
};

template <typename T>
MOEJIT_DEVICE T shuffle_from(T value, int32_t source, Collective collective, Site site) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8, "shuffles move 4 or 8 bytes");
  ShuffleLane own{0, 0, source};
  __builtin_memcpy(&own.value, &value, sizeof(T));
  Machine* m = machine();
  if (m->calls->meet(m, collective, &own, site)) {
    for (int32_t lane = 0; lane < sim::kWarpLanes; ++lane) {
      auto* receiver = static_cast<ShuffleLane*>(m->lanes[lane]);
      receiver->result = static_cast<ShuffleLane*>(m->lanes[receiver->source])->value;
    }
    m->calls->part(m);
  }
  __builtin_memcpy(&value, &own.result, sizeof(T));
  return value;
}

// The hardware takes lane numbers modulo 32.
template <typename T>
MOEJIT_DEVICE T shuffle(T value, int32_t source, Site site = Site::here()) {
  return shuffle_from(value, source & 31, Collective::kShuffle, site);
}

template <typename T>
MOEJIT_DEVICE T shuffle_xor(T value, int32_t mask, Site site = Site::here()) {
  Machine* m = machine();
  if (mask < 0 || mask > 31) m->calls->invalid(m, "lane mask of shuffle_xor", mask, site);
  return shuffle_from(value, lane_index() ^ mask, Collective::kShuffleXor, site);
}

template <typename T>
MOEJIT_DEVICE T shuffle_up(T value, int32_t distance, Site site = Site::here()) {
  Machine* m = machine();
  if (distance < 0 || distance > 31) {
    m->calls->invalid(m, "distance of shuffle_up", distance, site);
  }
  const int32_t lane = lane_index();
  const int32_t source = lane >= distance ? lane - distance : lane;
  return shuffle_from(value, source, Collective::kShuffleUp, site);
}

struct VoteLane {
  int32_t value;
  uint32_t result;
};

MOEJIT_DEVICE uint32_t ballot(bool predicate, Site site = Site::here()) {
  VoteLane own{predicate ? 1 : 0, 0};
  Machine* m = machine();
  if (m->calls->meet(m, Collective::kBallot, &own, site)) {
    uint32_t bits = 0;
    for (int32_t lane = 0; lane < sim::kWarpLanes; ++lane) {
      bits |= static_cast<uint32_t>(static_cast<VoteLane*>(m->lanes[lane])->value) << lane;
    }
    for (int32_t lane = 0; lane < sim::kWarpLanes; ++lane) {
      static_cast<VoteLane*>(m->lanes[lane])->result = bits;
    }
    m->calls->part(m);
  }
  return own.result;
}

MOEJIT_DEVICE uint32_t match_any(int32_t value, Site site = Site::here()) {
  VoteLane own{value, 0};
  Machine* m = machine();
  if (m->calls->meet(m, Collective::kMatchAny, &own, site)) {
    int32_t values[sim::kWarpLanes];
    for (int32_t lane = 0; lane < sim::kWarpLanes; ++lane) {
      values[lane] = static_cast<VoteLane*>(m->lanes[lane])->value;
    }
    for (int32_t lane = 0; lane < sim::kWarpLanes; ++lane) {
      uint32_t bits = 0;
      for (int32_t other = 0; other < sim::kWarpLanes; ++other) {
        bits |= static_cast<uint32_t>(values[other] == values[lane]) << other;
      }
      static_cast<VoteLane*>(m->lanes[lane])->result = bits;
    }
    m->calls->part(m);
  }
  return own.result;
}

MOEJIT_DEVICE int32_t population_count(uint32_t bits) { return __builtin_popcount(bits); }

}  // namespace moejit::device::ptx
