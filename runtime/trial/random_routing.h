// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string_view>

namespace moejit::trial {

// How often random tokens choose each expert.
enum class RandomRouting {
  kSkewed,   // popularity falls like 1 / rank over a random order of the experts
  kUniform,  // all experts alike
};

constexpr std::string_view to_string(RandomRouting routing) {
  return routing == RandomRouting::kUniform ? "uniform" : "skewed";
}

// Returns ", uniform routing" for the first line of a report; nothing for the usual routing, and
// where nothing is routed at random.
constexpr std::string_view routing_text(std::optional<RandomRouting> routing) {
  return routing == RandomRouting::kUniform ? ", uniform routing" : "";
}

}  // namespace moejit::trial
