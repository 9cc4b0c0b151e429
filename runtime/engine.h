// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/compiler.h"
#include "compiler/support/digest.h"
#include "runtime/device.h"

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
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
  // true: of the folder only what the compiler of this machine made. Else an engine that is frozen,
  // or finds no compiler, takes what other compilers made (docs/cache.md).
  bool own_compiler_only = false;
  // What the error of a frozen engine says after "moejit build": the file of the layer.
  std::string build_arguments = "LAYER";
  // Gets what is worth telling but no error, a sentence at a time and each once: a full disk, a
  // corrupt cache entry, a kernel that the assembler made slow. Called from any thread that asks
  // for a kernel.
  std::function<void(std::string_view)> warn;

  // Where an environment variable says the same (docs/environment.md), it counts only if the option
  // is not set, and a default only if neither is.
  std::optional<int64_t> cache_max_bytes;   // of all kernels in the folder; cache::kUnlimited: any
  std::optional<int64_t> cache_max_files;   // kernels in the folder; cache::kUnlimited: any number
  std::optional<bool> cache_network_write;  // true: a folder on a network file system is written to
  int32_t compile_jobs = 0;  // most kernels compiled at a time; 0: as many as compile_budget() says
  std::string run_dir;       // of lock files, an absolute path; empty: the default one
  std::optional<std::chrono::milliseconds> lock_patience;  // for another process that compiles the
                                                           // same kernel, a day at most; none: two
                                                           // minutes
  std::string compile_worker;  // program moejit: NVRTC runs in processes of it; empty: in this one
  std::string reproducer_dir;  // gets what reproduces a failed compile; empty: nothing is written
};

// How long a caller wants to wait. A kernel that nobody waits for any more is given up, except one
// that was prefetched.
struct ObtainOptions {
  std::optional<std::chrono::steady_clock::time_point> deadline;
  std::stop_token stop;
};

struct EngineCounters {
  int64_t compiled = 0;      // kernels that a compiler made in this process
  int64_t from_cache = 0;    // kernels that the cache folder served
  int64_t from_packs = 0;    // kernels that a pack served
  int64_t from_memory = 0;   // kernels that this engine already held
  int64_t corrupt = 0;       // entries of folder and packs that failed verification
  int64_t unpublished = 0;   // compiled kernels that no folder has, unless `use_cache` is false
  int64_t without_lock = 0;  // compiled although another process may have done the same
  int64_t remembered_failures = 0;  // requests for kernels that are known not to compile
  int64_t nondeterministic = 0;     // compiled with other bytes than the cache got meanwhile
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
// once, and by several processes of a node that share a cache folder, too, unless one of them takes
// longer than the others wait. The child of a fork() may use the engine of its parent.
class Engine {
 public:
  // A folder that the user named (options or MOEJIT_CACHE_DIR) and that cannot be used is an error
  // (kCacheUnusable); where the default folder cannot be used, kernels stay in memory. So is a pack
  // (kFileNotFound, kFileRead, kCacheUnusable, kCacheCorrupt) or a key ring. Options out of range,
  // and numbers in variables that count, are kInvalidValue.
  static Result<std::unique_ptr<Engine>> create(const EngineOptions& options = {});
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Machine code for a source, from the nearest place that has it. Errors: of the compiler, of
  // which kCompileFailed is remembered and the others are not; kCacheMiss where the engine is
  // frozen; kInterrupted where the caller did not want to wait.
  Result<std::shared_ptr<const compiler::KernelBinary>> binary(
      const compiler::KernelSource& source);
  // The same, and where it came from. Who waits for another thread that makes it finds it in
  // memory.
  Result<ObtainedKernel> obtain(const compiler::KernelSource& source,
                                const ObtainOptions& options = {});
  // All of them, several made at once. `progress` is called on this thread with how many are done,
  // from 0 to all, in order of the sources. Of several errors the one of the earliest source.
  Result<std::vector<ObtainedKernel>> obtain_all(
      std::span<const compiler::KernelSource> sources, const ObtainOptions& options = {},
      const std::function<void(std::size_t)>& progress = {});

  // Begins to make kernels that will be asked for later, when nothing that somebody waits for is
  // left to do. Errors show when they are asked for.
  void prefetch(std::span<const compiler::KernelSource> sources);

  // What this engine holds in memory under the key of a source without its compiler,
  // compiler::kernel_key(source, {}), as long as it lives, or null. For who asks often: no key is
  // computed, nothing is allocated, and no disk is read.
  const compiler::KernelBinary* find(const Digest& key) const;

  // Kernels that are compiled at a time, at most.
  int32_t compile_jobs() const;
  EngineCounters counters() const;
  // The cache folder in use, or why there is none ("memory only: ...").
  std::string cache_description() const;
  // Why kernels are not written to the cache folder, or were not the last time, as a phrase that
  // names the folder where there is one; empty where they are.
  std::string write_problem() const;
  std::vector<std::string> pack_paths() const;  // of the packs in use, in order

 private:
  struct Impl;
  explicit Engine(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace moejit::runtime
