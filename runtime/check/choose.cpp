// SPDX-License-Identifier: Apache-2.0
#include "runtime/check/choose.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace moejit::check {

std::vector<int64_t> choose(const reference::RandomStream& random, int64_t wanted, int64_t count) {
  std::vector<int64_t> chosen = {0, count - 1};
  for (int64_t i = 2; i < wanted; ++i)
    chosen.push_back(random.below(static_cast<uint64_t>(i), count));
  chosen.resize(static_cast<size_t>(wanted));
  return chosen;
}

std::vector<int64_t> choose_affordable(const reference::RandomStream& random, double affordable,
                                       int64_t count) {
  if (affordable < static_cast<double>(count))
    return choose(random, std::max<int64_t>(2, std::llround(affordable)), count);
  std::vector<int64_t> all(static_cast<size_t>(count));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

}  // namespace moejit::check
