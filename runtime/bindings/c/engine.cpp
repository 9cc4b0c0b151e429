// SPDX-License-Identifier: Apache-2.0
#include "runtime/engine.h"

#include "cache/pack.h"
#include "runtime/bindings/c/handles.h"
#include "runtime/bindings/c/last_error.h"
#include "runtime/bindings/c/records.h"

namespace {

using moejit::Result;
using moejit::Stage;
using moejit::bindings::guarded;
using moejit::bindings::null_argument;

moejit::runtime::EngineOptions engine_options(const moejit_engine_options& given) {
  moejit::runtime::EngineOptions options{.use_cache = given.memory_only == 0,
                                         .frozen = given.frozen != 0};
  if (given.cache_dir != nullptr) options.cache_dir = given.cache_dir;
  if (given.packs != nullptr) options.packs = moejit::cache::split_paths(given.packs);
  if (given.pack_keys != nullptr) options.pack_keys = given.pack_keys;
  if (given.warn != nullptr)
    options.warn = [warn = given.warn, context = given.warn_context](std::string_view text) {
      warn(context, std::string(text).c_str());
    };
  return options;
}

}  // namespace

moejit_error_code moejit_engine_create(const moejit_engine_options* options,
                                       moejit_engine** engine) {
  return guarded(Stage::kCache, [&]() -> Result<void> {
    if (engine == nullptr) return null_argument(Stage::kCache, "engine", "moejit_engine_create");
    *engine = nullptr;
    MOEJIT_TRY_ASSIGN(const auto given, moejit::bindings::read_record(Stage::kCache, options,
                                                                      "moejit_engine_options"));
    MOEJIT_TRY_ASSIGN(auto created, moejit::runtime::Engine::create(engine_options(given)));
    auto handle = std::make_unique<moejit_engine>();
    handle->cache = created->cache_description();
    handle->engine = std::move(created);
    *engine = handle.release();
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
