// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/driver/context.h"
#include "runtime/heap.h"

#include <memory>
#include <string_view>
#include <sys/types.h>

namespace moejit::runtime {

// A heap by the driver's virtual memory management. It is an allocation that is exported as a file,
// or a mapping of such a file, for the GPU of the context alone.
class CudaHeap final : public Heap {
 public:
  // Allocates on the GPU of the context. Errors: kUnsupported if the GPU or its driver shares no
  // memory by files; kOutOfMemory.
  static Result<std::unique_ptr<Heap>> allocate(std::shared_ptr<const Context> context,
                                                int64_t bytes);
  // Maps memory of a GPU of this host, by its PCI bus id. Errors: kUnsupported if the context's GPU
  // does not reach that one; kDriver.
  static Result<std::unique_ptr<Heap>> map(std::shared_ptr<const Context> context,
                                           const FileDescriptor& file, int64_t bytes,
                                           std::string_view gpu);
  ~CudaHeap() override;
  CudaHeap(const CudaHeap&) = delete;
  CudaHeap& operator=(const CudaHeap&) = delete;

  void* address() const override { return reinterpret_cast<void*>(address_); }
  int64_t bytes() const override { return static_cast<int64_t>(bytes_); }
  Result<FileDescriptor> file() const override;
  Result<void> replace(const FileDescriptor& file) override;

 private:
  explicit CudaHeap(std::shared_ptr<const Context> context);
  const DriverApi& api() const { return context_->api(); }
  // Both want the context to be current.
  Result<void> reserve(std::size_t bytes);
  Result<void> create();
  Result<void> import(const FileDescriptor& file);
  Result<void> map_allocation();
  void unmap();

  std::shared_ptr<const Context> context_;
  pid_t process_;  // the process that made the mapping
  std::size_t granularity_ = 0;
  std::size_t bytes_ = 0;
  CUdeviceptr address_ = 0;                      // 0: nothing is reserved
  CUmemGenericAllocationHandle allocation_ = 0;  // 0: there is none
  bool is_mapped_ = false;
};

}  // namespace moejit::runtime
