// SPDX-License-Identifier: Apache-2.0
// Memory of the fake driver: the host's, so that copies really copy, with bounds and owners.
#include "tests/fakes/cuda/driver_state.h"

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <map>
#include <vector>

namespace moejit::testing::fake {
namespace {

struct Block {
  std::size_t bytes = 0;
  CUdevice device = 0;
};

std::mutex& memory_mutex() {
  static std::mutex& mutex = *new std::mutex;
  return mutex;
}

// Under memory_mutex().
std::map<CUdeviceptr, Block>& blocks() {
  static auto& all = *new std::map<CUdeviceptr, Block>;
  return all;
}
std::array<std::size_t, FakeCudaControl::kDevices> used{};

// From memory of the host that is pageable, as all is here, a copy returns when its bytes are
// staged. They land, as late as may be, when the legacy stream of its context copies again or is
// waited for. Under memory_mutex().
struct StagedCopy {
  const Context* context = nullptr;
  CUdeviceptr destination = 0;
  std::vector<std::byte> bytes;
};
std::vector<StagedCopy>& staged_copies() {
  static auto& all = *new std::vector<StagedCopy>;
  return all;
}

std::size_t memory_bytes() {
  const int64_t bytes = control().memory_bytes;
  return bytes == 0 ? std::size_t{1} << 30U : static_cast<std::size_t>(bytes);
}

bool take(CUdevice device, std::size_t bytes) {
  std::size_t& taken = used[static_cast<std::size_t>(device)];
  if (bytes > memory_bytes() || taken > memory_bytes() - bytes) return false;
  taken += bytes;
  return true;
}

// The block that holds the address, or the end.
std::map<CUdeviceptr, Block>::const_iterator find_block(CUdeviceptr address) {
  auto after = blocks().upper_bound(address);
  if (after == blocks().begin()) return blocks().end();
  const auto block = std::prev(after);
  return address - block->first < block->second.bytes ? block : blocks().end();
}

bool holds(CUdeviceptr address, std::size_t bytes) {
  const std::lock_guard lock(memory_mutex());
  const auto block = find_block(address);
  return block != blocks().end() && bytes <= block->second.bytes - (address - block->first);
}

// What a call that works in a context fails with.
CUresult check_context() {
  Context* const context = current_context();
  if (!is_alive(context)) return CUDA_ERROR_INVALID_CONTEXT;
  return context->lost;
}

void* pointer(CUdeviceptr address) { return reinterpret_cast<void*>(address); }

}  // namespace

bool take_memory(CUdevice device, std::size_t bytes) {
  const std::lock_guard lock(memory_mutex());
  return take(device, bytes);
}

void give_memory(CUdevice device, std::size_t bytes) {
  const std::lock_guard lock(memory_mutex());
  used[static_cast<std::size_t>(device)] -= bytes;
}

void add_block(CUdeviceptr address, std::size_t bytes, CUdevice device) {
  const std::lock_guard lock(memory_mutex());
  blocks()[address] = {bytes, device};
}

void remove_block(CUdeviceptr address) {
  const std::lock_guard lock(memory_mutex());
  blocks().erase(address);
}

void land_copies(const Context* context) {
  const std::lock_guard lock(memory_mutex());
  std::erase_if(staged_copies(), [&](const StagedCopy& copy) {
    if (copy.context != context) return false;
    std::memcpy(pointer(copy.destination), copy.bytes.data(), copy.bytes.size());
    return true;
  });
}

}  // namespace moejit::testing::fake

using namespace moejit::testing;
using namespace moejit::testing::fake;

FAKE CUresult cuMemAlloc_v2(CUdeviceptr* address, std::size_t bytes) {
  FAKE_CALL(mem_alloc);
  if (const CUresult result = check_context(); result != CUDA_SUCCESS) return result;
  if (const CUresult result = check_unsafe_call(); result != CUDA_SUCCESS) return result;
  if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  const CUdevice device = current_context()->device;
  const std::lock_guard lock(memory_mutex());
  if (!take(device, bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  *address = reinterpret_cast<CUdeviceptr>(std::aligned_alloc(512, (bytes + 511) / 512 * 512));
  blocks()[*address] = {bytes, device};
  count(control().allocated);
  return CUDA_SUCCESS;
}

FAKE CUresult cuMemFree_v2(CUdeviceptr address) {
  FAKE_CALL(mem_free);
  if (const CUresult result = check_unsafe_call(); result != CUDA_SUCCESS) return result;
  const std::lock_guard lock(memory_mutex());
  const auto block = blocks().find(address);
  if (block == blocks().end()) return CUDA_ERROR_INVALID_VALUE;
  const CUdeviceptr end = address + block->second.bytes;
  std::erase_if(staged_copies(), [&](const StagedCopy& copy) {
    return copy.destination >= address && copy.destination < end;
  });
  used[static_cast<std::size_t>(block->second.device)] -= block->second.bytes;
  blocks().erase(block);
  std::free(pointer(address));
  count(control().freed);
  return CUDA_SUCCESS;
}

FAKE CUresult cuMemGetInfo_v2(std::size_t* free, std::size_t* total) {
  FAKE_CALL(mem_get_info);
  if (const CUresult result = check_context(); result != CUDA_SUCCESS) return result;
  const std::lock_guard lock(memory_mutex());
  *total = memory_bytes();
  *free = *total - used[static_cast<std::size_t>(current_context()->device)];
  return CUDA_SUCCESS;
}

FAKE CUresult cuMemcpyHtoD_v2(CUdeviceptr destination, const void* source, std::size_t bytes) {
  FAKE_CALL(memcpy_htod);
  if (const CUresult result = check_context(); result != CUDA_SUCCESS) return result;
  if (const CUresult result = check_unsafe_call(); result != CUDA_SUCCESS) return result;
  if (!holds(destination, bytes)) return CUDA_ERROR_INVALID_VALUE;
  land_copies(current_context());
  const auto* first = static_cast<const std::byte*>(source);
  const std::lock_guard lock(memory_mutex());
  staged_copies().push_back({current_context(), destination, {first, first + bytes}});
  return CUDA_SUCCESS;
}

FAKE CUresult cuMemcpyDtoH_v2(void* destination, CUdeviceptr source, std::size_t bytes) {
  FAKE_CALL(memcpy_dtoh);
  if (const CUresult result = check_context(); result != CUDA_SUCCESS) return result;
  if (const CUresult result = check_unsafe_call(); result != CUDA_SUCCESS) return result;
  if (!holds(source, bytes)) return CUDA_ERROR_INVALID_VALUE;
  land_copies(current_context());
  std::memcpy(destination, pointer(source), bytes);
  return CUDA_SUCCESS;
}

FAKE CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr destination, CUdeviceptr source, std::size_t bytes,
                                   CUstream stream) {
  FAKE_CALL(memcpy_dtod_async);
  if (const CUresult result = check_context(); result != CUDA_SUCCESS) return result;
  if (find_stream(stream) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (!holds(destination, bytes) || !holds(source, bytes)) return CUDA_ERROR_INVALID_VALUE;
  std::memcpy(pointer(destination), pointer(source), bytes);
  return CUDA_SUCCESS;
}

FAKE CUresult cuMemsetD8Async(CUdeviceptr destination, unsigned char value, std::size_t bytes,
                              CUstream stream) {
  FAKE_CALL(memset_d8_async);
  if (const CUresult result = check_context(); result != CUDA_SUCCESS) return result;
  if (find_stream(stream) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (!holds(destination, bytes)) return CUDA_ERROR_INVALID_VALUE;
  std::memset(pointer(destination), value, bytes);
  return CUDA_SUCCESS;
}

// Of an address that is not CUDA's: success, and zeros.
FAKE CUresult cuPointerGetAttributes(unsigned number, CUpointer_attribute* attributes, void** data,
                                     CUdeviceptr address) {
  FAKE_CALL(pointer_get_attributes);
  const std::lock_guard lock(memory_mutex());
  const auto block = find_block(address);
  const bool is_known = block != blocks().end();
  for (unsigned i = 0; i < number; ++i) {
    switch (attributes[i]) {
      case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *static_cast<unsigned*>(data[i]) = is_known ? CU_MEMORYTYPE_DEVICE : 0;
        break;
      case CU_POINTER_ATTRIBUTE_IS_MANAGED: *static_cast<unsigned*>(data[i]) = 0; break;
      case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        *static_cast<int*>(data[i]) = is_known ? block->second.device : 0;
        break;
      case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        *static_cast<CUdeviceptr*>(data[i]) = is_known ? block->first : 0;
        break;
      case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        *static_cast<std::size_t*>(data[i]) = is_known ? block->second.bytes : 0;
        break;
      default: return CUDA_ERROR_INVALID_VALUE;
    }
  }
  return CUDA_SUCCESS;
}
