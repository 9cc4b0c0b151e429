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
  const auto below = [](const std::optional<std::string>& home) {
    return home && is_usable_home(*home) ? *home + "/.cache/moejit" : std::string();
  };
  if (std::string path = below(environment(Variable::kHome)); !path.empty())
    return DefaultFolder{.path = std::move(path), .is_explicit = false, .reason = {}};
  if (std::string path = below(home_of_password_database()); !path.empty())
    return DefaultFolder{.path = std::move(path),
                         .is_explicit = false,
                         .reason = {},
                         .is_of_password_database = true};
  return DefaultFolder{
      .path = {},
      .is_explicit = false,
      .reason = "neither MOEJIT_CACHE_DIR nor XDG_CACHE_HOME is set and the user has no home"};
}

}  // namespace moejit::cache
