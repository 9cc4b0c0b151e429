// SPDX-License-Identifier: Apache-2.0
#include "cache/cache_folder.h"
#include "compiler/support/env.h"

#include <array>
#include <fmt/core.h>
#include <optional>
#include <pwd.h>
#include <unistd.h>

namespace moejit::cache {
namespace {

bool is_usable_home(const std::string& path) {
  return path.starts_with('/') && path.find_first_not_of('/') != std::string::npos;
}

std::optional<std::string> home_of_password_database() {
  passwd record{};
  passwd* found = nullptr;
  std::array<char, 4096> buffer{};
  if (::getpwuid_r(::geteuid(), &record, buffer.data(), buffer.size(), &found) != 0 ||
      found == nullptr || found->pw_dir == nullptr)
    return std::nullopt;
  return found->pw_dir;
}

}  // namespace

Result<DefaultFolder> default_folder() {
  if (auto folder = environment(Variable::kCacheDir)) {
    if (!folder->starts_with('/'))
      return fail(Stage::kCache, ErrorCode::kCacheUnusable,
                  fmt::format("MOEJIT_CACHE_DIR is \"{}\", wanted an absolute path", *folder),
                  "a relative one would name another folder in every working directory");
    return DefaultFolder{.path = std::move(*folder), .is_explicit = true, .reason = {}};
  }
  if (const auto caches = environment(Variable::kXdgCacheHome); caches && is_usable_home(*caches))
    return DefaultFolder{.path = *caches + "/moejit", .is_explicit = false, .reason = {}};
  for (const auto& home : {environment(Variable::kHome), home_of_password_database()})
    if (home && is_usable_home(*home))
      return DefaultFolder{.path = *home + "/.cache/moejit", .is_explicit = false, .reason = {}};
  return DefaultFolder{
      .path = {},
      .is_explicit = false,
      .reason = "neither MOEJIT_CACHE_DIR nor XDG_CACHE_HOME is set and the user has no home"};
}

}  // namespace moejit::cache
