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
  // Packs to take kernels from if the folder has none, in this order; none: the packs of
  // MOEJIT_PACKS. Engine::create() opens them; a pack that cannot be used is an error.
  std::optional<std::vector<std::string>> packs;
  // Key ring whose signatures packs need (docs/cache.md). Empty: the key ring of MOEJIT_PACK_KEYS;
  // if that is not set, packs need the right owner and mode instead.
  std::string pack_keys;
  // Whether a kernel that no cache holds is an error (kCacheMiss), never a compile. MOEJIT_FROZEN=1
  // has the same effect.
  bool frozen = false;
  // Whether only kernels of the folder by this machine's compiler are used. If not, an engine that
  // is frozen, or finds no compiler, also takes what other compilers made (docs/cache.md).
  bool own_compiler_only = false;
  // Text behind "moejit build" in the error of a frozen engine: the file of the layer.
  std::string build_arguments = "LAYER";
  // Gets warnings, each once, as one sentence: a full disk, a corrupt cache entry, a kernel that
  // the assembler made slow. Called from any thread that asks for a kernel.
  std::function<void(std::string_view)> warn;

  // These options override environment variables (docs/environment.md), which override the
  // defaults.
  std::optional<int64_t> cache_max_bytes;   // bytes in the folder; cache::kUnlimited: any number
  std::optional<int64_t> cache_max_files;   // kernels in the folder; cache::kUnlimited: any number
  std::optional<bool> cache_network_write;  // whether to write to a folder on a network file system
  int32_t compile_jobs = 0;  // most kernels compiled at a time; 0: as many as compile_budget() says
  std::string run_dir;       // folder of lock files, an absolute path; empty: the default one
  std::optional<std::chrono::milliseconds> lock_patience;  // for another process that compiles the
                                                           // same kernel, a day at most; none: two
                                                           // minutes
  std::string compile_worker;  // program moejit, whose processes run NVRTC; empty: this one does
  std::string reproducer_dir;  // gets what reproduces a failed compile; empty: nothing is written
};

// Limits of a caller's wait. A kernel that nobody waits for any more is given up, unless it was
// prefetched.
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
  int64_t without_lock = 0;  // kernels that another process may have compiled too
  int64_t remembered_failures = 0;  // requests for kernels that are known not to compile
  int64_t nondeterministic = 0;     // compiles whose bytes differ from the cache's
};

enum class KernelOrigin { kCompiler, kCache, kPack, kMemory };

// A kernel and where this call of the engine found it.
struct ObtainedKernel {
  std::shared_ptr<const compiler::KernelBinary> binary;
  KernelOrigin origin = KernelOrigin::kMemory;
  std::optional<compiler::CompileTime> compile_time;  // set if a compiler made it
};

// Joins compiler and cache: key -> memory -> folder -> packs -> compile and publish. One engine may
// serve any number of devices and threads. A kernel that several threads ask for at once is made
// once. The same holds for several processes of a node with the same cache folder, unless one of
// them takes longer than the others wait. The child of a fork() may use the engine of its parent.
class Engine {
 public:
  // Creates an engine. If a folder that the user named (in the options or MOEJIT_CACHE_DIR) cannot
  // be used, it is an error (kCacheUnusable). So is a pack (kFileNotFound, kFileRead,
  // kCacheUnusable, kCacheCorrupt) or a key ring. Without a usable default folder kernels stay in
  // memory. Options out of range, and numbers in variables that count, are kInvalidValue.
  static Result<std::unique_ptr<Engine>> create(const EngineOptions& options = {});
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Returns the machine code of a source, from the nearest place that has it. Errors: the
  // compiler's, of which only kCompileFailed is remembered; kCacheMiss if the engine is frozen;
  // kInterrupted if the caller's patience ended.
  Result<std::shared_ptr<const compiler::KernelBinary>> binary(
      const compiler::KernelSource& source);
  // Obtains the kernel as binary() does, and says where it came from. A caller that waited for
  // another thread to make the kernel finds it in memory.
  Result<ObtainedKernel> obtain(const compiler::KernelSource& source,
                                const ObtainOptions& options = {});
  // Obtains all kernels, several at once. Kernels for the simulator are compiled together where
  // that takes less time. `progress` is called on this thread with how many are done, from 0 to
  // all, in order of the sources. If several fail, it returns the error of the earliest source.
  Result<std::vector<ObtainedKernel>> obtain_all(
      std::span<const compiler::KernelSource> sources, const ObtainOptions& options = {},
      const std::function<void(std::size_t)>& progress = {});

  // Begins to make kernels that will be asked for later, at lower priority than those that somebody
  // waits for. Errors show when the kernels are asked for.
  void prefetch(std::span<const compiler::KernelSource> sources);

  // Returns the kernel that this engine holds in memory under compiler::kernel_key(source, {}), the
  // key of a source without its compiler, or null. The pointer is valid as long as the engine. Is
  // cheap: it computes no key, allocates nothing and reads no disk. It takes a lock, as every
  // request for a kernel does.
  const compiler::KernelBinary* find(const Digest& key) const;

  // Hands a sentence to EngineOptions::warn, unless it has had the same one.
  void warn(const std::string& text);

  // Returns how many kernels are compiled at a time, at most.
  int32_t compile_jobs() const;
  EngineCounters counters() const;
  // Returns the cache folder in use, or why there is none ("memory only: ...").
  std::string cache_description() const;
  // Returns why kernels are not written to the cache folder, or why the last one could not be. It
  // is a phrase that names the folder if there is one; empty if they are written.
  std::string write_problem() const;
  std::vector<std::string> pack_paths() const;  // paths of the packs in use, in order

 private:
  struct Impl;
  explicit Engine(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace moejit::runtime
