// SPDX-License-Identifier: Apache-2.0
#include "cache/pack.h"
#include "compiler/support/env.h"

#include <algorithm>
#include <fmt/core.h>

namespace moejit::cache {

std::vector<std::string> split_paths(std::string_view paths) {
  std::vector<std::string> parts;
  while (!paths.empty()) {
    const std::size_t end = std::min(paths.find(':'), paths.size());
    if (end > 0) parts.emplace_back(paths.substr(0, end));
    paths.remove_prefix(std::min(end + 1, paths.size()));
  }
  return parts;
}

Result<std::vector<std::string>> default_packs() {
  std::vector<std::string> packs = split_paths(environment(Variable::kPacks).value_or(""));
  for (const std::string& pack : packs)
    if (!pack.starts_with('/'))
      return fail(Stage::kCache, ErrorCode::kCacheUnusable,
                  fmt::format("MOEJIT_PACKS holds \"{}\", wanted absolute paths", pack),
                  "a relative one would name another file in every working directory");
  return packs;
}

Result<PackTrust> pack_trust(const std::string& key_ring) {
  const std::string path =
      key_ring.empty() ? environment(Variable::kPackKeys).value_or("") : key_ring;
  PackTrust trust;
  if (path.empty()) return trust;
  if (key_ring.empty() && !path.starts_with('/'))
    return fail(Stage::kCache, ErrorCode::kCacheUnusable,
                fmt::format("MOEJIT_PACK_KEYS is \"{}\", wanted an absolute path", path),
                "a relative one would name another key ring in every working directory");
  MOEJIT_TRY_ASSIGN(trust.ring, read_key_ring(path));
  return trust;
}

}  // namespace moejit::cache
