// SPDX-License-Identifier: Apache-2.0
#include "runtime/driver/cuda_heap.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <string>
#include <unistd.h>

namespace moejit::runtime {
namespace {

constexpr const char* kLinksHint = "moejit env tells which GPUs reach each other";

CUmemAllocationProp properties_on(CUdevice device) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = device;
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  return properties;
}

Result<void> check_shares(const Context& context) {
  for (const CUdevice_attribute wanted :
       {CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
        CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED}) {
    int has = 0;
    MOEJIT_TRY_DRIVER(context.api(), Stage::kLoad, device_get_attribute,
                      (&has, wanted, context.device()));
    if (has == 0)
      return fail(
          Stage::kLoad, ErrorCode::kUnsupported,
          fmt::format("GPU {} shares no memory with other processes by files", context.device()),
          "run all ranks in one process, whose GPUs reach each other");
  }
  return {};
}

// Checks that the context's GPU reaches another one. It may also reach a GPU that this process does
// not see; mapping shows that.
Result<void> check_reaches(const Context& context, std::string_view gpu) {
  const DriverApi& api = context.api();
  CUdevice other = 0;
  int can_access = 0;
  if (api.device_can_access_peer == nullptr || api.device_get_by_pci_bus_id == nullptr ||
      api.device_get_by_pci_bus_id(&other, std::string(gpu).c_str()) != CUDA_SUCCESS ||
      other == context.device())
    return {};
  MOEJIT_TRY_DRIVER(api, Stage::kLoad, device_can_access_peer,
                    (&can_access, context.device(), other));
  if (can_access != 0) return {};
  return fail(Stage::kLoad, ErrorCode::kUnsupported,
              fmt::format("GPU {} cannot reach memory of the GPU {}: no link joins them",
                          context.device(), gpu),
              kLinksHint);
}

}  // namespace

CudaHeap::CudaHeap(std::shared_ptr<const Context> context)
    : context_(std::move(context)), process_(::getpid()) {}

Result<std::unique_ptr<Heap>> CudaHeap::allocate(std::shared_ptr<const Context> context,
                                                 int64_t bytes) {
  MOEJIT_TRY(check_shares(*context));
  std::unique_ptr<CudaHeap> made(new CudaHeap(std::move(context)));
  const CurrentContext current(*made->context_);
  MOEJIT_TRY(current.check(Stage::kLoad));
  MOEJIT_TRY(made->reserve(static_cast<std::size_t>(bytes)));
  MOEJIT_TRY(made->create());
  MOEJIT_TRY(made->map_allocation());
  return made;
}

Result<std::unique_ptr<Heap>> CudaHeap::map(std::shared_ptr<const Context> context,
                                            const FileDescriptor& file, int64_t bytes,
                                            std::string_view gpu) {
  MOEJIT_TRY(check_reaches(*context, gpu));
  std::unique_ptr<CudaHeap> made(new CudaHeap(std::move(context)));
  const CurrentContext current(*made->context_);
  MOEJIT_TRY(current.check(Stage::kLoad));
  MOEJIT_TRY(made->reserve(static_cast<std::size_t>(bytes)));
  MOEJIT_TRY(made->import(file));
  MOEJIT_TRY(made->map_allocation());
  return made;
}

Result<void> CudaHeap::reserve(std::size_t bytes) {
  const CUmemAllocationProp properties = properties_on(context_->device());
  MOEJIT_TRY_DRIVER(api(), Stage::kLoad, mem_get_allocation_granularity,
                    (&granularity_, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  bytes_ = (bytes + granularity_ - 1) / granularity_ * granularity_;
  MOEJIT_TRY_DRIVER(api(), Stage::kLoad, mem_address_reserve,
                    (&address_, bytes_, granularity_, 0, 0));
  return {};
}

Result<void> CudaHeap::create() {
  const CUmemAllocationProp properties = properties_on(context_->device());
  const CUresult result = api().mem_create(&allocation_, bytes_, &properties, 0);
  if (result == CUDA_SUCCESS) return {};
  allocation_ = 0;
  Error error = driver_error(api(), Stage::kLoad, "cuMemCreate", result);
  error.message += fmt::format(" (asked for {} bytes)", bytes_);
  return tl::make_unexpected(std::move(error));
}

Result<void> CudaHeap::import(const FileDescriptor& file) {
  const CUresult result = api().mem_import_from_shareable_handle(
      &allocation_, reinterpret_cast<void*>(static_cast<uintptr_t>(file.get())),
      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  if (result == CUDA_SUCCESS) return {};
  allocation_ = 0;
  return tl::make_unexpected(
      driver_error(api(), Stage::kLoad, "cuMemImportFromShareableHandle", result));
}

Result<void> CudaHeap::map_allocation() {
  MOEJIT_TRY_DRIVER(api(), Stage::kLoad, mem_map, (address_, bytes_, 0, allocation_, 0));
  is_mapped_ = true;
  CUmemAccessDesc access{};
  access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  access.location.id = context_->device();
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  const CUresult result = api().mem_set_access(address_, bytes_, &access, 1);
  if (result == CUDA_SUCCESS) return {};
  Error error = driver_error(api(), Stage::kLoad, "cuMemSetAccess", result);
  if (error.hint.empty()) error.hint = kLinksHint;
  return tl::make_unexpected(std::move(error));
}

Result<FileDescriptor> CudaHeap::file() const {
  const CurrentContext current(*context_);
  MOEJIT_TRY(current.check(Stage::kLoad));
  int file = -1;
  MOEJIT_TRY_DRIVER(api(), Stage::kLoad, mem_export_to_shareable_handle,
                    (&file, allocation_, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  ::fcntl(file, F_SETFD, FD_CLOEXEC);
  return FileDescriptor(file);
}

Result<void> CudaHeap::replace(const FileDescriptor& file) {
  const CurrentContext current(*context_);
  MOEJIT_TRY(current.check(Stage::kLoad));
  MOEJIT_TRY_DRIVER(api(), Stage::kLoad, ctx_synchronize, ());
  unmap();
  MOEJIT_TRY(import(file));
  return map_allocation();
}

void CudaHeap::unmap() {
  if (is_mapped_) api().mem_unmap(address_, bytes_);
  is_mapped_ = false;
  if (allocation_ != 0) api().mem_release(allocation_);
  allocation_ = 0;
}

CudaHeap::~CudaHeap() {
  if (::getpid() != process_) return;
  const CurrentContext current(*context_);
  if (!current.is_current()) return;
  api().ctx_synchronize();
  unmap();
  if (address_ != 0) api().mem_address_free(address_, bytes_);
}

}  // namespace moejit::runtime
