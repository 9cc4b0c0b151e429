// SPDX-License-Identifier: Apache-2.0
#include "runtime/engine.h"

#include "cache/kernel_cache.h"
#include "compiler/kernel_key.h"
#include "compiler/support/env.h"
#include "runtime/kernel_entry.h"

#include <fmt/core.h>
#include <future>
#include <mutex>
#include <unordered_map>

namespace moejit::runtime {

using BinaryResult = Result<std::shared_ptr<const compiler::KernelBinary>>;
using ObtainedResult = Result<ObtainedKernel>;

struct Engine::Impl {
  // Only successes are kept: what failed once may succeed next time.
  ObtainedResult from_memory_or_make(const compiler::KernelSource& source,
                                     const compiler::KernelKey& key);
  ObtainedResult make(const compiler::KernelSource& source, const compiler::KernelKey& key);
  std::shared_ptr<const compiler::KernelBinary> from_disk(const compiler::KernelSource& source,
                                                          const compiler::KernelKey& key);
  ObtainedResult compile(const compiler::KernelSource& source, const compiler::KernelKey& key);
  Result<void> open_cache();

  EngineOptions options;
  std::unique_ptr<cache::KernelCache> cache;  // null: memory only
  std::string no_cache_reason;

  mutable std::mutex mutex;
  std::unordered_map<Digest, std::shared_ptr<const compiler::KernelBinary>, DigestHash> memory;
  // Kernels that some thread is making right now; the others wait for its result.
  std::unordered_map<Digest, std::shared_future<BinaryResult>, DigestHash> in_flight;
  EngineCounters counters;
};

Result<void> Engine::Impl::open_cache() {
  if (!options.use_cache) {
    no_cache_reason = "the caller asked for it";
    return {};
  }
  cache::DefaultFolder folder{.path = options.cache_dir, .is_explicit = true, .reason = {}};
  if (folder.path.empty()) {
    MOEJIT_TRY_ASSIGN(folder, cache::default_folder());
  }
  if (folder.path.empty()) {
    no_cache_reason = folder.reason;
    return {};
  }
  auto opened = cache::KernelCache::open(folder.path, options.warn);
  if (opened) {
    cache = std::move(*opened);
    return {};
  }
  if (folder.is_explicit) return tl::make_unexpected(std::move(opened).error());
  no_cache_reason = opened.error().message;
  if (options.warn) options.warn(fmt::format("{}; kernels stay in memory", no_cache_reason));
  return {};
}

ObtainedResult Engine::Impl::from_memory_or_make(const compiler::KernelSource& source,
                                                 const compiler::KernelKey& key) {
  std::promise<BinaryResult> promise;
  {
    std::unique_lock lock(mutex);
    if (const auto found = memory.find(key.digest); found != memory.end()) {
      ++counters.from_memory;
      return ObtainedKernel{found->second, KernelOrigin::kMemory, std::nullopt};
    }
    if (const auto found = in_flight.find(key.digest); found != in_flight.end()) {
      const std::shared_future<BinaryResult> future = found->second;
      ++counters.from_memory;
      lock.unlock();
      MOEJIT_TRY_ASSIGN(auto binary, future.get());
      return ObtainedKernel{std::move(binary), KernelOrigin::kMemory, std::nullopt};
    }
    in_flight.emplace(key.digest, promise.get_future().share());
  }
  ObtainedResult result = make(source, key);
  {
    const std::lock_guard lock(mutex);
    if (result) memory.emplace(key.digest, result->binary);
    in_flight.erase(key.digest);
  }
  promise.set_value(result.map(&ObtainedKernel::binary));
  return result;
}

ObtainedResult Engine::Impl::make(const compiler::KernelSource& source,
                                  const compiler::KernelKey& key) {
  if (auto binary = from_disk(source, key))
    return ObtainedKernel{std::move(binary), KernelOrigin::kCache, std::nullopt};
  if (options.frozen)
    return fail(Stage::kCache, ErrorCode::kCacheMiss,
                fmt::format("the frozen cache ({}) has no kernel {} for {} (key {})",
                            cache ? cache->folder() : "memory only", source.entry,
                            to_string(source.target), key.digest.hex()),
                fmt::format("make it beforehand: moejit build LAYER --target {}{}",
                            to_string(source.target),
                            cache ? " --cache-dir " + cache->folder() : std::string()));
  return compile(source, key);
}

std::shared_ptr<const compiler::KernelBinary> Engine::Impl::from_disk(
    const compiler::KernelSource& source, const compiler::KernelKey& key) {
  if (!cache) return nullptr;
  auto entry = cache->get(key.digest);
  if (!entry) return nullptr;
  auto binary = kernel_of(std::move(*entry), source);
  if (!binary) {
    cache->discard(key.digest, "its metadata is not that of the kernel");
    return nullptr;
  }
  const std::lock_guard lock(mutex);
  ++counters.from_cache;
  return std::make_shared<const compiler::KernelBinary>(std::move(*binary));
}

ObtainedResult Engine::Impl::compile(const compiler::KernelSource& source,
                                     const compiler::KernelKey& key) {
  MOEJIT_TRY_ASSIGN(compiler::CompiledKernel compiled, compiler::compile_kernel_and_time(source));
  const auto binary = std::make_shared<const compiler::KernelBinary>(std::move(compiled.binary));
  const bool is_published =
      cache && cache->put(key.digest, kernel_metadata(*binary, key), binary->bytes);
  const std::lock_guard lock(mutex);
  ++counters.compiled;
  if (cache && !is_published) ++counters.unpublished;
  return ObtainedKernel{binary, KernelOrigin::kCompiler, compiled.time};
}

Result<std::unique_ptr<Engine>> Engine::create(const EngineOptions& options) {
  auto impl = std::make_unique<Impl>();
  impl->options = options;
  if (environment(Variable::kFrozen) == "1") impl->options.frozen = true;
  MOEJIT_TRY(impl->open_cache());
  return std::unique_ptr<Engine>(new Engine(std::move(impl)));
}

Engine::Engine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Engine::~Engine() = default;

BinaryResult Engine::binary(const compiler::KernelSource& source) {
  return obtain(source).map(&ObtainedKernel::binary);
}

ObtainedResult Engine::obtain(const compiler::KernelSource& source) {
  MOEJIT_TRY_ASSIGN(const compiler::KernelKey key, compiler::kernel_key(source));
  return impl_->from_memory_or_make(source, key);
}

EngineCounters Engine::counters() const {
  const std::lock_guard lock(impl_->mutex);
  EngineCounters counters = impl_->counters;
  if (impl_->cache) counters.corrupt = impl_->cache->counters().corrupt;
  return counters;
}

std::string Engine::cache_description() const {
  if (!impl_->cache) return "memory only: " + impl_->no_cache_reason;
  return impl_->cache->folder() + (impl_->cache->is_writable() ? "" : " (read-only)");
}

}  // namespace moejit::runtime
