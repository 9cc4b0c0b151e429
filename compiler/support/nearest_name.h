// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string_view>

namespace moejit {

// Returns the candidate that `name` most likely misspells. It has the fewest letters inserted, left
// out, replaced or swapped with a neighbor, and is the first of equals. Empty if none is similar.
std::string_view nearest_name(std::string_view name, std::span<const std::string_view> candidates);

}  // namespace moejit
