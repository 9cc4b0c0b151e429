// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string_view>

namespace moejit::tune {

// What rules a candidate out, however fast it may be.
enum class Fault {
  kDoesNotCompile,
  kSpills,         // keeps registers in memory
  kDoesNotLaunch,  // asks for more than the GPU has, or for what the driver refuses
  kCrashes,        // ends the context: an illegal address, a trap
  kHangs,          // did not end in the time that it was given
  kNotFinite,      // NaN or infinity where the default has numbers
  kChangesBits,    // another result than the default's, which no knob may cause
};

// Returns the name that a journal has for the fault: "changes_bits".
std::string_view to_string(Fault fault);
// Returns the fault of this name; none if there is no such fault.
std::optional<Fault> fault_named(std::string_view name);

}  // namespace moejit::tune
