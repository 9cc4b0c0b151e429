// SPDX-License-Identifier: Apache-2.0
#include "runtime/engine.h"

#include "compiler/kernel_source.h"
#include "compiler/support/env.h"
#include "compiler/support/fork.h"
#include "runtime/compile_budget.h"
#include "runtime/kernel_store.h"
#include "runtime/obtain/flights.h"

#include <algorithm>
#include <charconv>
#include <fmt/core.h>
#include <mutex>
#include <set>

namespace moejit::runtime {
namespace {

constexpr std::chrono::milliseconds kLockPatience = std::chrono::minutes(2);
constexpr std::chrono::milliseconds kMostLockPatience = std::chrono::hours(24);

// Returns the number in an environment variable; none if it is not set.
Result<std::optional<int32_t>> number_of(Variable variable, int32_t least, int32_t most) {
  const auto text = environment(variable);
  if (!text) return std::nullopt;
  int32_t number = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), number);
  if (error != std::errc{} || end != text->data() + text->size() || number < least || number > most)
    return fail(Stage::kCompile, ErrorCode::kInvalidValue,
                fmt::format("{} is \"{}\", wanted a number from {} to {}", name_of(variable), *text,
                            least, most));
  return number;
}

Result<void> check(const EngineOptions& options) {
  for (const auto& [name, limit] : {std::pair("cache_max_bytes", options.cache_max_bytes),
                                    std::pair("cache_max_files", options.cache_max_files)})
    if (limit && *limit < 1)
      return fail(Stage::kCache, ErrorCode::kInvalidValue,
                  fmt::format("the engine option {} is {}, wanted at least 1", name, *limit));
  return {};
}

// Fills in the options that the caller leaves open: from the environment, else to suit this
// machine. Limits of the cache are completed where it is opened.
Result<EngineOptions> with_environment(EngineOptions options) {
  MOEJIT_TRY(check(options));
  MOEJIT_TRY_ASSIGN(const bool is_frozen, is_switched_on(Variable::kFrozen));
  options.frozen |= is_frozen;
  if (options.compile_jobs <= 0) {
    MOEJIT_TRY_ASSIGN(const auto jobs, number_of(Variable::kCompileJobs, 1, 1024));
    options.compile_jobs = jobs ? *jobs : compile_budget().jobs;
  }
  if (!options.lock_patience) {
    MOEJIT_TRY_ASSIGN(const auto seconds, number_of(Variable::kLockSeconds, 0,
                                                    kMostLockPatience / std::chrono::seconds(1)));
    options.lock_patience = seconds ? std::chrono::seconds(*seconds) : kLockPatience;
  }
  options.lock_patience =
      std::clamp(*options.lock_patience, std::chrono::milliseconds(0), kMostLockPatience);
  if (options.compile_worker.empty())
    options.compile_worker = environment(Variable::kCompileWorker).value_or("");
  if (options.reproducer_dir.empty())
    options.reproducer_dir = environment(Variable::kReproducerDir).value_or("");
  return options;
}

// Returns the key without a compiler: a process has one compiler per target, and asking for it may
// open it.
compiler::KernelKey memory_key(const compiler::KernelSource& source) {
  return compiler::kernel_key(source, {});
}

}  // namespace

struct Engine::Impl {
  Impl(const EngineOptions& options, std::unique_ptr<KernelStore> opened)
      : store(std::move(opened)),
        flights(*store, options.compile_jobs),
        warning_sink(options.warn) {}

  std::unique_ptr<KernelStore> store;
  Flights flights;
  std::function<void(std::string_view)> warning_sink;
  ForkMutex warned_mutex;
  std::set<std::string> warned;
};

void Engine::warn(const std::string& text) {
  {
    const std::lock_guard lock(impl_->warned_mutex);
    if (!impl_->warned.insert(text).second) return;
  }
  if (impl_->warning_sink) impl_->warning_sink(text);
}

Result<std::unique_ptr<Engine>> Engine::create(const EngineOptions& options) {
  MOEJIT_TRY_ASSIGN(const EngineOptions complete, with_environment(options));
  MOEJIT_TRY_ASSIGN(auto store, KernelStore::open(complete));
  return std::unique_ptr<Engine>(new Engine(std::make_unique<Impl>(complete, std::move(store))));
}

Engine::Engine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Engine::~Engine() = default;

Result<std::shared_ptr<const compiler::KernelBinary>> Engine::binary(
    const compiler::KernelSource& source) {
  return obtain(source).map(&ObtainedKernel::binary);
}

Result<ObtainedKernel> Engine::obtain(const compiler::KernelSource& source,
                                      const ObtainOptions& options) {
  return impl_->flights.board(source, memory_key(source)).wait(options);
}

Result<std::vector<ObtainedKernel>> Engine::obtain_all(
    std::span<const compiler::KernelSource> sources, const ObtainOptions& options,
    const std::function<void(std::size_t)>& progress) {
  std::vector<compiler::KernelKey> keys;
  for (const compiler::KernelSource& source : sources) keys.push_back(memory_key(source));
  std::vector<Flights::Seat> seats = impl_->flights.board_all(sources, keys);
  std::vector<ObtainedKernel> kernels;
  if (progress) progress(0);
  for (Flights::Seat& seat : seats) {
    MOEJIT_TRY_ASSIGN(ObtainedKernel kernel, seat.wait(options));
    kernels.push_back(std::move(kernel));
    if (progress) progress(kernels.size());
  }
  return kernels;
}

void Engine::prefetch(std::span<const compiler::KernelSource> sources) {
  for (const compiler::KernelSource& source : sources)
    impl_->flights.prefetch(source, memory_key(source));
}

const compiler::KernelBinary* Engine::find(const Digest& key) const {
  return impl_->flights.find(key);
}

int32_t Engine::compile_jobs() const { return impl_->flights.compile_jobs(); }

EngineCounters Engine::counters() const {
  EngineCounters counters = impl_->store->counters();
  const EngineCounters in_memory = impl_->flights.counters();
  counters.from_memory = in_memory.from_memory;
  counters.remembered_failures = in_memory.remembered_failures;
  return counters;
}

std::string Engine::cache_description() const { return impl_->store->folder_description(); }

std::string Engine::write_problem() const { return impl_->store->write_problem(); }

std::vector<std::string> Engine::pack_paths() const { return impl_->store->pack_paths(); }

}  // namespace moejit::runtime
