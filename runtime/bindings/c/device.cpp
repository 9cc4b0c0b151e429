// SPDX-License-Identifier: Apache-2.0
#include "runtime/device.h"

#include "runtime/bindings/c/handles.h"
#include "runtime/bindings/c/last_error.h"
#include "runtime/bindings/c/records.h"

#include <cstddef>
#include <map>
#include <mutex>
#include <utility>

namespace {

using moejit::ErrorCode;
using moejit::fail;
using moejit::Result;
using moejit::Stage;
using moejit::bindings::guarded;
using moejit::bindings::null_argument;
using moejit::runtime::Device;

constexpr int64_t kMostWorkers = 4096;

moejit_device* make_handle(std::unique_ptr<Device> opened) {
  const bool is_simulator = opened->target().kind == moejit::compiler::TargetKind::kSim;
  auto handle = std::make_unique<moejit_device>();
  handle->name = opened->name();
  handle->target = to_string(opened->target());
  handle->place = {.device_type = is_simulator ? kDLCPU : kDLCUDA,
                   .device_id = opened->gpu_facts().ordinal};
  handle->device = std::move(opened);
  return handle.release();
}

// Checks a device handle and an amount of memory, and calls `body` with the device.
template <typename Body>
moejit_error_code with_memory(moejit_device* device, int64_t bytes, const char* function,
                              Body&& body) {
  return guarded(Stage::kLoad, [&]() -> Result<void> {
    if (device == nullptr) return null_argument(Stage::kLoad, "device", function);
    if (bytes < 0)
      return fail(Stage::kLoad, ErrorCode::kInvalidValue,
                  fmt::format("bytes of {}() is {}, wanted at least 0", function, bytes));
    return body(*device->device);
  });
}

// Checks the arguments of a copy, which needs both addresses if there are bytes, and calls `body`
// with the device.
template <typename Body>
moejit_error_code copy(moejit_device* device, void* destination, const void* source, int64_t bytes,
                       const char* function, Body&& body) {
  return with_memory(device, bytes, function, [&](Device& memory) -> Result<void> {
    if (bytes == 0) return {};
    if (destination == nullptr) return null_argument(Stage::kLoad, "destination", function);
    if (source == nullptr) return null_argument(Stage::kLoad, "source", function);
    return body(memory);
  });
}

}  // namespace

moejit_error_code moejit_device_open_cuda(int32_t ordinal, moejit_device** device) {
  return guarded(Stage::kLoad, [&]() -> Result<void> {
    if (device == nullptr) return null_argument(Stage::kLoad, "device", "moejit_device_open_cuda");
    *device = nullptr;
    MOEJIT_TRY_ASSIGN(auto opened, moejit::runtime::open_cuda_device(ordinal));
    *device = make_handle(std::move(opened));
    return {};
  });
}

moejit_error_code moejit_target_of_capability(int32_t major, int32_t minor, const char** target) {
  return guarded(Stage::kPlan, [&]() -> Result<void> {
    if (target == nullptr)
      return null_argument(Stage::kPlan, "target", "moejit_target_of_capability");
    *target = nullptr;
    const moejit::compiler::Architecture* const known =
        moejit::compiler::find_architecture({major, minor});
    if (known == nullptr)
      return fail(Stage::kPlan, ErrorCode::kUnsupported,
                  fmt::format("no target is for the compute capability {}.{}", major, minor),
                  "docs/targets.md lists the targets and their GPUs");
    *target = known->name.c_str();
    return {};
  });
}

moejit_error_code moejit_device_open_simulator(const moejit_simulator_options* options,
                                               moejit_device** device) {
  return guarded(Stage::kLoad, [&]() -> Result<void> {
    if (device == nullptr)
      return null_argument(Stage::kLoad, "device", "moejit_device_open_simulator");
    *device = nullptr;
    MOEJIT_TRY_ASSIGN(const auto given, moejit::bindings::read_record(Stage::kLoad, options,
                                                                      "moejit_simulator_options"));
    if (given.workers < 0 || given.workers > kMostWorkers)
      return fail(Stage::kLoad, ErrorCode::kInvalidValue,
                  fmt::format("workers of moejit_simulator_options is {}, wanted 0 to {}",
                              given.workers, kMostWorkers));
    MOEJIT_TRY_ASSIGN(auto opened,
                      moejit::runtime::open_simulator(
                          {.seed = given.seed, .workers = static_cast<int32_t>(given.workers)}));
    *device = make_handle(std::move(opened));
    return {};
  });
}

moejit_error_code moejit_device_shared(DLDevice place, moejit_device** device) {
  // Never destroyed: threads may use them at the end of the process.
  static std::mutex mutex;
  static auto* const shared = new std::map<std::pair<int32_t, int32_t>, moejit_device*>;
  return guarded(Stage::kLoad, [&]() -> Result<void> {
    if (device == nullptr) return null_argument(Stage::kLoad, "device", "moejit_device_shared");
    *device = nullptr;
    if (place.device_type != kDLCPU && place.device_type != kDLCUDA)
      return fail(Stage::kLoad, ErrorCode::kInvalidValue,
                  fmt::format("place of moejit_device_shared() has the device type {}, wanted {} "
                              "(kDLCPU) or {} (kDLCUDA)",
                              static_cast<int>(place.device_type), static_cast<int>(kDLCPU),
                              static_cast<int>(kDLCUDA)));
    const std::scoped_lock lock(mutex);
    moejit_device*& found = (*shared)[{place.device_type, place.device_id}];
    if (found == nullptr) {
      MOEJIT_TRY_ASSIGN(auto opened, place.device_type == kDLCPU
                                         ? moejit::runtime::open_simulator({})
                                         : moejit::runtime::open_cuda_device(place.device_id));
      found = make_handle(std::move(opened));
    }
    *device = found;
    return {};
  });
}

void moejit_device_destroy(moejit_device* device) { delete device; }

moejit_error_code moejit_device_get_info(const moejit_device* device, moejit_device_info* info) {
  return guarded(Stage::kLoad, [&]() -> Result<void> {
    if (device == nullptr) return null_argument(Stage::kLoad, "device", "moejit_device_get_info");
    if (info == nullptr) return null_argument(Stage::kLoad, "info", "moejit_device_get_info");
    return moejit::bindings::write_record(Stage::kLoad,
                                          {.name = device->name.c_str(),
                                           .target = device->target.c_str(),
                                           .dl_device = device->place,
                                           .sm_count = device->device->sm_count()},
                                          info, "moejit_device_info");
  });
}

moejit_error_code moejit_device_allocate(moejit_device* device, int64_t bytes, void** address) {
  constexpr const char* kFunction = "moejit_device_allocate";
  if (address != nullptr) *address = nullptr;
  return with_memory(device, bytes, kFunction, [&](Device& memory) -> Result<void> {
    if (address == nullptr) return null_argument(Stage::kLoad, "address", kFunction);
    MOEJIT_TRY_ASSIGN(*address, memory.allocate(bytes));
    return {};
  });
}

moejit_error_code moejit_device_release(moejit_device* device, void* address) {
  return with_memory(device, 0, "moejit_device_release",
                     [&](Device& memory) { return memory.release(address); });
}

moejit_error_code moejit_device_copy_to_device(moejit_device* device, void* destination,
                                               const void* source, int64_t bytes) {
  return copy(device, destination, source, bytes, "moejit_device_copy_to_device",
              [&](Device& memory) { return memory.copy_to_device(destination, source, bytes); });
}

moejit_error_code moejit_device_copy_to_host(moejit_device* device, void* destination,
                                             const void* source, int64_t bytes) {
  return copy(device, destination, source, bytes, "moejit_device_copy_to_host",
              [&](Device& memory) { return memory.copy_to_host(destination, source, bytes); });
}

moejit_error_code moejit_device_fill(moejit_device* device, void* destination, uint8_t value,
                                     int64_t bytes, void* stream) {
  // A fill has no source; any address but NULL passes the check.
  return copy(device, destination, &value, bytes, "moejit_device_fill", [&](Device& memory) {
    return memory.fill(destination, std::byte{value}, bytes, stream);
  });
}

moejit_error_code moejit_device_synchronize(moejit_device* device, void* stream) {
  return with_memory(device, 0, "moejit_device_synchronize",
                     [&](Device& memory) { return memory.synchronize(stream); });
}
