// SPDX-License-Identifier: Apache-2.0
#include "runtime/trial/devices.h"

#include "compiler/target.h"

#include <algorithm>
#include <fmt/core.h>

namespace moejit::trial {

Result<void> Devices::open_simulated(int32_t ranks, int64_t memory_bytes, uint64_t seed,
                                     const compiler::Target& target) {
  // The simulator maps a stack for each resident thread, and an SM may have 2048 threads. A stack
  // takes two of the 65530 mappings that Linux lets a process have.
  const int32_t sms = std::clamp(8 / ranks, 1, 4);
  MOEJIT_TRY_ASSIGN(
      group_,
      runtime::open_simulator_group(
          ranks, {.seed = seed, .heap_bytes = memory_bytes, .sm_count = sms, .target = target}));
  for (int32_t rank = 0; rank < ranks; ++rank) {
    devices_.push_back(&group_->device(rank));
    memory_.push_back(group_->heap(rank));
  }
  describe(fmt::format("{}, {} ranks", to_string(target), ranks));
  return {};
}

Result<void> Devices::open_gpus(int32_t ranks, int64_t memory_bytes,
                                const std::optional<compiler::Target>& target) {
  for (int32_t rank = 0; rank < ranks; ++rank) {
    auto device = runtime::open_cuda_device(rank, target);
    if (!device && rank == 0) return tl::make_unexpected(std::move(device).error());
    if (!device)
      return fail(Stage::kCommand, ErrorCode::kNoDevice,
                  fmt::format("got {} GPUs, wanted one for each of {} ranks", rank, ranks),
                  "run it in the simulator: --target sim");
    add(std::move(*device));
  }
  for (runtime::Device* from : devices_)
    for (runtime::Device* to : devices_)
      if (from != to) MOEJIT_TRY(from->reach(*to));
  for (runtime::Device* device : devices_) {
    MOEJIT_TRY_ASSIGN(runtime::DeviceMemory heap,
                      runtime::DeviceMemory::allocate(*device, memory_bytes));
    memory_.push_back(heap.address());
    heaps_.push_back(std::move(heap));
  }
  describe(fmt::format("{} on {} GPUs, the first of them {}",
                       compiler::to_string(device(0).target()), ranks, device(0).name()));
  return {};
}

namespace {

bool is_no_usable_gpu(ErrorCode code) {
  return code == ErrorCode::kDriverMissing || code == ErrorCode::kNoDevice ||
         code == ErrorCode::kUnsupported;
}

Result<compiler::Target> parse(const std::string& target) {
  auto parsed = compiler::parse_target(target);
  if (parsed) return parsed;
  Error error = std::move(parsed).error();
  error.hint = "auto takes the GPU where there is one, else sim; cuda takes any GPU";
  return tl::make_unexpected(std::move(error));
}

// Returns the target that a name asks GPUs for; none for any.
std::optional<compiler::Target> asked_for(const std::string& name, const compiler::Target& parsed) {
  return name == "auto" || name == "cuda" ? std::nullopt : std::optional(parsed);
}

}  // namespace

Result<std::unique_ptr<Devices>> Devices::open_one(const std::string& target, uint64_t seed,
                                                   std::string_view without_gpu) {
  const bool is_auto = target == "auto";
  MOEJIT_TRY_ASSIGN(const compiler::Target parsed, parse(is_auto ? "cuda" : target));
  std::unique_ptr<Devices> devices(new Devices);
  std::string reason;
  if (parsed.kind == compiler::TargetKind::kCuda) {
    auto gpu = runtime::open_cuda_device(runtime::kCurrentGpu, asked_for(target, parsed));
    if (gpu) {
      devices->add(std::move(*gpu));
      devices->describe(fmt::format("{} on {}", compiler::to_string(devices->device(0).target()),
                                    devices->device(0).name()));
      return devices;
    }
    // Replaces the library's hint, which is written for programs, by one for users of a command.
    if (is_no_usable_gpu(gpu.error().code)) gpu.error().hint = without_gpu;
    if (!is_auto) return tl::make_unexpected(std::move(gpu).error());
    reason = ", the simulator, since there is no GPU: " + gpu.error().message;
  }
  const compiler::Target simulated =
      parsed.kind == compiler::TargetKind::kSim ? parsed : compiler::simulator_target();
  MOEJIT_TRY_ASSIGN(auto simulator, runtime::open_simulator({.seed = seed, .target = simulated}));
  devices->add(std::move(simulator));
  devices->describe(to_string(simulated), reason);
  return devices;
}

void Devices::add(std::unique_ptr<runtime::Device> device) {
  devices_.push_back(device.get());
  owned_.push_back(std::move(device));
}

void Devices::describe(std::string description, std::string_view reason) {
  text_ = fmt::format("target {}{}", description, reason);
  description_ = std::move(description);
}

Result<std::unique_ptr<Devices>> Devices::open(const std::string& target, int32_t ranks,
                                               int64_t memory_bytes, uint64_t seed) {
  if (target == "auto") {
    auto gpus = open("cuda", ranks, memory_bytes, seed);
    return gpus ? std::move(gpus) : open("sim", ranks, memory_bytes, seed);
  }
  MOEJIT_TRY_ASSIGN(const compiler::Target parsed, parse(target));
  std::unique_ptr<Devices> devices(new Devices);
  if (parsed.kind == compiler::TargetKind::kSim)
    MOEJIT_TRY(devices->open_simulated(ranks, memory_bytes, seed, parsed));
  else
    MOEJIT_TRY(devices->open_gpus(ranks, memory_bytes, asked_for(target, parsed)));
  return devices;
}

Result<std::vector<std::unique_ptr<runtime::Transport>>> Devices::open_transport() {
  if (group_ != nullptr) return group_->open_transport();
  return fail(Stage::kCommand, ErrorCode::kUnsupported,
              "the transport nccl between the GPUs of one process, wanted a process for each rank",
              "run it in the simulator (--target sim), or open a group with a transport in each of "
              "your processes");
}

Result<void> Devices::synchronize() {
  if (group_ != nullptr) return group_->synchronize();
  for (runtime::Device* device : devices_) MOEJIT_TRY(device->synchronize(nullptr));
  return {};
}

}  // namespace moejit::trial
