// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string_view>

namespace moejit::tune {

// A reason to rule a candidate out, however fast it may be.
enum class Fault {
  kDoesNotCompile,
  kSpills,         // keeps values of registers in memory
  kDoesNotLaunch,  // asks for more than the GPU has, or the driver refuses it
  kCrashes,        // ends the context: an illegal address, a trap
  kHangs,          // did not end within its time limit
  kNotFinite,      // NaN or infinity where the default has numbers
  kChangesBits,    // gives another result than the default, which no knob may cause
};

// Returns the fault's name in journals: "changes_bits".
std::string_view to_string(Fault fault);
// Returns the fault with this name; none if there is none.
std::optional<Fault> fault_named(std::string_view name);

}  // namespace moejit::tune
