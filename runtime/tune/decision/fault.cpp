// SPDX-License-Identifier: Apache-2.0
#include "runtime/tune/decision/fault.h"

namespace moejit::tune {

std::string_view to_string(Fault fault) {
  switch (fault) {
    case Fault::kDoesNotCompile: return "does_not_compile";
    case Fault::kSpills: return "spills";
    case Fault::kDoesNotLaunch: return "does_not_launch";
    case Fault::kCrashes: return "crashes";
    case Fault::kHangs: return "hangs";
    case Fault::kNotFinite: return "not_finite";
    case Fault::kChangesBits: return "changes_bits";
  }
  return "unknown";
}

std::optional<Fault> fault_named(std::string_view name) {
  for (const Fault fault : {Fault::kDoesNotCompile, Fault::kSpills, Fault::kDoesNotLaunch,
                            Fault::kCrashes, Fault::kHangs, Fault::kNotFinite, Fault::kChangesBits})
    if (to_string(fault) == name) return fault;
  return std::nullopt;
}

}  // namespace moejit::tune
