// SPDX-License-Identifier: Apache-2.0
#include "runtime/driver/kernel_libraries.h"

#include <fmt/core.h>
#include <mutex>
#include <utility>

namespace moejit::runtime {

using compiler::KernelBinary;

Result<std::shared_ptr<KernelLibrary>> KernelLibraries::use(const KernelBinary& binary) {
  const Digest image = sha256(binary.bytes);
  const std::lock_guard lock(mutex_);
  auto found = kernels_.find(image);
  if (found == kernels_.end()) {
    auto loaded = load(binary);
    if (!loaded && loaded.error().code == ErrorCode::kOutOfMemory && !idle_.empty()) {
      unload_idle(0);
      loaded = load(binary);
    }
    if (!loaded) return tl::make_unexpected(std::move(loaded).error());
    (*loaded)->image = image;
    found = kernels_.emplace(image, std::move(*loaded)).first;
  }
  const std::shared_ptr<KernelLibrary> kernel = found->second;
  if (kernel->uses++ == 0) idle_.remove(kernel.get());
  if (idle_.size() > kMostIdle) unload_idle(kMostIdle / 2);
  return kernel;
}

void KernelLibraries::let_go(KernelLibrary& kernel) {
  const std::lock_guard lock(mutex_);
  if (--kernel.uses == 0) idle_.push_back(&kernel);
}

void KernelLibraries::unload_idle(std::size_t kept) {
  const CurrentContext current(*context_);
  if (!current.is_current() || idle_.size() <= kept) return;
  const DriverApi& api = context_->api();
  // Launches of idle kernels may be in flight. A context that cannot be waited for unloads nothing.
  if (api.ctx_synchronize() != CUDA_SUCCESS) return;
  const RelaxedCapture relaxed(api);
  for (auto each = idle_.begin(); each != idle_.end() && idle_.size() > kept;) {
    const auto owned = kernels_.find((*each)->image);
    if (owned->second.use_count() > 1) {  // a graph uses it, or a layer that is just letting go
      ++each;
      continue;
    }
    api.library_unload(owned->second->library);
    each = idle_.erase(each);
    kernels_.erase(owned);
  }
}

Result<std::shared_ptr<KernelLibrary>> KernelLibraries::load(const KernelBinary& binary) const {
  const DriverApi& api = context_->api();
  const CurrentContext current(*context_);
  MOEJIT_TRY(current.check(Stage::kLoad));
  const RelaxedCapture relaxed(api);
  auto kernel = std::make_shared<KernelLibrary>();
  const CUresult result = api.library_load_data(&kernel->library, binary.bytes.data(), nullptr,
                                                nullptr, 0, nullptr, nullptr, 0);
  if (result != CUDA_SUCCESS) {
    Error error = driver_error(api, Stage::kLoad, "cuLibraryLoadData", result);
    if (error.hint.empty())
      error.hint = fmt::format(
          "the driver knows CUDA {}; a kernel compiled by a newer release of "
          "NVRTC may need a newer driver",
          cuda_version_text(api.version));
    error.message = fmt::format("kernel {}: {}", binary.entry, error.message);
    return tl::make_unexpected(std::move(error));
  }
  if (auto ready = make_ready(*kernel, binary); !ready) {
    api.library_unload(kernel->library);
    ready.error().message = fmt::format("kernel {}: {}", binary.entry, ready.error().message);
    return tl::make_unexpected(std::move(ready).error());
  }
  return kernel;
}

// Resolves the entry and raises its limit of dynamic shared memory on this GPU. Makes the driver
// load the code now, since the first launch may be recorded into a graph.
Result<void> KernelLibraries::make_ready(KernelLibrary& kernel, const KernelBinary& binary) const {
  const DriverApi& api = context_->api();
  const CUdevice device = context_->device();
  MOEJIT_TRY_DRIVER(api, Stage::kLoad, library_get_kernel,
                    (&kernel.kernel, kernel.library, binary.entry.c_str()));
  int static_bytes = 0;
  MOEJIT_TRY_DRIVER(api, Stage::kLoad, kernel_get_attribute,
                    (&static_bytes, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, kernel.kernel, device));
  MOEJIT_TRY_DRIVER(
      api, Stage::kLoad, kernel_get_attribute,
      (&kernel.most_threads, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, kernel.kernel, device));
  kernel.most_dynamic_bytes = most_shared_bytes_ - static_bytes;
  MOEJIT_TRY_DRIVER(api, Stage::kLoad, kernel_set_attribute,
                    (CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, kernel.most_dynamic_bytes,
                     kernel.kernel, device));
  CUfunction function = nullptr;
  MOEJIT_TRY_DRIVER(api, Stage::kLoad, kernel_get_function, (&function, kernel.kernel));
  if (api.kernel_get_param_info == nullptr) return {};
  std::size_t offset = 0, bytes = 0;
  MOEJIT_TRY_DRIVER(api, Stage::kLoad, kernel_get_param_info, (kernel.kernel, 0, &offset, &bytes));
  kernel.param_bytes = bytes;
  return {};
}

Result<void> keep_for_graph(const DriverApi& api, std::shared_ptr<KernelLibrary> kernel,
                            CUstream stream) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  CUgraph graph = nullptr;
  MOEJIT_TRY_DRIVER(api, Stage::kLaunch, stream_get_capture_info,
                    (stream, &status, nullptr, &graph, nullptr, nullptr));
  if (status != CU_STREAM_CAPTURE_STATUS_ACTIVE) return {};
  // The driver calls this when the last graph of the kernel is gone, on a thread that must not call
  // the driver.
  using Share = std::shared_ptr<KernelLibrary>;
  const auto end = [](void* share) { delete static_cast<Share*>(share); };
  auto share = std::make_unique<Share>(std::move(kernel));
  CUuserObject keeper = nullptr;
  MOEJIT_TRY_DRIVER(api, Stage::kLaunch, user_object_create,
                    (&keeper, share.get(), end, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
  static_cast<void>(share.release());  // the keeper owns it now
  const CUresult result = api.graph_retain_user_object(graph, keeper, 1, CU_GRAPH_USER_OBJECT_MOVE);
  if (result == CUDA_SUCCESS) return {};
  api.user_object_release(keeper, 1);
  return tl::make_unexpected(driver_error(api, Stage::kLaunch, "cuGraphRetainUserObject", result));
}

}  // namespace moejit::runtime
