// SPDX-License-Identifier: Apache-2.0
#include "compiler/support/env.h"

#include "compiler/support/json_document.h"
#include "compiler/support/plain_text.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdlib>
#include <fmt/core.h>

namespace moejit {
namespace {

// docs/environment.md lists the same names; a lint test keeps the two in step.
constexpr std::array kVariables{
    VariableInfo{Variable::kCacheDir, "MOEJIT_CACHE_DIR", "folder of the kernel cache",
                 "$XDG_CACHE_HOME/moejit, else $HOME/.cache/moejit"},
    VariableInfo{Variable::kCacheMaxBytes, "MOEJIT_CACHE_MAX_BYTES",
                 "bytes that the cache may take", "4G"},
    VariableInfo{Variable::kCacheMaxFiles, "MOEJIT_CACHE_MAX_FILES",
                 "kernels that the cache may hold", "65536"},
    VariableInfo{Variable::kCacheNetwork, "MOEJIT_CACHE_NETWORK",
                 "write: also to a cache on a network file system", "read"},
    VariableInfo{Variable::kPacks, "MOEJIT_PACKS",
                 "packs to take kernels from after the folder, separated by ':'", "none"},
    VariableInfo{Variable::kPackKeys, "MOEJIT_PACK_KEYS",
                 "key ring: packs need a signature by one of its keys",
                 "packs need the right owner and mode"},
    VariableInfo{Variable::kTuning, "MOEJIT_TUNING",
                 "tuning records that plans are made with, separated by ':'", "none"},
    VariableInfo{Variable::kNvrtc, "MOEJIT_NVRTC", "path of the NVRTC library file",
                 "searched for, see docs/environment.md"},
    VariableInfo{Variable::kCudaDriver, "MOEJIT_CUDA_DRIVER", "path of the CUDA driver library",
                 "libcuda.so.1"},
    VariableInfo{Variable::kCheckPointers, "MOEJIT_CHECK_POINTERS",
                 "1: ask the driver about every tensor's memory, for debugging", "0"},
    VariableInfo{Variable::kSerialLaunches, "MOEJIT_SERIAL_LAUNCHES",
                 "1: no kernel begins before the kernel before it has ended", "0"},
    VariableInfo{Variable::kCxx, "MOEJIT_CXX", "C++ compiler of the target sim",
                 "c++, g++ or clang++ on the PATH"},
    VariableInfo{Variable::kDisassembler, "MOEJIT_DISASSEMBLER",
                 "nvdisasm or cuobjdump, for moejit inspect",
                 "on the PATH, else in bin of a CUDA toolkit"},
    VariableInfo{Variable::kFrozen, "MOEJIT_FROZEN", "1: compile nothing, a cache miss is an error",
                 "0"},
    VariableInfo{Variable::kRunDir, "MOEJIT_RUN_DIR", "folder of lock files, of this machine alone",
                 "$XDG_RUNTIME_DIR/moejit, else /run/user/UID/moejit, else /tmp/moejit-UID"},
    VariableInfo{Variable::kLockSeconds, "MOEJIT_LOCK_SECONDS",
                 "how long to wait for a process that compiles the same kernel", "120"},
    VariableInfo{Variable::kCompileJobs, "MOEJIT_COMPILE_JOBS",
                 "most kernels that a process compiles at a time",
                 "as many as its cores and memory allow"},
    VariableInfo{Variable::kCompileWorker, "MOEJIT_COMPILE_WORKER",
                 "the program moejit, to compile in processes of its own", "in this process"},
    VariableInfo{Variable::kReproducerDir, "MOEJIT_REPRODUCER_DIR",
                 "folder for what reproduces a failed compile", "none is written"},
    VariableInfo{Variable::kXdgCacheHome, "XDG_CACHE_HOME", "folder of the user's caches",
                 "$HOME/.cache"},
    VariableInfo{Variable::kXdgRuntimeDir, "XDG_RUNTIME_DIR",
                 "folder of the user's locks and sockets", "/run/user/UID"},
    VariableInfo{Variable::kHome, "HOME", "the user's home folder",
                 "that of the password database"},
    VariableInfo{Variable::kCudaHome, "CUDA_HOME", "CUDA toolkit to take NVRTC and nvdisasm from",
                 "none"},
    VariableInfo{Variable::kCudaPath, "CUDA_PATH", "the same, after CUDA_HOME", "none"},
    VariableInfo{Variable::kTmpdir, "TMPDIR", "folder of temporary files", "/tmp"},
    VariableInfo{Variable::kPath, "PATH", "where C++ compiler and disassembler are looked for",
                 "/usr/local/bin:/usr/bin:/bin"},
};

}  // namespace

std::span<const VariableInfo> variables() { return kVariables; }

std::string_view name_of(Variable variable) {
  return kVariables[static_cast<std::size_t>(variable)].name;
}

std::optional<std::string> environment(Variable variable) {
  // The table's names are literals, so they end with a zero byte.
  const char* value = std::getenv(name_of(variable).data());  // NOLINT(concurrency-mt-unsafe)
  if (value == nullptr || *value == '\0') return std::nullopt;
  return std::string(value);
}

Result<bool> is_switched_on(Variable variable) {
  constexpr std::array<std::string_view, 4> kOn = {"1", "true", "yes", "on"};
  constexpr std::array<std::string_view, 4> kOff = {"0", "false", "no", "off"};
  const std::optional<std::string> value = environment(variable);
  if (!value) return false;
  const std::string lower = ascii_lower(*value);
  if (std::ranges::count(kOn, lower) > 0) return true;
  if (std::ranges::count(kOff, lower) > 0) return false;
  return fail(Stage::kCompile, ErrorCode::kInvalidValue,
              fmt::format("{} is {}, wanted 1 or 0", name_of(variable), quote_for_message(*value)),
              "true, yes and on mean 1; false, no, off and an empty value mean 0");
}

}  // namespace moejit
