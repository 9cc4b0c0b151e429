// SPDX-License-Identifier: Apache-2.0
#include "cli/commands/open_plans.h"

#include "cli/commands/tuning_records.h"
#include "compiler/group_plan.h"
#include "runtime/trial/trial.h"

#include <fmt/core.h>
#include <utility>

namespace moejit::cli {
namespace {

Result<void> check_rank_count(int32_t ranks, const compiler::Layer& layer,
                              const std::string& path) {
  if (ranks == 0) return check_is_of_one_rank(layer);
  if (!compiler::is_of_group(layer))
    return fail(
        Stage::kCommand, ErrorCode::kUsage,
        fmt::format("--ranks is {}, and {} describes a layer without expert_parallel", ranks, path),
        "leave --ranks out, or add \"expert_parallel\": {\"ranks\": R} to the description");
  if (ranks == layer.expert_parallel.ranks) return {};
  return fail(Stage::kCommand, ErrorCode::kUsage,
              fmt::format("--ranks is {}, wanted the {} ranks of {}", ranks,
                          layer.expert_parallel.ranks, path),
              fmt::format("--ranks {}", layer.expert_parallel.ranks));
}

// Opens the command's devices. The devices of a group get memory for it.
Result<std::unique_ptr<trial::Devices>> open_devices(const TrialCommand& command,
                                                     const Description& description,
                                                     std::string_view without_gpu) {
  const uint64_t seed = command.inputs.random.seed;
  if (command.ranks == 0 && !command.inputs.is_measured)
    return trial::Devices::open_one(command.target, seed, without_gpu);
  // What does not fit is told before a GPU is opened.
  MOEJIT_TRY_ASSIGN(const compiler::Plan any, plan_description(description, {}, {}));
  if (command.inputs.input_path.empty()) MOEJIT_TRY(random_size(any, command.inputs));
  if (command.ranks == 0) return trial::Devices::open_one(command.target, seed, without_gpu);
  return trial::Devices::open(command.target, command.ranks, any.group->memory.bytes, seed);
}

}  // namespace

Result<void> check_description(const TrialCommand& command, const Description& description) {
  if (const auto* const layer = std::get_if<compiler::Layer>(&description))
    return check_rank_count(command.ranks, *layer, command.layer);
  const auto& operation = std::get<compiler::OperationDescription>(description);
  if (command.ranks > 0) return option_of_layers("--ranks", operation);
  return command.pass == "forward" ? Result<void>{}
                                   : option_of_layers("--pass " + command.pass, operation);
}

Result<OpenedPlans> open_plans(const TrialCommand& command, const Description& description,
                               compiler::PlanOptions options, std::string_view without_gpu) {
  OpenedPlans opened;
  MOEJIT_TRY_ASSIGN(opened.devices, open_devices(command, description, without_gpu));
  const runtime::Device& device = opened.devices->device(0);
  MOEJIT_TRY_ASSIGN(const auto tuning, read_tuning_records(command.tuning, &device));
  options.tuning = tuning.get();
  if (command.ranks > 0) {
    const auto& layer = std::get<compiler::Layer>(description);
    MOEJIT_TRY_ASSIGN(opened.plans, trial::plan_ranks(layer, device.target(), options));
  } else {
    MOEJIT_TRY_ASSIGN(opened.plans.emplace_back(),
                      plan_description(description, device.target(), options));
  }
  opened.tuning = tuning_use(opened.plans.front(), tuning.get());
  return opened;
}

}  // namespace moejit::cli
