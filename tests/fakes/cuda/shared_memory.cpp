// SPDX-License-Identifier: Apache-2.0
// Memory that processes share: files in memory, which the processes really map.
#include "tests/fakes/cuda/driver_state.h"

#include <fcntl.h>
#include <map>
#include <string>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace moejit::testing::fake {
namespace {

constexpr std::size_t kGranularity = std::size_t{2} << 20U;
// Behind its bytes the file of an allocation has a page that tells on which device it is.
constexpr std::size_t kPage = 4096;

struct Allocation {
  int file = -1;
  std::size_t bytes = 0;
  CUdevice device = 0;
  bool is_imported = false;
};

struct Range {
  std::size_t bytes = 0;
  CUmemGenericAllocationHandle mapped = 0;
};

std::mutex& shared_mutex() {
  static std::mutex& mutex = *new std::mutex;
  return mutex;
}

// Under shared_mutex().
std::map<CUmemGenericAllocationHandle, Allocation>& allocations() {
  static auto& all = *new std::map<CUmemGenericAllocationHandle, Allocation>;
  return all;
}
std::map<CUdeviceptr, Range>& ranges() {
  static auto& all = *new std::map<CUdeviceptr, Range>;
  return all;
}
CUmemGenericAllocationHandle last_handle = 0;

bool is_step(std::size_t bytes) { return bytes > 0 && bytes % kGranularity == 0; }

void* map_at(CUdeviceptr address, std::size_t bytes, int protection, int flags, int file) {
  return ::mmap(reinterpret_cast<void*>(address), bytes, protection, flags | MAP_NORESERVE, file,
                0);
}

}  // namespace
}  // namespace moejit::testing::fake

using namespace moejit::testing;
using namespace moejit::testing::fake;

FAKE CUresult cuDeviceCanAccessPeer(int* can_access, CUdevice from, CUdevice to) {
  FAKE_CALL(device_can_access_peer);
  if (!is_device(from) || !is_device(to)) return CUDA_ERROR_INVALID_DEVICE;
  *can_access = from != to && control().has_no_links == 0 ? 1 : 0;
  return CUDA_SUCCESS;
}

// Takes contexts of two GPUs that a link joins, and does not notice that it was called before.
FAKE CUresult cuCtxEnablePeerAccess(CUcontext handle, unsigned flags) {
  FAKE_CALL(ctx_enable_peer_access);
  const auto* const peer = reinterpret_cast<const Context*>(handle);
  const Context* const own = current_context();
  if (!is_alive(own) || !is_alive(peer)) return CUDA_ERROR_INVALID_CONTEXT;
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (peer->device == own->device) return CUDA_ERROR_INVALID_DEVICE;
  return control().has_no_links == 0 ? CUDA_SUCCESS : CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
}

// As cuDeviceGetAttribute() of the fake numbers them.
FAKE CUresult cuDeviceGetByPCIBusId(CUdevice* device, const char* id) {
  FAKE_CALL(device_get_by_pci_bus_id);
  unsigned domain = 0, bus = 0, slot = 0;
  // NOLINTNEXTLINE(cert-err34-c): text of our own
  if (std::sscanf(id, "%x:%x:%x", &domain, &bus, &slot) != 3) return CUDA_ERROR_INVALID_VALUE;
  if (control().hides_peers != 0) return CUDA_ERROR_INVALID_DEVICE;
  *device = static_cast<CUdevice>(bus) - 16;
  return is_device(*device) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

FAKE CUresult cuMemGetAllocationGranularity(std::size_t* bytes, const CUmemAllocationProp*,
                                            CUmemAllocationGranularity_flags) {
  FAKE_CALL(mem_get_allocation_granularity);
  *bytes = kGranularity;
  return CUDA_SUCCESS;
}

FAKE CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, std::size_t bytes,
                          const CUmemAllocationProp* properties, unsigned long long) {
  FAKE_CALL(mem_create);
  if (!is_step(bytes) || !is_device(properties->location.id) ||
      properties->requestedHandleTypes != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
    return CUDA_ERROR_INVALID_VALUE;
  if (!take_memory(properties->location.id, bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  const int file = ::memfd_create("fake GPU", MFD_CLOEXEC);
  const CUdevice device = properties->location.id;
  if (file < 0 || ::ftruncate(file, static_cast<off_t>(bytes + kPage)) != 0 ||
      ::pwrite(file, &device, sizeof(device), static_cast<off_t>(bytes)) != sizeof(device))
    return CUDA_ERROR_OUT_OF_MEMORY;
  const std::lock_guard lock(shared_mutex());
  *handle = ++last_handle;
  allocations()[*handle] = {file, bytes, device, false};
  count(control().shared_taken);
  return CUDA_SUCCESS;
}

FAKE CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  FAKE_CALL(mem_release);
  const std::lock_guard lock(shared_mutex());
  const auto found = allocations().find(handle);
  if (found == allocations().end()) return CUDA_ERROR_INVALID_VALUE;
  if (!found->second.is_imported) give_memory(found->second.device, found->second.bytes);
  ::close(found->second.file);
  allocations().erase(found);
  count(control().shared_released);
  return CUDA_SUCCESS;
}

// The file does not close on exec, as nobody promises.
FAKE CUresult cuMemExportToShareableHandle(void* file, CUmemGenericAllocationHandle handle,
                                           CUmemAllocationHandleType, unsigned long long) {
  FAKE_CALL(mem_export_to_shareable_handle);
  const std::lock_guard lock(shared_mutex());
  const auto found = allocations().find(handle);
  if (found == allocations().end()) return CUDA_ERROR_INVALID_VALUE;
  *static_cast<int*>(file) = ::dup(found->second.file);
  return CUDA_SUCCESS;
}

FAKE CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* handle, void* given,
                                             CUmemAllocationHandleType) {
  FAKE_CALL(mem_import_from_shareable_handle);
  const int file =
      ::fcntl(static_cast<int>(reinterpret_cast<uintptr_t>(given)), F_DUPFD_CLOEXEC, 0);
  struct stat status {};
  if (file < 0 || ::fstat(file, &status) != 0) return CUDA_ERROR_INVALID_VALUE;
  Allocation taken{
      .file = file, .bytes = static_cast<std::size_t>(status.st_size) - kPage, .is_imported = true};
  if (!is_step(taken.bytes) || ::pread(file, &taken.device, sizeof(CUdevice),
                                       static_cast<off_t>(taken.bytes)) != sizeof(CUdevice))
    return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(shared_mutex());
  *handle = ++last_handle;
  allocations()[*handle] = taken;
  count(control().shared_taken);
  return CUDA_SUCCESS;
}

FAKE CUresult cuMemAddressReserve(CUdeviceptr* address, std::size_t bytes, std::size_t, CUdeviceptr,
                                  unsigned long long) {
  FAKE_CALL(mem_address_reserve);
  if (!is_step(bytes)) return CUDA_ERROR_INVALID_VALUE;
  void* const memory = map_at(0, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
  if (memory == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  const std::lock_guard lock(shared_mutex());
  *address = reinterpret_cast<CUdeviceptr>(memory);
  ranges()[*address] = {bytes, 0};
  count(control().ranges_reserved);
  return CUDA_SUCCESS;
}

FAKE CUresult cuMemAddressFree(CUdeviceptr address, std::size_t bytes) {
  FAKE_CALL(mem_address_free);
  const std::lock_guard lock(shared_mutex());
  const auto found = ranges().find(address);
  if (found == ranges().end() || found->second.bytes != bytes || found->second.mapped != 0)
    return CUDA_ERROR_INVALID_VALUE;
  ::munmap(reinterpret_cast<void*>(address), bytes);
  ranges().erase(found);
  count(control().ranges_freed);
  return CUDA_SUCCESS;
}

FAKE CUresult cuMemMap(CUdeviceptr address, std::size_t bytes, std::size_t offset,
                       CUmemGenericAllocationHandle handle, unsigned long long) {
  FAKE_CALL(mem_map);
  const std::lock_guard lock(shared_mutex());
  const auto range = ranges().find(address);
  const auto found = allocations().find(handle);
  if (range == ranges().end() || found == allocations().end() || offset != 0 ||
      range->second.mapped != 0 || bytes != range->second.bytes || bytes != found->second.bytes)
    return CUDA_ERROR_INVALID_VALUE;
  if (map_at(address, bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, found->second.file) == MAP_FAILED)
    return CUDA_ERROR_OUT_OF_MEMORY;
  range->second.mapped = handle;
  return CUDA_SUCCESS;
}

FAKE CUresult cuMemUnmap(CUdeviceptr address, std::size_t bytes) {
  FAKE_CALL(mem_unmap);
  const std::lock_guard lock(shared_mutex());
  const auto range = ranges().find(address);
  if (range == ranges().end() || range->second.mapped == 0 || bytes != range->second.bytes)
    return CUDA_ERROR_INVALID_VALUE;
  map_at(address, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1);
  range->second.mapped = 0;
  remove_block(address);
  return CUDA_SUCCESS;
}

FAKE CUresult cuMemSetAccess(CUdeviceptr address, std::size_t bytes, const CUmemAccessDesc* access,
                             std::size_t number) {
  FAKE_CALL(mem_set_access);
  const std::lock_guard lock(shared_mutex());
  const auto range = ranges().find(address);
  if (range == ranges().end() || range->second.mapped == 0 || bytes != range->second.bytes ||
      number != 1)
    return CUDA_ERROR_INVALID_VALUE;
  const CUdevice device = allocations()[range->second.mapped].device;
  if (access->location.id != device && control().has_no_links != 0)
    return CUDA_ERROR_INVALID_DEVICE;
  ::mprotect(reinterpret_cast<void*>(address), bytes, PROT_READ | PROT_WRITE);
  add_block(address, bytes, device);
  return CUDA_SUCCESS;
}
