// SPDX-License-Identifier: Apache-2.0
// Begin and end of the fake driver: initialisation, calls and their failures, version and names of
// results.
#include "tests/fakes/cuda/driver_state.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <string>
#include <unistd.h>

namespace moejit::testing::fake {
namespace {

std::atomic<pid_t> initialised_in{0};
std::atomic<bool> is_shut_down{false};
thread_local uint64_t ticks_inside = 0;

uint64_t ticks() {
#ifdef __x86_64__
  return __builtin_ia32_rdtsc();
#else
  return static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
#endif
}

void shut_down() { is_shut_down = true; }

// What tells about the driver itself works without a GPU, and never fails.
bool is_always_possible(CudaCall which) {
  return which == CudaCall::init || which == CudaCall::driver_get_version ||
         which == CudaCall::get_error_name || which == CudaCall::get_error_string;
}

CUresult injected_failure(CudaCall which, int64_t number) {
  FakeCudaControl& all = control();
  if (number != all.fail_at.load(std::memory_order_relaxed)) return CUDA_SUCCESS;
  const auto result = static_cast<CUresult>(all.fail_with.load());
  all.failed = static_cast<int64_t>(which) + 1;
  if (all.is_failure_sticky != 0)
    if (Context* const context = current_context()) context->lost = result;
  return result;
}

}  // namespace

thread_local bool is_in_callback = false;

FakeCudaControl& control() {
  static CudaControl& mapped = *new CudaControl([] {
    const char* const path = std::getenv("FAKE_CUDA_CONTROL");  // NOLINT(concurrency-mt-unsafe)
    return std::string(path != nullptr ? path : "/dev/null/no-FAKE_CUDA_CONTROL");
  }());
  return *mapped;
}

Call::Call(CudaCall which) {
  FakeCudaControl& all = control();
  if (all.takes_time.load(std::memory_order_relaxed) != 0) start_ = ticks();
  count(all.calls_of[static_cast<std::size_t>(which)]);
  const int64_t number = all.calls.fetch_add(1, std::memory_order_relaxed) + 1;
  if (is_in_callback) count(all.calls_in_callbacks);
  if (is_shut_down.load(std::memory_order_relaxed)) {
    count(all.calls_after_shutdown);
    early_result_ = CUDA_ERROR_DEINITIALIZED;
  } else if (is_always_possible(which)) {
    early_result_ = CUDA_SUCCESS;
  } else if (initialised_in.load(std::memory_order_relaxed) != ::getpid()) {
    early_result_ = CUDA_ERROR_NOT_INITIALIZED;  // a child of fork() is not either
  } else {
    early_result_ = injected_failure(which, number);
  }
}

Call::~Call() {
  if (start_ != 0) ticks_inside += ticks() - start_;
}

int device_count() {
  const int32_t count = control().devices;
  return count == 0 ? 1 : std::max(count, 0);
}

bool is_device(int ordinal) { return ordinal >= 0 && ordinal < device_count(); }

}  // namespace moejit::testing::fake

using namespace moejit::testing;
using namespace moejit::testing::fake;

FAKE uint64_t fake_cuda_ticks_inside() { return ticks_inside; }
FAKE int64_t fake_cuda_calls() { return control().calls.load(std::memory_order_relaxed); }

FAKE CUresult cuInit(unsigned) {
  FAKE_CALL(init);
  if (device_count() == 0) return CUDA_ERROR_NO_DEVICE;
  // As early as a driver may end: before everything that was there when it began.
  if (initialised_in.exchange(::getpid()) == 0) std::atexit(shut_down);
  return CUDA_SUCCESS;
}

FAKE CUresult cuDriverGetVersion(int* version) {
  FAKE_CALL(driver_get_version);
  const int32_t wanted = control().driver_version;
  *version = wanted == 0 ? 13000 : wanted;
  return CUDA_SUCCESS;
}

namespace {

const char* name_of(CUresult result) {
  switch (result) {
    case CUDA_SUCCESS: return "CUDA_SUCCESS";
    case CUDA_ERROR_INVALID_VALUE: return "CUDA_ERROR_INVALID_VALUE";
    case CUDA_ERROR_OUT_OF_MEMORY: return "CUDA_ERROR_OUT_OF_MEMORY";
    case CUDA_ERROR_NOT_INITIALIZED: return "CUDA_ERROR_NOT_INITIALIZED";
    case CUDA_ERROR_DEINITIALIZED: return "CUDA_ERROR_DEINITIALIZED";
    case CUDA_ERROR_NO_DEVICE: return "CUDA_ERROR_NO_DEVICE";
    case CUDA_ERROR_INVALID_DEVICE: return "CUDA_ERROR_INVALID_DEVICE";
    case CUDA_ERROR_INVALID_IMAGE: return "CUDA_ERROR_INVALID_IMAGE";
    case CUDA_ERROR_INVALID_CONTEXT: return "CUDA_ERROR_INVALID_CONTEXT";
    case CUDA_ERROR_INVALID_HANDLE: return "CUDA_ERROR_INVALID_HANDLE";
    case CUDA_ERROR_NOT_FOUND: return "CUDA_ERROR_NOT_FOUND";
    case CUDA_ERROR_ILLEGAL_ADDRESS: return "CUDA_ERROR_ILLEGAL_ADDRESS";
    case CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED: return "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED";
    case CUDA_ERROR_STREAM_CAPTURE_INVALIDATED: return "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED";
    case CUDA_ERROR_STREAM_CAPTURE_IMPLICIT: return "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT";
    default: return "CUDA_ERROR_OF_THE_FAKE";
  }
}

}  // namespace

FAKE CUresult cuGetErrorName(CUresult result, const char** name) {
  FAKE_CALL(get_error_name);
  *name = name_of(result);
  return CUDA_SUCCESS;
}

FAKE CUresult cuGetErrorString(CUresult, const char** text) {
  FAKE_CALL(get_error_string);
  *text = "said by the fake driver";
  return CUDA_SUCCESS;
}
