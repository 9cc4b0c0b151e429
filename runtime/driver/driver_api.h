// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/support/error.h"

#include <cstddef>
#include <cuda.h>
#include <string>

#if CUDA_VERSION < 12000
#error "moejit is built with the cuda.h of CUDA 12.0 or later: older ones know no tensor maps"
#endif
#if CUDA_VERSION < 12040
// Drivers may have functions that the headers do not declare yet.
extern "C" CUresult CUDAAPI cuKernelGetParamInfo(CUkernel, std::size_t, std::size_t*, std::size_t*);
#endif
#ifndef cuStreamGetCaptureInfo_v2
// The cuda.h of CUDA 12.3 and later declares the function's successor instead.
extern "C" CUresult CUDAAPI cuStreamGetCaptureInfo_v2(CUstream, CUstreamCaptureStatus*, cuuint64_t*,
                                                      CUgraph*, const CUgraphNode**, std::size_t*);
#endif

namespace moejit::runtime {

// The functions of libcuda that we call, resolved at run time: nothing of moejit links to it. An
// optional function is null if the driver lacks it.
struct DriverApi {
#define MOEJIT_DRIVER_FUNCTION(member, name, symbol, version) decltype(&::name) member = nullptr;
#include "runtime/driver/driver_functions.inc"
#undef MOEJIT_DRIVER_FUNCTION

  std::string library;  // path that was opened
  int version = 0;      // newest CUDA release that the driver knows: 13000 = 13.0
};

// Opens MOEJIT_CUDA_DRIVER, else libcuda.so.1, and initializes it. A success is remembered until
// the process ends (the library is never closed), a failure is not. Errors: kDriverMissing names
// what was tried, or the function that is absent; kNoDevice.
Result<const DriverApi*> driver_api();

// Returns whether the process has begun to end. The driver may be gone then, so none of it is
// called any more, whatever destructor or thread still runs. Loaded kernels go with the process.
bool is_process_ending();

// Returns "12.4" for 12040.
std::string cuda_version_text(int version);

// Returns an Error that names the call, the CUresult and its text. Its code is kOutOfMemory or
// kStreamCapture if the driver says so, else kDriver.
Error driver_error(const DriverApi& api, Stage stage, const char* call, CUresult result);

}  // namespace moejit::runtime

// Returns the error of a driver call from the enclosing function: MOEJIT_TRY_DRIVER(api, stage,
// mem_alloc, (&pointer, bytes)).
#define MOEJIT_TRY_DRIVER(api, stage, member, arguments)                            \
  do {                                                                              \
    const CUresult moejit_result = (api).member arguments;                          \
    if (moejit_result != CUDA_SUCCESS)                                              \
      return tl::make_unexpected(::moejit::runtime::driver_error(                   \
          (api), (stage), ::moejit::runtime::driver_names::member, moejit_result)); \
  } while (false)

namespace moejit::runtime::driver_names {
#define MOEJIT_DRIVER_FUNCTION(member, name, symbol, version) \
  inline constexpr const char* member = #name;
#include "runtime/driver/driver_functions.inc"
#undef MOEJIT_DRIVER_FUNCTION
}  // namespace moejit::runtime::driver_names
