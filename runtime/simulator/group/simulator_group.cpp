// SPDX-License-Identifier: Apache-2.0
#include "runtime/simulator_group.h"

#include "runtime/simulator/group/group_device.h"
#include "runtime/simulator/group/group_transport.h"

#include <fmt/core.h>

namespace moejit::runtime {
namespace {

constexpr int32_t kMostRanks = 8;

class Group final : public SimulatorGroup {
 public:
  Group(int32_t ranks, const SimulatorGroupOptions& options)
      : core_(ranks, options.sm_count, options.seed) {
    for (int32_t rank = 0; rank < ranks; ++rank) {
      devices_.push_back(std::make_unique<GroupDevice>(core_, rank, options.target));
    }
  }
  bool make_memory(int64_t heap_bytes) {
    core_.state.memory = SymmetricMemory::create(ranks(), heap_bytes);
    return core_.state.memory != nullptr;
  }

  int32_t ranks() const override { return static_cast<int32_t>(devices_.size()); }
  Device& device(int32_t rank) override { return *devices_[static_cast<std::size_t>(rank)]; }
  std::byte* heap(int32_t rank) override { return core_.state.memory->heap(rank); }
  int64_t heap_bytes() const override { return core_.state.memory->heap_bytes(); }
  Result<void> expire(int32_t rank, const void* address, int64_t bytes, Stream stream) override {
    return devices_[static_cast<std::size_t>(rank)]->expire(address, bytes, stream);
  }
  std::vector<std::unique_ptr<Transport>> open_transport() override {
    const auto count = devices_.size();
    auto core = std::make_shared<TransportCore>(
        TransportCore{.group = core_, .devices = {}, .steps = {}, .calls = {}, .identities = {}});
    for (const auto& device : devices_) core->devices.push_back(device.get());
    core->calls.resize(count);
    core->identities.resize(count);
    std::vector<std::unique_ptr<Transport>> ends;
    for (int32_t rank = 0; rank < ranks(); ++rank)
      ends.push_back(std::make_unique<GroupTransport>(core, rank));
    return ends;
  }
  Result<void> synchronize() override {
    const std::lock_guard lock(core_.lock);
    return core_.run(-1);
  }
  void kill(int32_t rank, int64_t parts) override {
    const std::lock_guard lock(core_.lock);
    core_.schedule.kill(rank, parts);
  }
  uint64_t nanoseconds() const override { return core_.state.time.now(); }

 private:
  GroupCore core_;
  std::vector<std::unique_ptr<GroupDevice>> devices_;
};

}  // namespace

Result<std::unique_ptr<SimulatorGroup>> open_simulator_group(int32_t ranks,
                                                             const SimulatorGroupOptions& options) {
  if (ranks < 1 || ranks > kMostRanks || options.sm_count < 1 || options.heap_bytes < 0) {
    return fail(Stage::kLaunch, ErrorCode::kInvalidValue,
                fmt::format("a group of {} ranks with {} SMs and heaps of {} bytes: wanted 1 to {} "
                            "ranks, 1 SM or more and no negative size",
                            ranks, options.sm_count, options.heap_bytes, kMostRanks));
  }
  auto group = std::make_unique<Group>(ranks, options);
  if (!group->make_memory(options.heap_bytes)) {
    return fail(Stage::kLaunch, ErrorCode::kOutOfMemory,
                fmt::format("no memory for {} heaps of {} bytes", ranks, options.heap_bytes));
  }
  return group;
}

}  // namespace moejit::runtime
