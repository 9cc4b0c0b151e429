// SPDX-License-Identifier: Apache-2.0
#include "runtime/group.h"

#include "runtime/bindings/c/group_handles.h"
#include "runtime/bindings/c/last_error.h"
#include "runtime/bindings/c/records.h"
#include "runtime/bindings/c/simulated_ranks.h"
#include "runtime/nccl_transport.h"

#include <algorithm>
#include <cstring>
#include <fmt/core.h>
#include <span>
#include <sstream>

namespace {

using moejit::ErrorCode;
using moejit::fail;
using moejit::Result;
using moejit::Stage;
using moejit::bindings::guarded;
using moejit::bindings::null_argument;
using moejit::runtime::Group;
using moejit::runtime::GroupMember;
using moejit::runtime::RendezvousPlace;

std::vector<std::string> fields_of(const char* identity) {
  std::vector<std::string> fields;
  if (identity == nullptr) return fields;
  std::istringstream lines(identity);
  for (std::string line; std::getline(lines, line);) fields.push_back(line);
  return fields;
}

Result<RendezvousPlace> place_of(const moejit_rendezvous_place* place, const char* function) {
  if (place == nullptr) return null_argument(Stage::kLoad, "place", function);
  MOEJIT_TRY_ASSIGN(const auto given,
                    moejit::bindings::read_record(Stage::kLoad, place, "moejit_rendezvous_place"));
  if (given.path == nullptr) return null_argument(Stage::kLoad, "path", function);
  RendezvousPlace read{.path = given.path};
  if (given.deadline_ms != 0) read.deadline_ms = given.deadline_ms;
  return read;
}

// Makes a handle of a group that was made on a device.
void hand_out(const moejit_device& device, std::unique_ptr<Group> made, moejit_group** group) {
  auto handle = std::make_unique<moejit_group>();
  handle->device = device.device;
  handle->place = device.place;
  handle->group = std::move(made);
  *group = handle.release();
}

using moejit::runtime::Transport;

// Makes a group for a layer with a transport that `open` opens, once the arguments are checked.
template <typename Open>
moejit_error_code with_transport(const moejit_plan* layer, moejit_device* device,
                                 moejit_group** group, const char* function, Open&& open) {
  return guarded(Stage::kLoad, [&]() -> Result<void> {
    if (group == nullptr) return null_argument(Stage::kLoad, "group", function);
    *group = nullptr;
    if (layer == nullptr) return null_argument(Stage::kLoad, "layer", function);
    if (device == nullptr) return null_argument(Stage::kLoad, "device", function);
    MOEJIT_TRY(moejit::runtime::check_transport(*layer->plan, true));
    MOEJIT_TRY_ASSIGN(auto transport, open());
    MOEJIT_TRY_ASSIGN(auto made, Group::open(*layer->plan, *device->device, std::move(transport)));
    hand_out(*device, std::move(made), group);
    return {};
  });
}

// Checks a handle of a group, and calls `body` with the group.
template <typename Body>
moejit_error_code with_group(moejit_group* group, const char* function, Body&& body) {
  return guarded(Stage::kLaunch, [&]() -> Result<void> {
    if (group == nullptr) return null_argument(Stage::kLaunch, "group", function);
    return body(*group->group);
  });
}

}  // namespace

moejit_error_code moejit_group_adopt(const moejit_plan* layer, moejit_device* device,
                                     const moejit_group_member* members, size_t member_count,
                                     moejit_group** group) {
  constexpr const char* kFunction = "moejit_group_adopt";
  return guarded(Stage::kLoad, [&]() -> Result<void> {
    if (group == nullptr) return null_argument(Stage::kLoad, "group", kFunction);
    *group = nullptr;
    if (layer == nullptr) return null_argument(Stage::kLoad, "layer", kFunction);
    if (device == nullptr) return null_argument(Stage::kLoad, "device", kFunction);
    if (members == nullptr) return null_argument(Stage::kLoad, "members", kFunction);
    std::vector<GroupMember> given;
    for (const moejit_group_member& member : std::span(members, member_count))
      given.push_back(
          {.base = member.base, .bytes = member.bytes, .identity = fields_of(member.identity)});
    MOEJIT_TRY_ASSIGN(auto made, Group::adopt(*layer->plan, *device->device, given));
    hand_out(*device, std::move(made), group);
    return {};
  });
}

moejit_error_code moejit_group_open(const moejit_plan* layer, moejit_device* device,
                                    const moejit_rendezvous_place* place, moejit_group** group) {
  constexpr const char* kFunction = "moejit_group_open";
  return guarded(Stage::kLoad, [&]() -> Result<void> {
    if (group == nullptr) return null_argument(Stage::kLoad, "group", kFunction);
    *group = nullptr;
    if (layer == nullptr) return null_argument(Stage::kLoad, "layer", kFunction);
    if (device == nullptr) return null_argument(Stage::kLoad, "device", kFunction);
    MOEJIT_TRY_ASSIGN(const RendezvousPlace at, place_of(place, kFunction));
    MOEJIT_TRY_ASSIGN(auto made, Group::open(*layer->plan, *device->device, at));
    hand_out(*device, std::move(made), group);
    return {};
  });
}

moejit_error_code moejit_group_reopen(moejit_group* group, const moejit_rendezvous_place* place) {
  return with_group(group, "moejit_group_reopen", [&](Group& of) -> Result<void> {
    MOEJIT_TRY_ASSIGN(const RendezvousPlace at, place_of(place, "moejit_group_reopen"));
    return of.reopen(at);
  });
}

moejit_error_code moejit_nccl_make_id(uint8_t* id) {
  return guarded(Stage::kLoad, [&]() -> Result<void> {
    if (id == nullptr) return null_argument(Stage::kLoad, "id", "moejit_nccl_make_id");
    MOEJIT_TRY_ASSIGN(const moejit::runtime::NcclId made, moejit::runtime::make_nccl_id());
    static_assert(sizeof(made) == MOEJIT_NCCL_ID_BYTES);
    std::memcpy(id, made.data(), made.size());
    return {};
  });
}

moejit_error_code moejit_group_open_nccl(const moejit_plan* layer, moejit_device* device,
                                         const uint8_t* id, int64_t deadline_ms,
                                         moejit_group** group) {
  constexpr const char* kFunction = "moejit_group_open_nccl";
  const auto open = [&]() -> Result<std::unique_ptr<Transport>> {
    if (id == nullptr) return null_argument(Stage::kLoad, "id", kFunction);
    moejit::runtime::NcclPlace place{.rank = static_cast<int32_t>(layer->plan->group->rank),
                                     .ranks = layer->plan->layer->expert_parallel.ranks};
    std::memcpy(place.id.data(), id, place.id.size());
    if (deadline_ms != 0) place.deadline_ms = deadline_ms;
    if (device->ranks != nullptr) return device->ranks->open_transport(place.id, device->rank);
    return moejit::runtime::open_nccl_transport(*device->device, place);
  };
  return with_transport(layer, device, group, kFunction, open);
}

moejit_error_code moejit_group_adopt_nccl(const moejit_plan* layer, moejit_device* device,
                                          void* communicator, moejit_group** group) {
  constexpr const char* kFunction = "moejit_group_adopt_nccl";
  const auto open = [&]() -> Result<std::unique_ptr<Transport>> {
    if (communicator == nullptr) return null_argument(Stage::kLoad, "communicator", kFunction);
    return moejit::runtime::adopt_nccl_communicator(*device->device, communicator);
  };
  return with_transport(layer, device, group, kFunction, open);
}

moejit_error_code moejit_group_abort(moejit_group* group) {
  return with_group(group, "moejit_group_abort", [](Group& of) -> Result<void> {
    of.abort();
    return {};
  });
}

moejit_error_code moejit_group_get_info(moejit_group* group, moejit_group_info* info) {
  return with_group(group, "moejit_group_get_info", [&](const Group& of) -> Result<void> {
    if (info == nullptr) return null_argument(Stage::kLoad, "info", "moejit_group_get_info");
    return moejit::bindings::write_record(Stage::kLoad,
                                          {.ranks = of.ranks(),
                                           .rank = of.rank(),
                                           .memory_bytes = of.memory_bytes(),
                                           .allocated_bytes = of.allocated_bytes()},
                                          info, "moejit_group_info");
  });
}

void moejit_group_destroy(moejit_group* group) { delete group; }

moejit_error_code moejit_group_status(moejit_group* group, uint32_t* status) {
  return with_group(group, "moejit_group_status", [&](Group& of) -> Result<void> {
    if (status == nullptr) return null_argument(Stage::kLaunch, "status", "moejit_group_status");
    MOEJIT_TRY_ASSIGN(*status, of.status());
    return {};
  });
}

moejit_error_code moejit_group_clear_status(moejit_group* group, void* stream) {
  return with_group(group, "moejit_group_clear_status",
                    [&](Group& of) { return of.clear_status(stream); });
}

moejit_error_code moejit_group_reset(moejit_group* group) {
  return with_group(group, "moejit_group_reset", [](Group& of) { return of.reset(); });
}

moejit_error_code moejit_device_open_simulator_group(size_t ranks, int64_t memory_bytes,
                                                     uint64_t seed, moejit_device** devices,
                                                     void** memory) {
  constexpr const char* kFunction = "moejit_device_open_simulator_group";
  return guarded(Stage::kLoad, [&]() -> Result<void> {
    if (devices == nullptr) return null_argument(Stage::kLoad, "devices", kFunction);
    if (memory == nullptr) return null_argument(Stage::kLoad, "memory", kFunction);
    constexpr size_t kMostRanks = 8;
    if (ranks < 1 || ranks > kMostRanks)
      return fail(Stage::kLoad, ErrorCode::kInvalidValue,
                  fmt::format("ranks of {}() is {}, wanted 1 to {}", kFunction, ranks, kMostRanks));
    std::fill_n(devices, ranks, nullptr);
    std::fill_n(memory, ranks, nullptr);
    const auto count = static_cast<int32_t>(ranks);
    // An SM may have 2048 threads, whose stacks are two of a process's 65530 mappings each.
    auto simulated = std::make_shared<moejit::bindings::SimulatedRanks>();
    MOEJIT_TRY_ASSIGN(simulated->group, moejit::runtime::open_simulator_group(
                                            count, {.seed = seed,
                                                    .heap_bytes = memory_bytes,
                                                    .sm_count = std::clamp(8 / count, 1, 4)}));
    std::vector<std::unique_ptr<moejit_device>> handles;
    for (int32_t rank = 0; rank < count; ++rank) {
      auto handle = std::make_unique<moejit_device>();
      handle->device = {simulated, &simulated->group->device(rank)};  // each keeps all ranks
      handle->ranks = simulated;
      handle->rank = rank;
      handle->name = handle->device->name();
      handle->target = to_string(handle->device->target());
      handle->place = {.device_type = kDLCPU, .device_id = 0};
      handles.push_back(std::move(handle));
    }
    for (size_t rank = 0; rank < ranks; ++rank) {
      devices[rank] = handles[rank].release();
      memory[rank] = simulated->group->heap(static_cast<int32_t>(rank));
    }
    return {};
  });
}
