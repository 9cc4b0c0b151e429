// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/support/error.h"

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace moejit {

// Every environment variable that moejit reads. No other file reads the environment.
enum class Variable {
  kCacheDir,
  kCacheMaxBytes,
  kCacheMaxFiles,
  kCacheNetwork,
  kPacks,
  kPackKeys,
  kTuning,
  kNvrtc,
  kCudaDriver,
  kCheckPointers,
  kSerialLaunches,
  kCxx,
  kDisassembler,
  kFrozen,
  kRunDir,
  kLockSeconds,
  kCompileJobs,
  kCompileWorker,
  kReproducerDir,
  kXdgCacheHome,
  kXdgRuntimeDir,
  kHome,
  kCudaHome,
  kCudaPath,
  kTmpdir,
  kPath,
};

struct VariableInfo {
  Variable variable;
  std::string_view name;           // as in the environment
  std::string_view meaning;        // one phrase
  std::string_view default_value;  // what holds if it is not set, in words
};

// Returns the table of all variables, in the order of the enumeration.
std::span<const VariableInfo> variables();

std::string_view name_of(Variable variable);

// Returns the value of a variable; none if it is not set or empty.
std::optional<std::string> environment(Variable variable);

// Returns whether a variable that is a switch is on: 1, true, yes or on, in any case. It is off if
// it is not set, 0, false, no or off. Error kInvalidValue for anything else: a switch guards
// something, so what is not understood must not count as off.
Result<bool> is_switched_on(Variable variable);

}  // namespace moejit
