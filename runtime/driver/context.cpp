// SPDX-License-Identifier: Apache-2.0
#include "runtime/driver/context.h"

#include "runtime/device.h"

#include <array>
#include <fmt/core.h>
#include <fmt/format.h>

namespace moejit::runtime {
namespace {

Result<CUdevice> find_gpu(const DriverApi& api, int32_t ordinal) {
  int count = 0;
  CUdevice device = 0;
  MOEJIT_TRY_DRIVER(api, Stage::kLoad, device_get_count, (&count));
  if (ordinal < 0 || ordinal >= count)
    return fail(Stage::kLoad, ErrorCode::kNoDevice,
                fmt::format("GPU {} does not exist, this process sees {}", ordinal, count),
                "CUDA_VISIBLE_DEVICES decides which GPUs a process sees");
  MOEJIT_TRY_DRIVER(api, Stage::kLoad, device_get, (&device, ordinal));
  return device;
}

}  // namespace

Result<std::shared_ptr<const Context>> Context::adopt(const DriverApi& api, int32_t ordinal) {
  CUcontext handle = nullptr;
  CUdevice current = 0;
  MOEJIT_TRY_DRIVER(api, Stage::kLoad, ctx_get_current, (&handle));
  if (handle != nullptr) MOEJIT_TRY_DRIVER(api, Stage::kLoad, ctx_get_device, (&current));
  CUdevice device = current;
  if (handle == nullptr || ordinal != kCurrentGpu) {
    MOEJIT_TRY_ASSIGN(device, find_gpu(api, ordinal == kCurrentGpu ? 0 : ordinal));
  }
  if (handle != nullptr && device == current)
    return std::shared_ptr<const Context>(new Context(api, handle, device, false));
  MOEJIT_TRY_DRIVER(api, Stage::kLoad, primary_ctx_retain, (&handle, device));
  return std::shared_ptr<const Context>(new Context(api, handle, device, true));
}

Context::~Context() {
  if (is_retained_ && !is_process_ending()) api_->primary_ctx_release(device_);
}

namespace {

// What the driver knows about an address; all zero if it knows nothing.
struct Allocation {
  unsigned memory_type = 0;  // a CUmemorytype
  unsigned is_managed = 0;
  int ordinal = 0;
  CUdeviceptr start = 0;
  std::size_t bytes = 0;
};

Result<Allocation> find_allocation(const DriverApi& api, const void* address) {
  Allocation found;
  std::array attributes = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED,
                           CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                           CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, CU_POINTER_ATTRIBUTE_RANGE_SIZE};
  std::array<void*, attributes.size()> values = {&found.memory_type, &found.is_managed,
                                                 &found.ordinal, &found.start, &found.bytes};
  MOEJIT_TRY_DRIVER(api, Stage::kLaunch, pointer_get_attributes,
                    (static_cast<unsigned>(attributes.size()), attributes.data(), values.data(),
                     reinterpret_cast<CUdeviceptr>(address)));
  return found;
}

tl::unexpected<Error> wrong_memory(const MemoryRegion& region, const std::string& what) {
  return fail(Stage::kLaunch, ErrorCode::kTensorMismatch,
              fmt::format("tensor {}: {} {}", region.name, fmt::ptr(region.address), what));
}

}  // namespace

Result<void> check_pointer(const DriverApi& api, int32_t ordinal, const MemoryRegion& region) {
  if (region.bytes == 0) return {};
  MOEJIT_TRY_ASSIGN(const Allocation found, find_allocation(api, region.address));
  if (found.memory_type == 0)
    return wrong_memory(region, fmt::format("is no address that CUDA knows (pageable memory of the "
                                            "host, or freed), wanted memory of GPU {}",
                                            ordinal));
  if (found.memory_type == CU_MEMORYTYPE_DEVICE && found.is_managed == 0 &&
      found.ordinal != ordinal)
    return wrong_memory(region,
                        fmt::format("is memory of GPU {}, wanted GPU {}", found.ordinal, ordinal));
  const std::size_t offset = reinterpret_cast<CUdeviceptr>(region.address) - found.start;
  const std::size_t left = found.bytes - offset;
  if (left < static_cast<std::size_t>(region.bytes))
    return wrong_memory(region, fmt::format("is {} bytes before the end of its allocation, "
                                            "wanted {}",
                                            left, region.bytes));
  return {};
}

}  // namespace moejit::runtime
