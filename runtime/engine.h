// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/compiler.h"
#include "runtime/device.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace moejit::runtime {

struct EngineOptions {
  // Folder of the kernel cache; empty: the default one (docs/cache.md).
  std::string cache_dir;
  bool use_cache = true;  // false: memory only, without packs
  // Files to take kernels from where the folder has none, in this order; none: those of
  // MOEJIT_PACKS. They are opened by Engine::create(), and one that cannot be used is an error.
  std::optional<std::vector<std::string>> packs;
  // Key ring whose signatures packs need (docs/cache.md); empty: that of MOEJIT_PACK_KEYS, and
  // where that is not set, packs need the right owner and mode instead.
  std::string pack_keys;
  bool frozen = false;  // a kernel that no cache holds is an error (kCacheMiss), never a compile;
                        // the same where MOEJIT_FROZEN is 1
  // What the error of a frozen engine says after "moejit build": the file of the layer.
  std::string build_arguments = "LAYER";
  // Gets what is worth telling but no error, a sentence at a time and each once: a full disk, a
  // corrupt cache entry. Called from any thread that asks for a kernel.
  std::function<void(std::string_view)> warn;
};

struct EngineCounters {
  int64_t compiled = 0;     // kernels that a compiler made in this process
  int64_t from_cache = 0;   // kernels that the cache folder served
  int64_t from_packs = 0;   // kernels that a pack served
  int64_t from_memory = 0;  // kernels that this engine already held
  int64_t corrupt = 0;      // entries of folder and packs that failed verification
  int64_t unpublished = 0;  // compiled kernels that could not be written to the cache in use
};

enum class KernelOrigin { kCompiler, kCache, kPack, kMemory };

// A kernel and where this call of the engine found it.
struct ObtainedKernel {
  std::shared_ptr<const compiler::KernelBinary> binary;
  KernelOrigin origin = KernelOrigin::kMemory;
  std::optional<compiler::CompileTime> compile_time;  // where a compiler made it
};

// Joins compiler and cache: key -> memory -> folder -> packs -> compile and publish. One engine may
// serve any number of devices and threads; a kernel asked for by several threads at once is made
// once.
class Engine {
 public:
  // A folder that the user named (options or MOEJIT_CACHE_DIR) and that cannot be used is an error
  // (kCacheUnusable); where the default folder cannot be used, kernels stay in memory. So is a pack
  // (kFileNotFound, kFileRead, kCacheUnusable, kCacheCorrupt) or a key ring.
  static Result<std::unique_ptr<Engine>> create(const EngineOptions& options = {});
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Machine code for a source, from the nearest place that has it. Errors: of the compiler, which
  // are not remembered; kCacheMiss where the engine is frozen.
  Result<std::shared_ptr<const compiler::KernelBinary>> binary(
      const compiler::KernelSource& source);
  // The same, and where it came from. Who waits for another thread that makes it finds it in
  // memory.
  Result<ObtainedKernel> obtain(const compiler::KernelSource& source);

  EngineCounters counters() const;
  // The cache folder in use, or why there is none ("memory only: ...").
  std::string cache_description() const;
  std::vector<std::string> pack_paths() const;  // of the packs in use, in order

 private:
  struct Impl;
  explicit Engine(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace moejit::runtime
