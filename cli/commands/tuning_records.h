// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/tuning.h"
#include "runtime/device.h"

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace moejit::cli {

// The tuning records that plans are made with.
struct TuningOptions {
  std::vector<std::string> records;  // empty: those of MOEJIT_TUNING
  bool is_used = true;
};

// Reads the records that a command plans with: those that it names, or those of MOEJIT_TUNING.
// Returns null if there are none. With a device, plans are for its GPU. Errors: those of
// compiler::read_tunings().
Result<std::unique_ptr<const compiler::Tuning>> read_tuning_records(
    const TuningOptions& options, const runtime::Device* device = nullptr);

// Returns the options as words of another command line, with a blank in front; empty for none.
std::string tuning_words(const TuningOptions& options);

}  // namespace moejit::cli
