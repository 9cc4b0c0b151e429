// SPDX-License-Identifier: Apache-2.0
#include "runtime/driver/context.h"

#include "runtime/device.h"

#include <fmt/core.h>

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

}  // namespace moejit::runtime
