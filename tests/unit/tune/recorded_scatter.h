// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/tune/decision/journal.h"
#include "runtime/tune/decision/race.h"
#include "tests/support/matchers.h"

#include <cmath>
#include <gtest/gtest.h>
#include <map>
#include <random>
#include <string>
#include <vector>

// A sweep of 20 grouped GEMMs that was recorded on an H200 at 700 W in rounds without inner blocks
// of the default, with short names: problem "3" is the third one (9 and 14 are left out), choice
// "v" the place of a candidate in its list. 19 and 20 are memory-bound and below the power limit.
namespace moejit::tune {

inline Journal recorded_sweep() {
  auto journal = read_journal(MOEJIT_SOURCE_DIR "/tests/unit/tune/data/h200_sweep.journal");
  EXPECT_TRUE(testing::succeeded(journal));
  return journal ? std::move(*journal) : Journal{};
}

// Returns how far the times of single blocks were off, as logarithms, for each problem: of two
// blocks of the default in a round the difference's size over sqrt(2), so that the variance is that
// of one block. What the blocks' places in the round did is part of it.
inline std::map<std::string, std::vector<double>> recorded_scatter() {
  std::map<std::string, std::vector<double>> scatter;
  double first_us = 0.0;
  for (const Entry& entry : recorded_sweep().entries) {
    const auto* const block = std::get_if<Block>(&entry.event);
    if (block == nullptr) continue;
    if (block->place == Place::kDefaultFirst) first_us = block->microseconds;
    if (block->place == Place::kDefaultLast)
      scatter[entry.problem].push_back(std::abs(std::log(block->microseconds / first_us)) /
                                       std::sqrt(2.0));
  }
  return scatter;
}

// Times rounds on a GPU that scatters as one problem did: each block is off by a recorded
// deviation, up or down.
class RecordedGpu {
 public:
  RecordedGpu(uint64_t seed, const std::vector<double>& scatter)
      : random_(seed), scatter_(&scatter) {}

  // Returns a round in which a candidate takes speeds[candidate] of the default's time. The first
  // blocks of the round take places[0], places[1], ... of what they would take elsewhere.
  Round round(const Race& race, const std::vector<double>& speeds,
              const std::vector<double>& places = {}) {
    std::vector<int32_t> order = race.racing();
    order.insert(order.end(), static_cast<std::size_t>(default_places(order.size())), 0);
    for (std::size_t i = order.size() - 1; i > 0; --i)
      std::swap(order[i], order[random_() % (i + 1)]);
    std::size_t place = 0;
    const auto time = [&](int32_t candidate) {
      const double factor = place < places.size() ? places[place] : 1.0;
      ++place;
      return factor * speeds[static_cast<std::size_t>(candidate)] * draw();
    };
    Round round;
    round.default_first_us = time(0);
    for (const int32_t candidate : order)
      if (candidate == 0)
        round.default_inner_us.push_back(time(0));
      else
        round.candidates_us[candidate] = time(candidate);
    round.default_last_us = time(0);
    return round;
  }

 private:
  double draw() {
    const double deviation = (*scatter_)[random_() % scatter_->size()];
    return 100.0 * std::exp(random_() % 2 == 0 ? deviation : -deviation);
  }

  std::mt19937_64 random_;
  const std::vector<double>* scatter_;
};

}  // namespace moejit::tune
