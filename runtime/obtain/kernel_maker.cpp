// SPDX-License-Identifier: Apache-2.0
#include "runtime/obtain/kernel_maker.h"

#include "compiler/compiler.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

namespace moejit::runtime {

Result<void> KernelMaker::open() {
  MOEJIT_TRY_ASSIGN(store_, KernelStore::open(options_));
  return {};
}

std::optional<ObtainedResult> KernelMaker::look_up(const compiler::KernelSource& source) {
  if (auto found = store_->find(source)) {
    count(found->origin == KernelOrigin::kPack ? &EngineCounters::from_packs
                                               : &EngineCounters::from_cache);
    return std::move(*found);
  }
  if (!options_.frozen) return std::nullopt;
  return frozen_error(source);
}

tl::unexpected<Error> KernelMaker::frozen_error(const compiler::KernelSource& source) const {
  const cache::KernelCache* folder = store_->folder();
  const std::vector<std::string> packs = store_->pack_paths();
  // A message is no reason to open a compiler.
  std::string key_text;
  if (compiler::is_toolchain_at_hand(source.target))
    if (const auto key = compiler::kernel_key(source))
      key_text = fmt::format(" (key {})", key->digest.hex());
  const std::string target = to_string(source.target);
  std::string hint = fmt::format("make it beforehand: moejit build {} --target {}",
                                 options_.build_arguments, target);
  if (!packs.empty())
    hint += " --pack more.moejitpack, and add that to the packs";
  else if (folder != nullptr)
    hint += " --cache-dir " + folder->folder();
  return fail(
      Stage::kCache, ErrorCode::kCacheMiss,
      fmt::format("the frozen cache ({}{}{}) has no kernel {} for {}{}",
                  folder != nullptr ? folder->folder() : "memory only", packs.empty() ? "" : "; ",
                  fmt::join(packs, "; "), source.entry, target, key_text),
      std::move(hint));
}

// Null where there is none, which is said once.
cache::StripeLocks* KernelMaker::stripe_locks() {
  std::string problem;
  {
    const std::lock_guard guard(locks_mutex_);
    if (has_asked_for_locks_) return locks_.get();
    has_asked_for_locks_ = true;
    auto opened = options_.run_dir.empty() ? cache::open_default_stripe_locks()
                                           : cache::StripeLocks::open(options_.run_dir);
    if (opened) return (locks_ = std::move(*opened)).get();
    problem = opened.error().message;
  }
  if (options_.warn)
    options_.warn(fmt::format("{}; processes of this node may compile the same kernel", problem));
  return nullptr;
}

// Who publishes nothing has nothing to agree on with others.
std::optional<cache::StripeLock> KernelMaker::lock(const compiler::KernelKey& key,
                                                   const std::stop_token& stop) {
  if (store_->folder() == nullptr || !store_->folder()->is_writable()) return std::nullopt;
  cache::StripeLocks* const all = stripe_locks();
  auto held = all != nullptr ? all->lock(key.digest, *options_.lock_patience, stop) : std::nullopt;
  if (!held) count(&EngineCounters::without_lock);
  return held;
}

// On a thread of the service. It has its turn before it waits for the lock: so what waits for
// another process takes no turn away from there, and processes that start alike compile together
// no more kernels at a time than one of them would.
ObtainedResult KernelMaker::make(const compiler::KernelSource& source,
                                 const compiler::KernelKey& key, const std::stop_token& stop) {
  if (stop.stop_requested())
    return fail(Stage::kCompile, ErrorCode::kInterrupted,
                fmt::format("kernel {} is not wanted any more", source.entry));
  const auto held = lock(key, stop);
  // Whoever held the lock before may have published it since we looked.
  if (auto nearby = look_up(source)) return std::move(*nearby);
  return compile(source, stop);
}

ObtainedResult KernelMaker::compile(const compiler::KernelSource& source,
                                    const std::stop_token& stop) {
  MOEJIT_TRY_ASSIGN(
      compiler::CompiledKernel compiled,
      compiler::compile_kernel_and_time(source, {.stop = stop,
                                                 .worker = options_.compile_worker,
                                                 .reproducer_dir = options_.reproducer_dir}));
  const auto binary = std::make_shared<const compiler::KernelBinary>(std::move(compiled.binary));
  // Now that the compiler is open, there is no doubt about which one it is.
  MOEJIT_TRY_ASSIGN(const compiler::KernelKey key, compiler::kernel_key(source));
  const bool is_published = publish(*binary, key);
  count(&EngineCounters::compiled);
  if (store_->folder() != nullptr && !is_published) count(&EngineCounters::unpublished);
  return ObtainedKernel{binary, KernelOrigin::kCompiler, compiled.time};
}

// Whether the folder has it now. Compilers give equal bytes for equal keys; where another process
// published others meanwhile, those stay.
bool KernelMaker::publish(const compiler::KernelBinary& binary, const compiler::KernelKey& key) {
  if (store_->folder() == nullptr) return false;
  const auto there = store_->folder()->get(key.digest);
  if (!there) return store_->publish(binary, key);
  if (there->payload == binary.bytes) return true;
  count(&EngineCounters::nondeterministic);
  store_->folder()->count_nondeterministic();
  if (options_.warn)
    options_.warn(
        fmt::format("kernel {} was compiled twice, with different bytes (key {}): the "
                    "compiler is not deterministic, or memory is damaged",
                    binary.entry, key.digest.hex()));
  return true;
}

void KernelMaker::count(int64_t EngineCounters::*counter) {
  const std::lock_guard guard(counters_mutex_);
  ++(counters_.*counter);
}

EngineCounters KernelMaker::counters() const {
  const std::lock_guard guard(counters_mutex_);
  EngineCounters counters = counters_;
  counters.corrupt = store_->corrupt();
  return counters;
}

}  // namespace moejit::runtime
