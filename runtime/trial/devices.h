// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/device.h"
#include "runtime/device_memory.h"
#include "runtime/simulator_group.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace moejit::trial {

// The device of a trial, or the GPUs of a group in this process, one for each rank, with memory
// that all of them reach. They are simulated ones, or the first GPUs of this machine.
class Devices {
 public:
  // Opens one device without such memory: for cuda, which is any GPU, the name of a target, or
  // auto. auto takes a GPU; if there is none, it takes the simulator with `seed`. Returns
  // kInvalidValue and the errors of opening the named device. If no GPU can be used, the hint is
  // `without_gpu`, which says what the command can do instead.
  static Result<std::unique_ptr<Devices>> open_one(const std::string& target, uint64_t seed,
                                                   std::string_view without_gpu);
  // Opens devices for `target`: any GPUs for cuda, those that a named target runs on, sim, or auto,
  // which takes GPUs if there are enough. Each rank gets `memory_bytes`. Returns the errors of
  // opening devices; kNoDevice if there are fewer GPUs than ranks; kUnsupported if two of them have
  // no link.
  static Result<std::unique_ptr<Devices>> open(const std::string& target, int32_t ranks,
                                               int64_t memory_bytes, uint64_t seed);
  Devices(const Devices&) = delete;
  Devices& operator=(const Devices&) = delete;

  int32_t ranks() const { return static_cast<int32_t>(devices_.size()); }
  runtime::Device& device(int32_t rank) { return *devices_[static_cast<std::size_t>(rank)]; }
  void* memory(int32_t rank) const { return memory_[static_cast<std::size_t>(rank)]; }
  const std::string& description() const { return description_; }
  // Returns what a command prints before it begins: "target sim, the simulator, since there is no
  // GPU: no CUDA driver library found, ...".
  const std::string& text() const { return text_; }
  // Returns the ends of a new transport between the ranks. Error kUnsupported: the devices are
  // GPUs; NCCL needs a process for each rank.
  Result<std::vector<std::unique_ptr<runtime::Transport>>> open_transport();
  // Waits for the work on the default streams of all ranks. In the simulator no work runs before
  // this call.
  Result<void> synchronize();

 private:
  Devices() = default;
  void add(std::unique_ptr<runtime::Device> device);
  void describe(std::string description, std::string_view reason = {});
  Result<void> open_simulated(int32_t ranks, int64_t memory_bytes, uint64_t seed,
                              const compiler::Target& target);
  Result<void> open_gpus(int32_t ranks, int64_t memory_bytes,
                         const std::optional<compiler::Target>& target);

  std::unique_ptr<runtime::SimulatorGroup> group_;
  std::vector<std::unique_ptr<runtime::Device>> owned_;  // not of group_
  std::vector<runtime::Device*> devices_;
  std::vector<runtime::DeviceMemory> heaps_;  // one for each GPU; none in the simulator
  std::vector<void*> memory_;
  std::string description_, text_;
};

}  // namespace moejit::trial
