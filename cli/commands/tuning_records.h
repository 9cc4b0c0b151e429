// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/commands/commands.h"
#include "compiler/tuning.h"
#include "runtime/device.h"

#include <memory>
#include <string>

namespace moejit::cli {

// Reads the records that a command plans with: those that it names, or those of MOEJIT_TUNING.
// Returns null if there are none. With a device, plans are for its GPU. Errors: those of
// compiler::read_tunings().
Result<std::unique_ptr<const compiler::Tuning>> read_tuning_records(
    const TuningOptions& options, const runtime::Device* device = nullptr);

// Returns the facts by which records know the device's GPU, with its power limit if NVML tells it;
// none for the simulator.
std::optional<compiler::GpuIdentity> gpu_identity(const runtime::Device& device);

// Returns the options as words of another command line, with a blank in front; empty for none.
std::string tuning_words(const TuningOptions& options);

}  // namespace moejit::cli
