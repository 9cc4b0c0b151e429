// SPDX-License-Identifier: Apache-2.0
#include "cli/execution/open_engine.h"

#include "compiler/support/env.h"

namespace moejit::cli {

Result<std::unique_ptr<runtime::Engine>> open_engine(const CacheOptions& options,
                                                     const Terminal& terminal) {
  const bool is_frozen = options.is_frozen || environment(Variable::kFrozen) == "1";
  return runtime::Engine::create(
      {.cache_dir = options.dir,
       .use_cache = !options.is_disabled,
       .frozen = is_frozen,
       .warn = [&terminal](std::string_view text) { terminal.warn(text); }});
}

}  // namespace moejit::cli
