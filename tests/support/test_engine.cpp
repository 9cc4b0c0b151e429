// SPDX-License-Identifier: Apache-2.0
#include "tests/support/test_engine.h"

#include "cache/cache_settings.h"

#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>

namespace moejit::testing {

// Returns an absolute path, since tests run in any folder.
std::string test_cache_folder() {
  const char* const chosen = std::getenv("TEST_CACHE");  // NOLINT(concurrency-mt-unsafe)
  if (chosen == nullptr || *chosen == '\0') return MOEJIT_BINARY_DIR "/test-kernels";
  if (std::string_view(chosen) == "off") return {};
  std::error_code ignored;
  return std::filesystem::absolute(chosen, ignored).string();
}

Result<std::unique_ptr<runtime::Engine>> make_test_engine() {
  if (const std::string folder = test_cache_folder(); !folder.empty()) {
    auto engine = runtime::Engine::create({.cache_dir = folder,
                                           .packs = std::vector<std::string>{},
                                           .cache_max_bytes = cache::kUnlimited,
                                           .cache_max_files = cache::kUnlimited});
    if (engine) return engine;
  }
  return runtime::Engine::create({.use_cache = false});
}

runtime::Engine& test_engine() {
  static runtime::Engine& engine = *make_test_engine().value().release();
  return engine;
}

}  // namespace moejit::testing
