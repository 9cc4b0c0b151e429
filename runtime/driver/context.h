// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/driver/driver_api.h"

#include <cstdint>
#include <memory>
#include <utility>

namespace moejit::runtime {

// A CUDA context that is the caller's, or a primary context that this object retains. It is never
// created, reset or destroyed by us.
class Context {
 public:
  // The current context of this thread, else the primary one of the device `ordinal`. Errors:
  // kNoDevice, kDriver.
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

// Makes a context current for a scope. Costs one query where it is current already.
class CurrentContext {
 public:
  explicit CurrentContext(const Context& context) : api_(context.api()) {
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

  Result<void> check(Stage stage) const {
    if (result_ == CUDA_SUCCESS) return {};
    return tl::make_unexpected(driver_error(api_, stage, "cuCtxPushCurrent", result_));
  }

 private:
  const DriverApi& api_;
  CUresult result_ = CUDA_SUCCESS;
  bool is_pushed_ = false;
};

}  // namespace moejit::runtime
