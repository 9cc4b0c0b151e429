// SPDX-License-Identifier: Apache-2.0
#include "runtime/engine.h"

#include "cache/kernel_cache.h"
#include "compiler/compiler.h"
#include "compiler/kernel_key.h"
#include "compiler/support/env.h"
#include "runtime/kernel_store.h"

#include <fmt/core.h>
#include <fmt/ranges.h>
#include <future>
#include <mutex>
#include <unordered_map>

namespace moejit::runtime {

using BinaryResult = Result<std::shared_ptr<const compiler::KernelBinary>>;
using ObtainedResult = Result<ObtainedKernel>;

struct Engine::Impl {
  // Only successes are kept: what failed once may succeed next time.
  ObtainedResult from_memory_or_make(const compiler::KernelSource& source, const Digest& key);
  ObtainedResult make(const compiler::KernelSource& source);
  ObtainedResult compile(const compiler::KernelSource& source);
  tl::unexpected<Error> frozen_error(const compiler::KernelSource& source) const;

  EngineOptions options;
  std::unique_ptr<KernelStore> store;

  mutable std::mutex mutex;
  // By the key without a compiler: a process has one of each target, and asking for it may open it.
  std::unordered_map<Digest, std::shared_ptr<const compiler::KernelBinary>, DigestHash> memory;
  // Kernels that some thread is making right now; the others wait for its result.
  std::unordered_map<Digest, std::shared_future<BinaryResult>, DigestHash> in_flight;
  EngineCounters counters;
};

ObtainedResult Engine::Impl::from_memory_or_make(const compiler::KernelSource& source,
                                                 const Digest& key) {
  std::promise<BinaryResult> promise;
  {
    std::unique_lock lock(mutex);
    if (const auto found = memory.find(key); found != memory.end()) {
      ++counters.from_memory;
      return ObtainedKernel{found->second, KernelOrigin::kMemory, std::nullopt};
    }
    if (const auto found = in_flight.find(key); found != in_flight.end()) {
      const std::shared_future<BinaryResult> future = found->second;
      ++counters.from_memory;
      lock.unlock();
      MOEJIT_TRY_ASSIGN(auto binary, future.get());
      return ObtainedKernel{std::move(binary), KernelOrigin::kMemory, std::nullopt};
    }
    in_flight.emplace(key, promise.get_future().share());
  }
  ObtainedResult result = make(source);
  {
    const std::lock_guard lock(mutex);
    if (result) memory.emplace(key, result->binary);
    in_flight.erase(key);
  }
  promise.set_value(result.map(&ObtainedKernel::binary));
  return result;
}

ObtainedResult Engine::Impl::make(const compiler::KernelSource& source) {
  if (auto found = store->find(source)) {
    const std::lock_guard lock(mutex);
    ++(found->origin == KernelOrigin::kPack ? counters.from_packs : counters.from_cache);
    return std::move(*found);
  }
  if (options.frozen) return frozen_error(source);
  return compile(source);
}

tl::unexpected<Error> Engine::Impl::frozen_error(const compiler::KernelSource& source) const {
  const cache::KernelCache* folder = store->folder();
  const std::vector<std::string> packs = store->pack_paths();
  // A message is no reason to open a compiler.
  std::string key_text;
  if (compiler::is_toolchain_at_hand(source.target))
    if (const auto key = compiler::kernel_key(source))
      key_text = fmt::format(" (key {})", key->digest.hex());
  const std::string target = to_string(source.target);
  std::string hint = fmt::format("make it beforehand: moejit build {} --target {}",
                                 options.build_arguments, target);
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

ObtainedResult Engine::Impl::compile(const compiler::KernelSource& source) {
  MOEJIT_TRY_ASSIGN(compiler::CompiledKernel compiled, compiler::compile_kernel_and_time(source));
  const auto binary = std::make_shared<const compiler::KernelBinary>(std::move(compiled.binary));
  // Now that the compiler is open, there is no doubt about which one it is.
  MOEJIT_TRY_ASSIGN(const compiler::KernelKey key, compiler::kernel_key(source));
  const bool is_published = store->publish(*binary, key);
  const std::lock_guard lock(mutex);
  ++counters.compiled;
  if (store->folder() != nullptr && !is_published) ++counters.unpublished;
  return ObtainedKernel{binary, KernelOrigin::kCompiler, compiled.time};
}

Result<std::unique_ptr<Engine>> Engine::create(const EngineOptions& options) {
  auto impl = std::make_unique<Impl>();
  impl->options = options;
  if (environment(Variable::kFrozen) == "1") impl->options.frozen = true;
  MOEJIT_TRY_ASSIGN(impl->store, KernelStore::open(options));
  return std::unique_ptr<Engine>(new Engine(std::move(impl)));
}

Engine::Engine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Engine::~Engine() = default;

BinaryResult Engine::binary(const compiler::KernelSource& source) {
  return obtain(source).map(&ObtainedKernel::binary);
}

ObtainedResult Engine::obtain(const compiler::KernelSource& source) {
  return impl_->from_memory_or_make(source, compiler::kernel_key(source, {}).digest);
}

EngineCounters Engine::counters() const {
  const std::lock_guard lock(impl_->mutex);
  EngineCounters counters = impl_->counters;
  counters.corrupt = impl_->store->corrupt();
  return counters;
}

std::string Engine::cache_description() const { return impl_->store->folder_description(); }

std::vector<std::string> Engine::pack_paths() const { return impl_->store->pack_paths(); }

}  // namespace moejit::runtime
