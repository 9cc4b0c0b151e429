// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cache/kernel_cache.h"
#include "cache/pack.h"
#include "cache/stripe_locks.h"
#include "compiler/kernel_source.h"
#include "compiler/support/fork.h"
#include "runtime/engine.h"
#include "runtime/kernel_compilers.h"

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

namespace moejit::runtime {

using ObtainedResult = Result<ObtainedKernel>;

// Gets an engine's kernels that are not in its memory. It asks the user's cache folder, then packs
// in the order given, then the compiler. New kernels go to the folder. Packs are only read, and
// kernels from a pack are not copied to the folder. Any thread may call any function. Two processes
// do not make the same kernel, but two threads do: the caller must see to that.
//
// The key of a kernel holds the compiler that made it. In the folder, kernels are looked up for the
// compiler of this machine, which is known without opening NVRTC if its files allow that. If they
// do not, packs are asked first, so that a run which they serve never opens it. If there is no
// compiler, or if the engine is frozen, nothing will be compiled. Then kernels are looked up for
// each compiler that made entries of the folder, the newest first. A frozen engine never opens
// NVRTC for this. In a pack, kernels are looked up for each compiler that its manifest names: the
// pack stands for its compiler, which need not be here.
class KernelStore {
 public:
  // Errors: as of Engine::create(). For make() the options must be complete: none is left to the
  // environment.
  static Result<std::unique_ptr<KernelStore>> open(const EngineOptions& options);

  // The result of find().
  struct Found {
    std::optional<ObtainedKernel> kernel;  // from kCache or kPack; none if it is nowhere
    std::optional<OwnKey> own;             // set if the compiler of this machine was needed
  };
  // Finds a kernel. `known` is the key that an earlier call for the source returned.
  Found find(const compiler::KernelSource& source, std::optional<OwnKey> known = {});

  struct LookedUp {
    // The kernel, or the error kCacheMiss if it may not be compiled. If there is none, call make().
    std::optional<ObtainedResult> result;
    std::optional<OwnKey> own;  // as in Found, for make()
  };
  // Finds a kernel for a caller who needs it: counts, and says why a frozen engine has none.
  LookedUp look_up(const compiler::KernelSource& source, std::optional<OwnKey> known = {});

  // Waits for another process that makes the kernel, else compiles and publishes it. `key` may be
  // any key that is the same in all processes; `own` is what look_up() returned for the source.
  ObtainedResult make(const compiler::KernelSource& source, const compiler::KernelKey& key,
                      std::optional<OwnKey> own, const std::stop_token& stop);

  // A kernel of a unit, and what look_up() returned for it.
  struct Wanted {
    compiler::KernelSource source;
    std::optional<OwnKey> own;
  };
  // Makes kernels that are compiled together, as make() makes one. Processes that make the same
  // unit wait for each other; `unit` names it. Returns a result for each kernel.
  std::vector<ObtainedResult> make_unit(std::vector<Wanted> kernels, const Digest& unit,
                                        const std::stop_token& stop);

  // Returns the folder in use, or why there is none ("memory only: ...").
  std::string folder_description() const;
  // Returns why publish() fails, as Engine::write_problem() does.
  std::string write_problem() const;
  std::vector<std::string> pack_paths() const;
  EngineCounters counters() const;

 private:
  // A pack, and which of compilers_ made its kernels.
  struct OpenPack {
    std::unique_ptr<cache::Pack> pack;
    std::vector<std::size_t> compilers;
  };
  explicit KernelStore(const EngineOptions& options) : options_(options) {}
  Result<void> open_folder();
  Result<void> open_packs();
  std::optional<ObtainedKernel> find_with(const compiler::KernelSource& source,
                                          const std::optional<OwnKey>& own, bool asks_packs);
  std::optional<ObtainedKernel> find_in_folder(const compiler::KernelSource& source,
                                               const Digest& key);
  // Looks for kernels of `compilers`, except the compiler of the own key.
  std::optional<ObtainedKernel> find_in_folder(const compiler::KernelSource& source,
                                               std::span<const CompilerFields> compilers,
                                               const std::optional<OwnKey>& own);
  std::optional<ObtainedKernel> find_in_packs(const compiler::KernelSource& source,
                                              const std::optional<OwnKey>& own);
  std::optional<ObtainedKernel> find_in_pack(const OpenPack& pack, const Digest& key,
                                             const compiler::KernelSource& source);
  void report_bad_pack(const std::string& path, const compiler::KernelSource& source,
                       const std::string& message);

  // Take part in making a kernel (obtain/make_kernel.cpp).
  compiler::CompileOptions compile_options(const std::stop_token& stop) const;
  ObtainedResult keep(const compiler::KernelSource& source, std::optional<OwnKey> own,
                      Result<compiler::CompiledKernel> compiled);
  std::vector<CompilerFields> folder_compilers(const compiler::Target& target) const;
  std::string places_text(const compiler::Target& target) const;
  std::string by_whom() const;
  std::string build_hint(const compiler::Target& target, std::string_view where) const;
  std::optional<std::string> damaged_pack_of(const compiler::KernelSource& source) const;
  tl::unexpected<Error> frozen_error(const compiler::KernelSource& source,
                                     std::optional<OwnKey> own) const;
  tl::unexpected<Error> without_compiler(const compiler::KernelSource& source, Error error) const;
  bool publish(const compiler::KernelBinary& binary, const compiler::KernelKey& key);
  std::optional<cache::StripeLock> lock(const Digest& key, const std::stop_token& stop);
  cache::StripeLocks* stripe_locks();
  // Counts in the folder's stats that it did not have a kernel. find() does not, because a kernel
  // is looked for more than once, and under the keys of several compilers.
  void count_miss();
  void count(int64_t EngineCounters::*counter);

  EngineOptions options_;
  std::unique_ptr<cache::KernelCache> folder_;
  std::unique_ptr<FolderCompilers> folder_compilers_;  // null: there is no folder
  std::string no_folder_reason_;
  std::vector<OpenPack> packs_;
  std::vector<CompilerFields> compilers_;  // of all packs, each once

  mutable ForkMutex warned_mutex_;
  std::set<std::string> warned_;                // paths of packs
  std::map<std::string, std::string> damaged_;  // entry of a kernel, path of the damaged pack

  ForkMutex locks_mutex_;
  bool has_asked_for_locks_ = false;
  std::unique_ptr<cache::StripeLocks> locks_;  // null: this process waits for no other

  mutable ForkMutex counters_mutex_;
  EngineCounters counters_;  // corrupt: of packs alone
};

}  // namespace moejit::runtime
