// SPDX-License-Identifier: Apache-2.0
#include "compiler/support/env.h"
#include "runtime/device.h"
#include "runtime/driver/context.h"
#include "runtime/driver/cuda_graph.h"
#include "runtime/driver/cuda_heap.h"
#include "runtime/driver/driver_api.h"
#include "runtime/driver/gpu_properties.h"
#include "runtime/driver/kernel_libraries.h"
#include "runtime/driver/tensor_map.h"
#include "runtime/plain_tensor_map.h"

#include <array>
#include <fmt/core.h>
#include <limits>

namespace moejit::runtime {
namespace {

// One layer's use of a kernel, which stays loaded for the next layer when this use ends.
class CudaKernel final : public LoadedKernel {
 public:
  CudaKernel(std::shared_ptr<KernelLibraries> libraries, std::shared_ptr<KernelLibrary> kernel,
             std::string entry)
      : libraries_(std::move(libraries)), kernel_(std::move(kernel)), entry_(std::move(entry)) {}
  ~CudaKernel() override { libraries_->let_go(*kernel_); }

  std::optional<std::size_t> param_bytes() const override { return kernel_->param_bytes; }
  const std::shared_ptr<KernelLibrary>& kernel() const { return kernel_; }
  const KernelLibraries* libraries() const { return libraries_.get(); }
  const std::string& entry() const { return entry_; }

 private:
  std::shared_ptr<KernelLibraries> libraries_;  // keeps the context too
  std::shared_ptr<KernelLibrary> kernel_;
  std::string entry_;
};

CUdeviceptr device_address(const void* pointer) { return reinterpret_cast<CUdeviceptr>(pointer); }

CUstream stream_of(Stream stream) { return static_cast<CUstream>(stream); }

class CudaDevice final : public Device {
 public:
  // What the environment says.
  struct Switches {
    bool checks_pointers = false;
    bool serializes_launches = false;
  };
  CudaDevice(std::shared_ptr<const Context> context, GpuProperties properties, Switches switches)
      : context_(std::move(context)),
        libraries_(std::make_shared<KernelLibraries>(context_, properties.most_shared_bytes)),
        properties_(std::move(properties)),
        switches_(switches) {}

  compiler::Target target() const override { return properties_.target; }
  std::string name() const override { return properties_.name; }
  int32_t sm_count() const override { return properties_.sm_count; }
  GpuFacts gpu_facts() const override { return properties_.facts; }

  Result<bool> enter() override;
  void leave() override;
  Result<bool> is_recording(Stream stream) const override;

  Result<std::unique_ptr<LoadedKernel>> load(const compiler::KernelBinary& binary) override;
  Result<void> launch(const LaunchRequest& request, Stream stream) override;
  Result<device::TensorMap> encode_tensor_map(const compiler::TensorBox& box,
                                              const void* address) const override {
    if (!properties_.target.features.has_bulk_copies) return encode_plain_tensor_map(box, address);
    const CurrentContext current(*context_);  // the driver looks the address up in this context
    MOEJIT_TRY(current.check(Stage::kLaunch));
    return encode_cuda_tensor_map(api(), box, address);
  }

  bool reads_regions() const override { return false; }
  bool checks_memory() const override { return switches_.checks_pointers; }
  Result<void> check_memory(const MemoryRegion& region) const override {
    const CurrentContext current(*context_);
    MOEJIT_TRY(current.check(Stage::kLaunch));
    return check_pointer(api(), properties_.facts.ordinal, region);
  }

  Result<void> reach(Device& peer) override;
  Result<std::unique_ptr<Heap>> allocate_heap(int64_t bytes) override {
    return CudaHeap::allocate(context_, bytes);
  }
  Result<std::unique_ptr<Heap>> map_heap(const FileDescriptor& file, int64_t bytes,
                                         std::string_view gpu) override {
    return CudaHeap::map(context_, file, bytes, gpu);
  }

  Result<void*> allocate(int64_t bytes) override;
  Result<void> release(void* address) override;
  Result<void> copy_to_device(void* destination, const void* source, int64_t bytes) override;
  Result<void> copy_to_host(void* destination, const void* source, int64_t bytes) override;
  Result<void> copy_on_device(void* destination, const void* source, int64_t bytes,
                              Stream stream) override;
  Result<void> fill(void* destination, std::byte value, int64_t bytes, Stream stream) override;
  Result<void> synchronize(Stream stream) override;
  Result<void> synchronize_all() override;
  Result<std::unique_ptr<Recording>> record(
      const std::function<Result<void>(Stream)>& queue) override {
    const CurrentContext current(*context_);
    MOEJIT_TRY(current.check(Stage::kLaunch));
    return record_cuda_graph(context_, queue);
  }

  Result<void*> record_mark(Stream stream) override;
  Result<double> microseconds_between(void* first, void* second) override;
  void release_mark(void* mark) override;

 private:
  const DriverApi& api() const { return context_->api(); }
  Result<void> check(const LaunchRequest& request, const CudaKernel& kernel) const;
  // Launches in the current context.
  Result<void> enqueue(const LaunchRequest& request, bool is_recorded, CUstream stream);
  // Returns whether the driver may let a launch overlap. Graphs know such launches since CUDA 12.3.
  bool takes_overlaps(bool is_recorded) const {
    return !switches_.serializes_launches && (!is_recorded || api().version >= 12030);
  }

  std::shared_ptr<const Context> context_;
  std::shared_ptr<KernelLibraries> libraries_;
  GpuProperties properties_;
  Switches switches_;
};

Result<bool> CudaDevice::enter() {
  CurrentContext current(*context_);
  MOEJIT_TRY(current.check(Stage::kLaunch));
  return current.keep();
}

Result<void> CudaDevice::reach(Device& peer) {
  const auto* other = dynamic_cast<const CudaDevice*>(&peer);
  if (other == nullptr || api().ctx_enable_peer_access == nullptr ||
      api().device_can_access_peer == nullptr)
    return Device::reach(peer);
  if (other->context_->handle() == context_->handle()) return {};
  int can_access = 0;
  MOEJIT_TRY_DRIVER(api(), Stage::kLaunch, device_can_access_peer,
                    (&can_access, context_->device(), other->context_->device()));
  if (can_access == 0)
    return fail(Stage::kLaunch, ErrorCode::kUnsupported,
                fmt::format("GPU {} cannot reach memory of GPU {}: no link joins them",
                            properties_.facts.ordinal, other->properties_.facts.ordinal));
  const CurrentContext current(*context_);
  MOEJIT_TRY(current.check(Stage::kLaunch));
  const CUresult result = api().ctx_enable_peer_access(other->context_->handle(), 0);
  if (result == CUDA_SUCCESS || result == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED) return {};
  return tl::make_unexpected(driver_error(api(), Stage::kLaunch, "cuCtxEnablePeerAccess", result));
}

void CudaDevice::leave() {
  CUcontext popped = nullptr;
  if (!is_process_ending()) api().ctx_pop_current(&popped);
}

Result<std::unique_ptr<LoadedKernel>> CudaDevice::load(const compiler::KernelBinary& binary) {
  if (!compiler::runs_on(binary.target, properties_.capability))
    return fail(Stage::kLoad, ErrorCode::kUnsupported,
                fmt::format("kernel {} was compiled for {}, wanted {} for the {}", binary.entry,
                            to_string(binary.target), to_string(target()), name()));
  MOEJIT_TRY_ASSIGN(auto kernel, libraries_->use(binary));
  return std::make_unique<CudaKernel>(libraries_, std::move(kernel), binary.entry);
}

// Checks the device's limits, so that errors are in words and come before the driver's.
Result<void> CudaDevice::check(const LaunchRequest& request, const CudaKernel& kernel) const {
  struct Limit {
    std::string_view what;
    int64_t got, least, most;
  };
  if (kernel.libraries() != libraries_.get())
    return fail(
        Stage::kLaunch, ErrorCode::kInternal,
        fmt::format("the kernel {} was not loaded by this device, the {}", kernel.entry(), name()));
  const KernelLibrary& most = *kernel.kernel();
  for (const Limit& limit :
       {Limit{"number of CTAs", request.ctas, 0, std::numeric_limits<int32_t>::max()},
        Limit{"threads per CTA", request.threads, 1, most.most_threads},
        Limit{"bytes of dynamic shared memory", request.shared_bytes, 0, most.most_dynamic_bytes}})
    if (limit.got < limit.least || limit.got > limit.most)
      return fail(Stage::kLaunch, ErrorCode::kInvalidValue,
                  fmt::format("{} of kernel {}: got {}, wanted {} to {}", limit.what,
                              kernel.entry(), limit.got, limit.least, limit.most));
  return {};
}

Result<bool> CudaDevice::is_recording(Stream stream) const {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  MOEJIT_TRY_DRIVER(api(), Stage::kLaunch, stream_is_capturing, (stream_of(stream), &status));
  return status != CU_STREAM_CAPTURE_STATUS_NONE;
}

Result<void> CudaDevice::launch(const LaunchRequest& request, Stream stream) {
  MOEJIT_TRY(check(request, static_cast<const CudaKernel&>(*request.kernel)));
  if (request.ctas == 0) return {};
  if (request.is_recorded) return enqueue(request, *request.is_recorded, stream_of(stream));
  const CurrentContext current(*context_);
  MOEJIT_TRY(current.check(Stage::kLaunch));
  MOEJIT_TRY_ASSIGN(const bool is_recorded, is_recording(stream));
  return enqueue(request, is_recorded, stream_of(stream));
}

Result<void> CudaDevice::enqueue(const LaunchRequest& request, bool is_recorded, CUstream stream) {
  const auto& loaded = static_cast<const CudaKernel&>(*request.kernel);
  if (is_recorded) MOEJIT_TRY(keep_for_graph(api(), loaded.kernel(), stream));
  CUlaunchConfig config{};
  config.gridDimX = static_cast<unsigned>(request.ctas);
  config.gridDimY = config.gridDimZ = 1;
  config.blockDimX = static_cast<unsigned>(request.threads);
  config.blockDimY = config.blockDimZ = 1;
  config.sharedMemBytes = static_cast<unsigned>(request.shared_bytes);
  config.hStream = stream;
  CUlaunchAttribute overlap{};
  overlap.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
  overlap.value.programmaticStreamSerializationAllowed = 1;
  if (request.overlaps && takes_overlaps(is_recorded)) {
    config.attrs = &overlap;
    config.numAttrs = 1;
  }
  // The driver copies the record before it returns and takes the pointer as not const.
  std::array<void*, 1> arguments = {const_cast<std::byte*>(request.params.data())};
  // The driver takes a CUkernel for a CUfunction here: its function in the current context.
  MOEJIT_TRY_DRIVER(
      api(), Stage::kLaunch, launch_kernel_ex,
      (&config, reinterpret_cast<CUfunction>(loaded.kernel()->kernel), arguments.data(), nullptr));
  return {};
}

Result<void*> CudaDevice::allocate(int64_t bytes) {
  if (bytes == 0) return nullptr;
  const CurrentContext current(*context_);
  MOEJIT_TRY(current.check(Stage::kLoad));
  CUdeviceptr address = 0;
  const CUresult result = api().mem_alloc(&address, static_cast<size_t>(bytes));
  if (result == CUDA_SUCCESS) return reinterpret_cast<void*>(address);
  Error error = driver_error(api(), Stage::kLoad, "cuMemAlloc", result);
  error.message += fmt::format(" (asked for {} bytes)", bytes);
  return tl::make_unexpected(std::move(error));
}

Result<void> CudaDevice::release(void* address) {
  if (address == nullptr) return {};
  const CurrentContext current(*context_);
  MOEJIT_TRY(current.check(Stage::kLoad));
  MOEJIT_TRY_DRIVER(api(), Stage::kLoad, mem_free, (device_address(address)));
  return {};
}

Result<void> CudaDevice::copy_to_device(void* destination, const void* source, int64_t bytes) {
  if (bytes == 0) return {};
  const CurrentContext current(*context_);
  MOEJIT_TRY(current.check(Stage::kLaunch));
  MOEJIT_TRY_DRIVER(api(), Stage::kLaunch, memcpy_htod,
                    (device_address(destination), source, static_cast<size_t>(bytes)));
  // From pageable memory the copy returns when the bytes are staged. Non-blocking streams do not
  // wait for them to land (CUDA driver API, "API synchronization behavior").
  MOEJIT_TRY_DRIVER(api(), Stage::kLaunch, stream_synchronize, (nullptr));
  return {};
}

Result<void> CudaDevice::copy_to_host(void* destination, const void* source, int64_t bytes) {
  if (bytes == 0) return {};
  const CurrentContext current(*context_);
  MOEJIT_TRY(current.check(Stage::kLaunch));
  MOEJIT_TRY_DRIVER(api(), Stage::kLaunch, memcpy_dtoh,
                    (destination, device_address(source), static_cast<size_t>(bytes)));
  return {};
}

Result<void> CudaDevice::copy_on_device(void* destination, const void* source, int64_t bytes,
                                        Stream stream) {
  if (bytes == 0) return {};
  const CurrentContext current(*context_);
  MOEJIT_TRY(current.check(Stage::kLaunch));
  MOEJIT_TRY_DRIVER(api(), Stage::kLaunch, memcpy_dtod_async,
                    (device_address(destination), device_address(source),
                     static_cast<size_t>(bytes), stream_of(stream)));
  return {};
}

Result<void> CudaDevice::fill(void* destination, std::byte value, int64_t bytes, Stream stream) {
  if (bytes == 0) return {};
  const CurrentContext current(*context_);
  MOEJIT_TRY(current.check(Stage::kLaunch));
  MOEJIT_TRY_DRIVER(api(), Stage::kLaunch, memset_d8_async,
                    (device_address(destination), static_cast<unsigned char>(value),
                     static_cast<size_t>(bytes), stream_of(stream)));
  return {};
}

Result<void> CudaDevice::synchronize(Stream stream) {
  const CurrentContext current(*context_);
  MOEJIT_TRY(current.check(Stage::kLaunch));
  MOEJIT_TRY_DRIVER(api(), Stage::kLaunch, stream_synchronize, (stream_of(stream)));
  return {};
}

Result<void> CudaDevice::synchronize_all() {
  const CurrentContext current(*context_);
  MOEJIT_TRY(current.check(Stage::kLaunch));
  MOEJIT_TRY_DRIVER(api(), Stage::kLaunch, ctx_synchronize, ());
  return {};
}

Result<void*> CudaDevice::record_mark(Stream stream) {
  const CurrentContext current(*context_);
  MOEJIT_TRY(current.check(Stage::kLaunch));
  CUevent event = nullptr;
  MOEJIT_TRY_DRIVER(api(), Stage::kLaunch, event_create, (&event, CU_EVENT_DEFAULT));
  const CUresult result = api().event_record(event, stream_of(stream));
  if (result == CUDA_SUCCESS) return event;
  api().event_destroy(event);
  return tl::make_unexpected(driver_error(api(), Stage::kLaunch, "cuEventRecord", result));
}

Result<double> CudaDevice::microseconds_between(void* first, void* second) {
  const CurrentContext current(*context_);
  MOEJIT_TRY(current.check(Stage::kLaunch));
  float milliseconds = 0.0F;
  MOEJIT_TRY_DRIVER(api(), Stage::kLaunch, event_synchronize, (static_cast<CUevent>(second)));
  MOEJIT_TRY_DRIVER(api(), Stage::kLaunch, event_elapsed_time,
                    (&milliseconds, static_cast<CUevent>(first), static_cast<CUevent>(second)));
  return 1000.0 * static_cast<double>(milliseconds);
}

void CudaDevice::release_mark(void* mark) {
  if (mark == nullptr) return;
  const CurrentContext current(*context_);
  if (current.is_current()) api().event_destroy(static_cast<CUevent>(mark));
}

}  // namespace

Result<std::unique_ptr<Device>> open_cuda_device(int32_t ordinal,
                                                 const std::optional<compiler::Target>& target) {
  MOEJIT_TRY_ASSIGN(const DriverApi* api, driver_api());
  MOEJIT_TRY_ASSIGN(const auto context, Context::adopt(*api, ordinal));
  MOEJIT_TRY_ASSIGN(auto properties, gpu_properties(*context));
  if (target && !compiler::runs_on(*target, properties.capability))
    return fail(Stage::kLoad, ErrorCode::kUnsupported,
                fmt::format("the GPU {} runs {}, wanted {}", properties.name,
                            to_string(properties.target), to_string(*target)));
  if (target) properties.target = *target;
  MOEJIT_TRY_ASSIGN(const bool checks_pointers, is_switched_on(Variable::kCheckPointers));
  MOEJIT_TRY_ASSIGN(const bool serializes_launches, is_switched_on(Variable::kSerialLaunches));
  return std::make_unique<CudaDevice>(
      context, std::move(properties),
      CudaDevice::Switches{.checks_pointers = checks_pointers,
                           .serializes_launches = serializes_launches});
}

}  // namespace moejit::runtime
