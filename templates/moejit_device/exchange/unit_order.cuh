// SPDX-License-Identifier: Apache-2.0
#pragma once

// The order in which the CTAs of a rank send and receive in one kernel.
//
// Sending is bound by the wire and what follows receiving by memory, so CTAs do both by turns. All
// work is one list of units, which the CTAs take in turn. It begins with units that send, about as
// many as there are CTAs; then each chunk that is sent is followed by one that is received; at the
// end come the chunks that are left to receive. A unit that receives waits for units of other ranks
// that send, and these come earlier in the list, which is the same on all ranks: the first unit of
// all that is not done can always go on. For that all CTAs of a rank have to run at the same time.

#include "moejit_device/core/integer.cuh"

namespace moejit::device {

struct ExchangeUnit {
  int64_t chunk;
  int32_t place;  // among the units that send the chunk, or among those that receive it
  bool sends;
};

// A chunk is sent by kSends units and received by kReceives.
template <int32_t kSends, int32_t kReceives, int32_t kChunks>
class UnitOrder {
  static constexpr int32_t kTurn = kSends + kReceives;

 public:
  static constexpr int64_t kUnits = int64_t{kTurn} * kChunks;

  MOEJIT_DEVICE explicit UnitOrder(int64_t ctas)
      : lead_(smaller(ceil_div(ctas, int64_t{kSends}), int64_t{kChunks})) {}

  // Returns the unit at a place of the list, 0 to kUnits - 1.
  MOEJIT_DEVICE ExchangeUnit unit(int64_t index) const {
    const int64_t begin = lead_ * kSends, turns = kChunks - lead_;
    if (index < begin) return at(index, kSends, true);
    const int64_t turn = (index - begin) / kTurn;
    if (turn >= turns) return at(index - int64_t{kSends} * kChunks, kReceives, false);
    const auto place = static_cast<int32_t>(index - begin - turn * kTurn);
    return place < kSends ? ExchangeUnit{lead_ + turn, place, true}
                          : ExchangeUnit{turn, place - kSends, false};
  }

 private:
  MOEJIT_DEVICE static ExchangeUnit at(int64_t index, int32_t units, bool sends) {
    const int64_t chunk = index / units;
    return {chunk, static_cast<int32_t>(index - chunk * units), sends};
  }

  int64_t lead_;  // chunks that are sent before the first one is received
};

}  // namespace moejit::device
