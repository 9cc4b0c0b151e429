// SPDX-License-Identifier: Apache-2.0
#include "runtime/driver/driver_api.h"

#include "compiler/support/dynamic_library.h"
#include "compiler/support/env.h"

#include <atomic>
#include <cstdlib>
#include <dlfcn.h>
#include <fmt/core.h>
#include <memory>
#include <mutex>
#include <vector>

namespace moejit::runtime {
namespace {

std::atomic<bool> process_is_ending{false};

constexpr const char* kSimulatorHint =
    "install the NVIDIA driver, or open the simulator instead: moejit_device_open_simulator(), in "
    "C++ open_simulator()";

std::vector<std::string> candidates() {
  if (auto named = environment(Variable::kCudaDriver)) return {std::move(*named)};
  // The second path is used by the driver in Windows' Linux subsystem.
  return {"libcuda.so.1", "/usr/lib/wsl/lib/libcuda.so.1"};
}

tl::unexpected<Error> missing_driver(std::string message, std::string detail = {}) {
  return fail(Stage::kLoad, ErrorCode::kDriverMissing, std::move(message), kSimulatorHint,
              std::move(detail));
}

struct OpenLibrary {
  std::string path;
  void* handle = nullptr;
};

Result<OpenLibrary> open_library() {
  std::string tried, reasons;
  for (const std::string& path : candidates()) {
    void* handle = is_openable(path) ? ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL) : nullptr;
    if (handle != nullptr) return OpenLibrary{path, handle};
    tried += (tried.empty() ? "" : ", ") + path;
    if (const char* reason = ::dlerror()) reasons += fmt::format("{}\n", reason);
  }
  return missing_driver(fmt::format("no CUDA driver library found, tried {}", tried), reasons);
}

template <typename Function>
Function function_of(const OpenLibrary& library, const char* symbol) {
  return reinterpret_cast<Function>(::dlsym(library.handle, symbol));
}

template <typename Function>
Result<void> resolve(const OpenLibrary& library, Function& function, const char* symbol,
                     int version) {
  function = function_of<Function>(library, symbol);
  if (function != nullptr) return {};
  return missing_driver(
      fmt::format("the CUDA driver library {} has no function {}, wanted one of CUDA "
                  "12.0 or later (the function came with {})",
                  library.path, symbol, cuda_version_text(version)));
}

Result<std::unique_ptr<DriverApi>> resolve_all(const OpenLibrary& library) {
  auto api = std::make_unique<DriverApi>();
  api->library = library.path;
#define MOEJIT_DRIVER_FUNCTION(member, name, symbol, version) \
  MOEJIT_TRY(resolve(library, api->member, symbol, version));
#define MOEJIT_OPTIONAL_DRIVER_FUNCTION(member, name, symbol, version) \
  api->member = function_of<decltype(api->member)>(library, symbol);
#include "runtime/driver/driver_functions.inc"
#undef MOEJIT_DRIVER_FUNCTION
  return api;
}

Result<void> initialise(DriverApi& api) {
  const CUresult result = api.init(0);
  if (result == CUDA_ERROR_NO_DEVICE)
    return fail(Stage::kLoad, ErrorCode::kNoDevice,
                fmt::format("the CUDA driver {} finds no GPU", api.library), kSimulatorHint);
  if (result == CUDA_ERROR_STUB_LIBRARY)
    return missing_driver(
        fmt::format("{} is the toolkit's stub, wanted the CUDA driver", api.library));
  if (result != CUDA_SUCCESS) {
    Error error = driver_error(api, Stage::kLoad, "cuInit", result);
    error.code = ErrorCode::kDriverMissing;
    error.hint = kSimulatorHint;
    return tl::make_unexpected(std::move(error));
  }
  MOEJIT_TRY_DRIVER(api, Stage::kLoad, driver_get_version, (&api.version));
  return {};
}

}  // namespace

Result<const DriverApi*> driver_api() {
  // Mutex and functions are never destroyed: at the end of the process the driver may be gone
  // already.
  static std::mutex& mutex = *new std::mutex;
  static const DriverApi* resolved = nullptr;
  const std::lock_guard lock(mutex);
  if (resolved == nullptr) {
    MOEJIT_TRY_ASSIGN(const OpenLibrary library, open_library());
    MOEJIT_TRY_ASSIGN(auto api, resolve_all(library));
    MOEJIT_TRY(initialise(*api));
    // The driver ends in an exit handler that it registered before, so this handler runs first.
    std::atexit([] { process_is_ending.store(true, std::memory_order_relaxed); });
    resolved = api.release();
  }
  return resolved;
}

bool is_process_ending() { return process_is_ending.load(std::memory_order_relaxed); }

std::string cuda_version_text(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

namespace {

ErrorCode code_of(CUresult result) {
  if (result == CUDA_ERROR_OUT_OF_MEMORY) return ErrorCode::kOutOfMemory;
  return result >= CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED &&
                 result <= CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD
             ? ErrorCode::kStreamCapture
             : ErrorCode::kDriver;
}

const char* hint_for(CUresult result) {
  switch (result) {
    case CUDA_ERROR_NOT_INITIALIZED:
      return "a process made by fork() cannot use the GPU of its parent: start new workers";
    case CUDA_ERROR_DEINITIALIZED:
      return "the process is ending: finish work on the GPU before main() returns";
    case CUDA_ERROR_ILLEGAL_ADDRESS:
      return "an earlier kernel touched memory that is not its own; the context is lost";
    case CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED:
      return "prepare layers, wait and copy outside of captures";
    case CUDA_ERROR_STREAM_CAPTURE_INVALIDATED:
      return "an earlier call ended the capture: look for one that waits, copies or allocates";
    case CUDA_ERROR_STREAM_CAPTURE_IMPLICIT:
      return "another stream is recorded that the default stream would have to wait for: give "
             "calls a stream of their own, or record on one made with CU_STREAM_NON_BLOCKING";
    default: return "";
  }
}

}  // namespace

Error driver_error(const DriverApi& api, Stage stage, const char* call, CUresult result) {
  const char* name = "CUDA_ERROR_DEINITIALIZED";
  const char* text = "the driver is shutting down";
  if (!is_process_ending()) {
    if (api.get_error_name(result, &name) != CUDA_SUCCESS) name = "unknown result";
    if (api.get_error_string(result, &text) != CUDA_SUCCESS) text = "no description";
  }
  return {.stage = stage,
          .code = code_of(result),
          .message =
              fmt::format("{} failed with {} ({}): {}", call, name, static_cast<int>(result), text),
          .hint = hint_for(result),
          .detail = {}};
}

}  // namespace moejit::runtime
