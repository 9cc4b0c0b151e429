// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string_view>

namespace moejit {

// The candidate that `name` is most likely a misspelling of: fewest letters inserted, left out,
// replaced or swapped with their neighbour; the first of equals. Empty where none is similar.
std::string_view nearest_name(std::string_view name, std::span<const std::string_view> candidates);

}  // namespace moejit
