// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/commands/kernel_commands.h"
#include "cli/commands/layer_file.h"
#include "runtime/trial/devices.h"

#include <memory>
#include <optional>
#include <string_view>
#include <vector>

namespace moejit::cli {

// Plans of a description, and the devices that they were made for.
struct OpenedPlans {
  std::unique_ptr<trial::Devices> devices;
  std::vector<compiler::Plan> plans;  // of each rank of a group, else one
  std::optional<TuningUse> tuning;    // of each plan, if there were records
};

// Checks --ranks and --pass against what the file describes: error kUsage.
Result<void> check_description(const TrialCommand& command, const Description& description);

// Opens the devices that the command asks for and plans the description for them, with the tuning
// records of the command. Errors: of the planner and of opening devices, whose hint is
// `without_gpu`; kInvalidValue if a group's or a measured call cannot have so many tokens.
Result<OpenedPlans> open_plans(const TrialCommand& command, const Description& description,
                               compiler::PlanOptions options, std::string_view without_gpu);

}  // namespace moejit::cli
