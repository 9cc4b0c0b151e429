// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/device.h"
#include "runtime/driver/driver_api.h"

#include <cstdint>
#include <memory>
#include <utility>

namespace moejit::runtime {

// A CUDA context that belongs to the caller, or a primary context that this object retains. This
// code never creates, resets or destroys a context.
class Context {
 public:
  // Returns the current context of this thread if it belongs to the GPU `ordinal`, else the primary
  // context of that GPU. kCurrentGpu means the current context whatever its GPU, else the primary
  // context of GPU 0. Errors: kNoDevice, kDriver.
  static Result<std::shared_ptr<const Context>> adopt(const DriverApi& api, int32_t ordinal);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  const DriverApi& api() const { return *api_; }
  CUcontext handle() const { return handle_; }
  CUdevice device() const { return device_; }

 private:
  Context(const DriverApi& api, CUcontext handle, CUdevice device, bool is_retained)
      : api_(&api), handle_(handle), device_(device), is_retained_(is_retained) {}

  const DriverApi* api_;
  CUcontext handle_;
  CUdevice device_;
  bool is_retained_;
};

// Makes a context current for a scope. Costs one query if it is current already. When the process
// is ending it calls nothing, and check() fails.
class CurrentContext {
 public:
  explicit CurrentContext(const Context& context) : api_(context.api()) {
    if (is_process_ending()) {
      result_ = CUDA_ERROR_DEINITIALIZED;
      return;
    }
    CUcontext current = nullptr;
    result_ = api_.ctx_get_current(&current);
    if (result_ != CUDA_SUCCESS || current == context.handle()) return;
    result_ = api_.ctx_push_current(context.handle());
    is_pushed_ = result_ == CUDA_SUCCESS;
  }
  ~CurrentContext() {
    CUcontext popped = nullptr;
    if (is_pushed_) api_.ctx_pop_current(&popped);
  }
  CurrentContext(const CurrentContext&) = delete;
  CurrentContext& operator=(const CurrentContext&) = delete;

  bool is_current() const { return result_ == CUDA_SUCCESS; }
  // Lets the context stay current after this scope. Returns whether somebody has to pop it.
  bool keep() { return std::exchange(is_pushed_, false); }
  Result<void> check(Stage stage) const {
    if (result_ == CUDA_SUCCESS) return {};
    return tl::make_unexpected(driver_error(api_, stage, "cuCtxPushCurrent", result_));
  }

 private:
  const DriverApi& api_;
  CUresult result_ = CUDA_SUCCESS;
  bool is_pushed_ = false;
};

// Allows driver calls that concern no stream in this scope while a stream is being recorded, and
// keeps the recording valid.
class RelaxedCapture {
 public:
  explicit RelaxedCapture(const DriverApi& api) : api_(api) {
    is_exchanged_ = api_.thread_exchange_capture_mode(&mode_) == CUDA_SUCCESS;
  }
  ~RelaxedCapture() {
    if (is_exchanged_) api_.thread_exchange_capture_mode(&mode_);
  }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  const DriverApi& api_;
  // The thread's earlier mode, once it is exchanged.
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
  bool is_exchanged_ = false;
};

// Checks that the region lies within one allocation, as far as the driver knows. The allocation may
// be of the GPU `ordinal`, managed memory or pinned host memory. This queries the driver, so it is
// for debugging. Error kTensorMismatch names the tensor.
Result<void> check_pointer(const DriverApi& api, int32_t ordinal, const MemoryRegion& region);

}  // namespace moejit::runtime
