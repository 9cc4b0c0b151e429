// SPDX-License-Identifier: Apache-2.0
// A library that stands between moejit and the CUDA driver and takes the time that calls spend in
// the driver. MOEJIT_CUDA_DRIVER names it. It defines what a call of a prepared layer uses; what it
// does not define is found in libcuda.so.1, which it needs.
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cuda.h>
#include <dlfcn.h>

namespace {

using Clock = std::chrono::steady_clock;

// These count what all threads do: autograd runs backward calls in a thread of its own.
std::atomic<int64_t> nanoseconds_inside{0}, call_count{0}, launch_count{0}, wait_count{0};

template <typename Function>
Function real(const char* symbol) {
  static void* const driver = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  return reinterpret_cast<Function>(::dlsym(driver, symbol));
}

class Inside {
 public:
  Inside() = default;
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;
  ~Inside() {
    nanoseconds_inside += std::chrono::nanoseconds(Clock::now() - start_).count();
    ++call_count;
  }

 private:
  Clock::time_point start_ = Clock::now();
};

}  // namespace

#define EXPORTED extern "C" __attribute__((visibility("default")))

#define TIMED(symbol, counter, declared, passed)                      \
  EXPORTED CUresult symbol declared {                                 \
    static const auto function = real<CUresult(*) declared>(#symbol); \
    counter;                                                          \
    const Inside inside;                                              \
    return function passed;                                           \
  }

TIMED(cuLaunchKernelEx, ++launch_count,
      (const CUlaunchConfig* config, CUfunction function_, void** arguments, void** extra),
      (config, function_, arguments, extra))
TIMED(cuTensorMapEncodeTiled, ,
      (CUtensorMap * map, CUtensorMapDataType type, cuuint32_t rank, void* address,
       const cuuint64_t* dims, const cuuint64_t* strides, const cuuint32_t* box,
       const cuuint32_t* steps, CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
       CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill),
      (map, type, rank, address, dims, strides, box, steps, interleave, swizzle, promotion, fill))
TIMED(cuMemsetD8Async, ++launch_count,
      (CUdeviceptr address, unsigned char value, size_t bytes, CUstream stream),
      (address, value, bytes, stream))
TIMED(cuMemcpyDtoDAsync_v2, ++launch_count,
      (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream), (to, from, bytes, stream))
TIMED(cuCtxGetCurrent, , (CUcontext * context), (context))
TIMED(cuCtxGetDevice, , (CUdevice * device), (device))
TIMED(cuCtxPushCurrent_v2, , (CUcontext context), (context))
TIMED(cuCtxPopCurrent_v2, , (CUcontext * context), (context))
TIMED(cuStreamIsCapturing, , (CUstream stream, CUstreamCaptureStatus* status), (stream, status))
TIMED(cuPointerGetAttributes, ,
      (unsigned count, CUpointer_attribute* attributes, void** data, CUdeviceptr address),
      (count, attributes, data, address))
TIMED(cuStreamSynchronize, ++wait_count, (CUstream stream), (stream))
TIMED(cuCtxSynchronize, ++wait_count, (), ())
TIMED(cuEventSynchronize, ++wait_count, (CUevent event), (event))
TIMED(cuMemcpyDtoH_v2, ++wait_count, (void* to, CUdeviceptr from, size_t bytes), (to, from, bytes))
TIMED(cuMemcpyHtoD_v2, ++wait_count, (CUdeviceptr to, const void* from, size_t bytes),
      (to, from, bytes))

// Sums since the library was loaded.
EXPORTED int64_t timed_cuda_nanoseconds() { return nanoseconds_inside; }
EXPORTED int64_t timed_cuda_calls() { return call_count; }
EXPORTED int64_t timed_cuda_launches() { return launch_count; }
EXPORTED int64_t timed_cuda_waits() { return wait_count; }
