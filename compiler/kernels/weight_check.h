// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace moejit::compiler {

// Looks whether w1 [E, w1_rows, hidden] and w2 [E, hidden, intermediate] have changed since the
// last launch. It looks at 64 bytes, a probe, of each window of `window_probes` probes.
struct WeightCheckSpec {
  int32_t local_experts = 0;
  int32_t w1_rows = 0;
  int32_t hidden = 0;
  int32_t intermediate = 0;
  int32_t window_probes = 1;
  int32_t threads = 256;
  bool operator==(const WeightCheckSpec&) const = default;
};

// Returns the check of such weights. Small weights are looked at whole, larger ones at as many
// places as take a few microseconds.
WeightCheckSpec weight_check(int32_t local_experts, int32_t w1_rows, int32_t hidden,
                             int32_t intermediate);

// Returns the words of the digest that a check keeps.
int64_t digest_words(const WeightCheckSpec& spec);

std::string to_string(const WeightCheckSpec& spec);

}  // namespace moejit::compiler
