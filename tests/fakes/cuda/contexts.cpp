// SPDX-License-Identifier: Apache-2.0
// Devices and contexts of the fake driver: each thread has a stack of contexts, each device a
// primary context that lives while somebody retains it.
#include "tests/fakes/cuda/driver_state.h"

#include <algorithm>
#include <cstring>
#include <string_view>

namespace moejit::testing::fake {
namespace {

// Never destroyed: a host's destructors call the driver after those of its threads' variables.
std::vector<Context*>& contexts_of_thread() {
  thread_local auto* const all = new std::vector<Context*>;
  return *all;
}

struct Primary {
  Context* context = nullptr;
  int64_t retained = 0;
};

std::mutex& contexts_mutex() {
  static std::mutex& mutex = *new std::mutex;
  return mutex;
}

std::array<Primary, FakeCudaControl::kDevices> primaries;  // under contexts_mutex()

Context* make_context(CUdevice device, bool is_primary) {
  static std::atomic<std::size_t> made{0};
  auto* const context = new Context;
  context->device = device;
  context->index = made++ % 64;
  context->is_primary = is_primary;
  context->is_alive = true;
  context->legacy.context = context;
  context->legacy.is_legacy = true;
  return context;
}

// The memory of kernels goes with the context; launches too.
void end_context(Context& context) {
  finish_launches(context);
  context.is_alive = false;
}

Context* context_of(CUcontext handle) { return reinterpret_cast<Context*>(handle); }
CUcontext handle_of(Context* context) { return reinterpret_cast<CUcontext>(context); }

}  // namespace

Context* current_context() {
  const std::vector<Context*>& stack = contexts_of_thread();
  return stack.empty() ? nullptr : stack.back();
}
bool is_alive(const Context* context) { return context != nullptr && context->is_alive; }

uint64_t this_thread() {
  static std::atomic<uint64_t> threads{0};
  thread_local const uint64_t mine = ++threads;
  return mine;
}

}  // namespace moejit::testing::fake

using namespace moejit::testing;
using namespace moejit::testing::fake;

FAKE CUresult cuDeviceGetCount(int* number) {
  FAKE_CALL(device_get_count);
  *number = device_count();
  return CUDA_SUCCESS;
}

FAKE CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  FAKE_CALL(device_get);
  if (!is_device(ordinal)) return CUDA_ERROR_INVALID_DEVICE;
  *device = ordinal;
  return CUDA_SUCCESS;
}

FAKE CUresult cuDeviceGetName(char* name, int bytes, CUdevice device) {
  FAKE_CALL(device_get_name);
  if (!is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  constexpr std::string_view kName = "Fake H200";
  std::memcpy(name, kName.data(), std::min<std::size_t>(kName.size() + 1, bytes));
  return CUDA_SUCCESS;
}

FAKE CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device) {
  FAKE_CALL(device_get_attribute);
  if (!is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  const int32_t capability = control().compute_capability;
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
      *value = capability == 0 ? 9 : capability / 10;
      return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
      *value = capability % 10;
      return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: *value = 132; return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK: *value = kMostThreads; return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
      *value = kSharedBytesOptIn;
      return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED: *value = 1; return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED:
      *value = control().shares_nothing == 0 ? 1 : 0;
      return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE: *value = 60 << 20; return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH: *value = 6144; return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE: *value = 3201000; return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_CLOCK_RATE: *value = 1980000; return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID: *value = 0; return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID: *value = 16 + device; return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID: *value = 0; return CUDA_SUCCESS;
    default: return CUDA_ERROR_INVALID_VALUE;
  }
}

FAKE CUresult cuDevicePrimaryCtxRetain(CUcontext* handle, CUdevice device) {
  FAKE_CALL(primary_ctx_retain);
  if (!is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  const std::lock_guard lock(contexts_mutex());
  Primary& primary = primaries[static_cast<std::size_t>(device)];
  if (!is_alive(primary.context)) primary.context = make_context(device, true);
  ++primary.retained;
  count(control().primaries_retained);
  *handle = handle_of(primary.context);
  return CUDA_SUCCESS;
}

FAKE CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  FAKE_CALL(primary_ctx_release);
  if (!is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  const std::lock_guard lock(contexts_mutex());
  Primary& primary = primaries[static_cast<std::size_t>(device)];
  if (primary.retained == 0) return CUDA_ERROR_INVALID_CONTEXT;
  count(control().primaries_released);
  if (--primary.retained == 0) end_context(*primary.context);
  return CUDA_SUCCESS;
}

FAKE CUresult cuDevicePrimaryCtxReset_v2(CUdevice device) {
  FAKE_CALL(primary_ctx_reset);
  if (!is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  const std::lock_guard lock(contexts_mutex());
  Primary& primary = primaries[static_cast<std::size_t>(device)];
  count(control().contexts_reset);
  if (is_alive(primary.context)) end_context(*primary.context);
  return CUDA_SUCCESS;
}

// The signature before CUDA 13, which tests call.
FAKE CUresult cuCtxCreate_v2(CUcontext* handle, unsigned, CUdevice device) {
  FAKE_CALL(ctx_create);
  if (!is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  count(control().contexts_created);
  contexts_of_thread().push_back(make_context(device, false));
  *handle = handle_of(current_context());
  return CUDA_SUCCESS;
}

FAKE CUresult cuCtxDestroy_v2(CUcontext handle) {
  FAKE_CALL(ctx_destroy);
  if (!is_alive(context_of(handle))) return CUDA_ERROR_INVALID_CONTEXT;
  count(control().contexts_destroyed);
  end_context(*context_of(handle));
  if (current_context() == context_of(handle)) contexts_of_thread().pop_back();
  return CUDA_SUCCESS;
}

FAKE CUresult cuCtxSetCurrent(CUcontext handle) {
  FAKE_CALL(ctx_set_current);
  std::vector<Context*>& stack = contexts_of_thread();
  if (!stack.empty()) stack.pop_back();
  if (handle != nullptr) stack.push_back(context_of(handle));
  return CUDA_SUCCESS;
}

FAKE CUresult cuCtxGetCurrent(CUcontext* handle) {
  FAKE_CALL(ctx_get_current);
  *handle = handle_of(current_context());
  return CUDA_SUCCESS;
}

FAKE CUresult cuCtxPushCurrent_v2(CUcontext handle) {
  FAKE_CALL(ctx_push_current);
  if (!is_alive(context_of(handle))) return CUDA_ERROR_INVALID_CONTEXT;
  count(control().pushed);
  contexts_of_thread().push_back(context_of(handle));
  return CUDA_SUCCESS;
}

FAKE CUresult cuCtxPopCurrent_v2(CUcontext* handle) {
  FAKE_CALL(ctx_pop_current);
  if (current_context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  count(control().popped);
  *handle = handle_of(current_context());
  contexts_of_thread().pop_back();
  return CUDA_SUCCESS;
}

FAKE CUresult cuCtxGetDevice(CUdevice* device) {
  FAKE_CALL(ctx_get_device);
  if (!is_alive(current_context())) return CUDA_ERROR_INVALID_CONTEXT;
  *device = current_context()->device;
  return CUDA_SUCCESS;
}

FAKE CUresult cuCtxSynchronize() {
  FAKE_CALL(ctx_synchronize);
  Context* const context = current_context();
  if (!is_alive(context)) return CUDA_ERROR_INVALID_CONTEXT;
  if (context->lost != CUDA_SUCCESS) return context->lost;
  if (const CUresult result = check_wait_for(*context); result != CUDA_SUCCESS) return result;
  finish_launches(*context);
  return CUDA_SUCCESS;
}
