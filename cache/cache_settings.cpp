// SPDX-License-Identifier: Apache-2.0
#include "cache/cache_settings.h"

#include "compiler/support/env.h"

#include <charconv>
#include <fmt/core.h>

namespace moejit::cache {
namespace {

void read_limit(Variable variable, std::optional<std::int64_t> chosen, std::int64_t& limit,
                std::vector<std::string>& problems) {
  if (chosen) {
    limit = *chosen;
    return;
  }
  const auto text = environment(variable);
  if (!text) return;
  if (const auto parsed = parse_limit(*text)) {
    limit = *parsed;
    return;
  }
  problems.push_back(
      fmt::format("{} is \"{}\", wanted a number such as 65536, 512M or 4G, or none; {} holds",
                  name_of(variable), *text, limit));
}

}  // namespace

std::optional<std::int64_t> parse_limit(std::string_view text) {
  if (text == "none") return kUnlimited;
  std::int64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || number <= 0) return std::nullopt;
  std::string unit;
  // toupper() follows the host's locale, and a Turkish one has no I for "i".
  for (const char* c = rest; c != end; ++c)
    if (*c != ' ') unit += *c >= 'a' && *c <= 'z' ? static_cast<char>(*c - 'a' + 'A') : *c;
  if (unit.empty()) return number;
  constexpr std::string_view kPrefixes = "KMGT";
  const std::size_t power = kPrefixes.find(unit[0]);
  const std::string_view suffix = std::string_view(unit).substr(1);
  if (power == std::string_view::npos || !(suffix.empty() || suffix == "B" || suffix == "IB"))
    return std::nullopt;
  const int shift = 10 * (static_cast<int>(power) + 1);
  if (number > kUnlimited >> shift) return std::nullopt;
  return number << shift;
}

CacheSettings settings_of_environment(const CacheChoices& choices) {
  CacheSettings settings;
  read_limit(Variable::kCacheMaxBytes, choices.max_bytes, settings.limits.max_bytes,
             settings.problems);
  read_limit(Variable::kCacheMaxFiles, choices.max_files, settings.limits.max_files,
             settings.problems);
  if (choices.writes_to_network) {
    settings.writes_to_network = *choices.writes_to_network;
  } else if (const auto use = environment(Variable::kCacheNetwork)) {
    settings.writes_to_network = *use == "write";
    if (*use != "write" && *use != "read")
      settings.problems.push_back(
          fmt::format("MOEJIT_CACHE_NETWORK is \"{}\", wanted read or write; read holds", *use));
  }
  return settings;
}

}  // namespace moejit::cache
