// SPDX-License-Identifier: Apache-2.0
#include "runtime/nccl/nccl_api.h"

#include <dlfcn.h>
#include <fmt/core.h>
#include <memory>
#include <mutex>

namespace moejit::runtime {
namespace {

constexpr const char* kLibrary = "libnccl.so.2";
constexpr int kOldest = 21800;

tl::unexpected<Error> missing_nccl(std::string message, std::string detail = {}) {
  return fail(Stage::kLoad, ErrorCode::kDriverMissing, std::move(message),
              "install NCCL 2.18 or later, or name the folder of its libnccl.so.2 in "
              "LD_LIBRARY_PATH: PyTorch brings one, in nvidia/nccl/lib",
              std::move(detail));
}

std::string version_text(int version) {
  return fmt::format("{}.{}.{}", version / 10000, version % 10000 / 100, version % 100);
}

Result<std::unique_ptr<NcclApi>> resolve(void* library) {
  auto api = std::make_unique<NcclApi>();
  const auto set = [&](auto& function, const char* symbol) -> Result<void> {
    function =
        reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(library, symbol));
    if (function != nullptr) return {};
    return missing_nccl(fmt::format("{} has no function {}, wanted one of NCCL {} or later",
                                    kLibrary, symbol, version_text(kOldest)));
  };
#define MOEJIT_NCCL_FUNCTION(member, symbol, parameters) MOEJIT_TRY(set(api->member, symbol));
#include "runtime/nccl/nccl_functions.inc"
#undef MOEJIT_NCCL_FUNCTION
  MOEJIT_TRY(set(api->get_error_string, "ncclGetErrorString"));
  MOEJIT_TRY(set(api->get_last_error, "ncclGetLastError"));
  if (api->get_version(&api->version) != kNcclSuccess || api->version < kOldest)
    return missing_nccl(fmt::format("{} is NCCL {}, wanted {} or later", kLibrary,
                                    version_text(api->version), version_text(kOldest)));
  return api;
}

}  // namespace

Result<const NcclApi*> nccl_api() {
  // Never destroyed, because groups may outlive static objects.
  static std::mutex& mutex = *new std::mutex;
  static const NcclApi* resolved = nullptr;
  const std::lock_guard lock(mutex);
  if (resolved == nullptr) {
    void* const library = ::dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      const char* const reason = ::dlerror();
      return missing_nccl(fmt::format("no {} found", kLibrary), reason == nullptr ? "" : reason);
    }
    MOEJIT_TRY_ASSIGN(auto api, resolve(library));
    resolved = api.release();
  }
  return resolved;
}

Error nccl_error(const NcclApi& api, Stage stage, const char* call, NcclResult result) {
  const char* const text = api.get_error_string(result);
  const char* const last = api.get_last_error(nullptr);
  return {.stage = stage,
          .code = ErrorCode::kDriver,
          .message = fmt::format("{} failed with {}: {}", call, result,
                                 text == nullptr ? "no description" : text),
          .hint = "NCCL_DEBUG=WARN makes NCCL tell more on standard output",
          .detail = last == nullptr ? "" : last};
}

}  // namespace moejit::runtime
