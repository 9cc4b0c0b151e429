// SPDX-License-Identifier: Apache-2.0
#include "runtime/trial/open_target.h"

#include <fmt/core.h>

namespace moejit::trial {
namespace {

Result<OpenedTarget> open_gpu() {
  MOEJIT_TRY_ASSIGN(std::unique_ptr<runtime::Device> device, runtime::open_cuda_device());
  std::string description =
      fmt::format("{} on {}", compiler::to_string(device->target()), device->name());
  return OpenedTarget{std::move(device), std::move(description), ""};
}

bool is_no_usable_gpu(ErrorCode code) {
  return code == ErrorCode::kDriverMissing || code == ErrorCode::kNoDevice ||
         code == ErrorCode::kUnsupported;
}

Result<OpenedTarget> open_sim(uint64_t seed, std::string reason) {
  MOEJIT_TRY_ASSIGN(std::unique_ptr<runtime::Device> device,
                    runtime::open_simulator({.seed = seed}));
  return OpenedTarget{std::move(device), "sim", std::move(reason)};
}

}  // namespace

std::string target_text(const OpenedTarget& target) {
  std::string text = "target " + target.description;
  if (!target.reason.empty()) text += ", the simulator, since there is no GPU: " + target.reason;
  return text;
}

Result<OpenedTarget> open_target(const std::string& name, uint64_t seed,
                                 std::string_view without_gpu) {
  if (name == "auto") {
    Result<OpenedTarget> gpu = open_gpu();
    if (gpu) return gpu;
    return open_sim(seed, gpu.error().message);
  }
  auto target = compiler::parse_target(name);
  if (!target)
    return fail(Stage::kCommand, ErrorCode::kInvalidValue,
                fmt::format("unknown target \"{}\", wanted auto, cuda:sm_90a or sim", name));
  if (target->kind == compiler::TargetKind::kSim) return open_sim(seed, "");
  Result<OpenedTarget> gpu = open_gpu();
  // Replaces the library's hint, which is for programs.
  if (!gpu && is_no_usable_gpu(gpu.error().code)) gpu.error().hint = without_gpu;
  return gpu;
}

}  // namespace moejit::trial
