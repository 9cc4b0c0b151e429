// SPDX-License-Identifier: Apache-2.0
#include "runtime/engine.h"

#include "cache/pack.h"
#include "runtime/bindings/c/handles.h"
#include "runtime/bindings/c/last_error.h"
#include "runtime/bindings/c/records.h"

#include <algorithm>
#include <chrono>
#include <fmt/core.h>
#include <memory>
#include <mutex>

namespace {

using moejit::Result;
using moejit::Stage;
using moejit::bindings::guarded;
using moejit::bindings::null_argument;

tl::unexpected<moejit::Error> invalid(const char* field, int64_t value, const char* wanted) {
  return moejit::fail(
      Stage::kCache, moejit::ErrorCode::kInvalidValue,
      fmt::format("moejit_engine_options::{} is {}, wanted {}", field, value, wanted));
}

// Reads the fields that override environment variables. A field of 0 or NULL overrides nothing.
Result<void> read_variables(const moejit_engine_options& given,
                            moejit::runtime::EngineOptions& options) {
  if (given.cache_max_bytes != 0) options.cache_max_bytes = given.cache_max_bytes;
  if (given.cache_max_files != 0) options.cache_max_files = given.cache_max_files;
  if (given.run_dir != nullptr) options.run_dir = given.run_dir;
  if (given.compile_worker != nullptr) options.compile_worker = given.compile_worker;
  if (given.reproducer_dir != nullptr) options.reproducer_dir = given.reproducer_dir;
  if (given.lock_patience_ms != 0)
    options.lock_patience = std::chrono::milliseconds(std::max<int64_t>(0, given.lock_patience_ms));
  if (given.cache_network < MOEJIT_CACHE_NETWORK_DEFAULT ||
      given.cache_network > MOEJIT_CACHE_NETWORK_WRITE)
    return invalid("cache_network", given.cache_network, "one of moejit_cache_network");
  if (given.cache_network != MOEJIT_CACHE_NETWORK_DEFAULT)
    options.cache_network_write = given.cache_network == MOEJIT_CACHE_NETWORK_WRITE;
  if (given.compile_jobs < 0) return invalid("compile_jobs", given.compile_jobs, "0 or more");
  options.compile_jobs = given.compile_jobs;
  return {};
}

Result<moejit::runtime::EngineOptions> engine_options(const moejit_engine_options& given) {
  moejit::runtime::EngineOptions options{.use_cache = given.memory_only == 0,
                                         .frozen = given.frozen != 0};
  if (given.cache_dir != nullptr) options.cache_dir = given.cache_dir;
  if (given.packs != nullptr) options.packs = moejit::cache::split_paths(given.packs);
  if (given.pack_keys != nullptr) options.pack_keys = given.pack_keys;
  if (given.warn != nullptr)
    options.warn = [warn = given.warn, context = given.warn_context](std::string_view text) {
      warn(context, std::string(text).c_str());
    };
  MOEJIT_TRY(read_variables(given, options));
  return options;
}

Result<moejit_engine*> create(const moejit_engine_options* options) {
  MOEJIT_TRY_ASSIGN(const auto given,
                    moejit::bindings::read_record(Stage::kCache, options, "moejit_engine_options"));
  MOEJIT_TRY_ASSIGN(const auto complete, engine_options(given));
  MOEJIT_TRY_ASSIGN(auto created, moejit::runtime::Engine::create(complete));
  auto handle = std::make_unique<moejit_engine>();
  handle->cache = created->cache_description();
  handle->engine = std::move(created);
  return handle.release();
}

}  // namespace

moejit_error_code moejit_engine_create(const moejit_engine_options* options,
                                       moejit_engine** engine) {
  return guarded(Stage::kCache, [&]() -> Result<void> {
    if (engine == nullptr) return null_argument(Stage::kCache, "engine", "moejit_engine_create");
    *engine = nullptr;
    MOEJIT_TRY_ASSIGN(*engine, create(options));
    return {};
  });
}

moejit_error_code moejit_engine_shared(const moejit_engine_options* options,
                                       moejit_engine** engine) {
  // Never destroyed: threads may use it at the end of the process.
  static std::mutex mutex;
  static moejit_engine* shared = nullptr;
  return guarded(Stage::kCache, [&]() -> Result<void> {
    if (engine == nullptr) return null_argument(Stage::kCache, "engine", "moejit_engine_shared");
    *engine = nullptr;
    const std::scoped_lock lock(mutex);
    if (shared == nullptr) {
      MOEJIT_TRY_ASSIGN(shared, create(options));
    }
    *engine = shared;
    return {};
  });
}

void moejit_engine_destroy(moejit_engine* engine) { delete engine; }

moejit_error_code moejit_engine_get_info(const moejit_engine* engine, moejit_engine_info* info) {
  return guarded(Stage::kCache, [&]() -> Result<void> {
    if (engine == nullptr) return null_argument(Stage::kCache, "engine", "moejit_engine_get_info");
    if (info == nullptr) return null_argument(Stage::kCache, "info", "moejit_engine_get_info");
    const moejit::runtime::EngineCounters counters = engine->engine->counters();
    return moejit::bindings::write_record(Stage::kCache,
                                          {.cache = engine->cache.c_str(),
                                           .compiled = counters.compiled,
                                           .from_cache = counters.from_cache,
                                           .from_memory = counters.from_memory,
                                           .corrupt = counters.corrupt,
                                           .unpublished = counters.unpublished,
                                           .from_packs = counters.from_packs,
                                           .nondeterministic = counters.nondeterministic},
                                          info, "moejit_engine_info");
  });
}
