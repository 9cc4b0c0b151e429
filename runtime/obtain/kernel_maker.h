// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cache/stripe_locks.h"
#include "compiler/kernel_source.h"
#include "compiler/support/fork.h"
#include "runtime/engine.h"
#include "runtime/kernel_store.h"

#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

namespace moejit::runtime {

using ObtainedResult = Result<ObtainedKernel>;

// Gets kernels that are not in memory: from folder and packs, or from the compiler and then into
// the folder. Any number of threads may ask at once. It keeps two processes from making the same
// kernel, but not two threads: the caller must do that.
class KernelMaker final {
 public:
  // `options` are complete: none is left to the environment.
  explicit KernelMaker(const EngineOptions& options) : options_(options) {}
  Result<void> open();

  struct LookedUp {
    // The kernel in the store, or the error kCacheMiss if it may not be compiled. If there is none,
    // call make().
    std::optional<ObtainedResult> result;
    std::optional<OwnKey> own;  // set if it was formed, for make()
  };
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

  EngineCounters counters() const;
  std::string cache_description() const { return store_->folder_description(); }
  std::string write_problem() const { return store_->write_problem(); }
  std::vector<std::string> pack_paths() const { return store_->pack_paths(); }

 private:
  compiler::CompileOptions compile_options(const std::stop_token& stop) const;
  ObtainedResult keep(const compiler::KernelSource& source, std::optional<OwnKey> own,
                      Result<compiler::CompiledKernel> compiled);
  std::string places_text(const compiler::Target& target) const;
  std::string by_whom() const;
  std::string build_hint(const compiler::Target& target, std::string_view where) const;
  tl::unexpected<Error> frozen_error(const compiler::KernelSource& source,
                                     std::optional<OwnKey> own) const;
  tl::unexpected<Error> without_compiler(const compiler::KernelSource& source, Error error) const;
  bool publish(const compiler::KernelBinary& binary, const compiler::KernelKey& key);
  std::optional<cache::StripeLock> lock(const Digest& key, const std::stop_token& stop);
  cache::StripeLocks* stripe_locks();
  void count(int64_t EngineCounters::*counter);

  EngineOptions options_;
  std::unique_ptr<KernelStore> store_;

  ForkMutex locks_mutex_;
  bool has_asked_for_locks_ = false;
  std::unique_ptr<cache::StripeLocks> locks_;  // null: this maker waits for no other process

  mutable ForkMutex counters_mutex_;
  EngineCounters counters_;
};

}  // namespace moejit::runtime
