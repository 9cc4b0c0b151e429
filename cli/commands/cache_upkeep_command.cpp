// SPDX-License-Identifier: Apache-2.0
// Shows how large the cache is and keeps it small: stats, gc, clear.
#include "cli/commands/cache_entries.h"
#include "cli/terminal/output.h"
#include "compiler/support/table.h"

#include <cstdio>
#include <fmt/core.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

namespace moejit::cli {
namespace {

using cache::Count;

nlohmann::ordered_json limit_json(int64_t limit) {
  return limit == cache::kUnlimited ? nlohmann::ordered_json() : nlohmann::ordered_json(limit);
}

std::string limit_text(int64_t limit, const std::string& text) {
  return limit == cache::kUnlimited ? "no limit" : "limit " + text;
}

std::string stats_json(const cache::KernelCache& cache, const cache::CacheStatistics& now) {
  nlohmann::ordered_json json{
      {"cache", cache.folder()},
      {"is_writable", cache.is_writable()},
      {"files", now.files},
      {"bytes", now.bytes},
      {"max_files", limit_json(cache.limits().max_files)},
      {"max_bytes", limit_json(cache.limits().max_bytes)},
      {"quarantined", {{"files", now.quarantined_files}, {"bytes", now.quarantined_bytes}}},
      {"temporary", {{"files", now.temporary_files}, {"bytes", now.temporary_bytes}}}};
  for (std::size_t i = static_cast<std::size_t>(Count::kHits); i < cache::kCounts; ++i)
    json["counted"][std::string(name_of(Count{i}))] = now.counted.total.values[i];
  json["damaged_stats"] = now.counted.bad_records;
  return json_output(json);
}

std::string stats_text(const cache::KernelCache& cache, const cache::CacheStatistics& now) {
  const cache::CacheLimits& limits = cache.limits();
  std::string text =
      fmt::format("{}{}\n", cache.folder(), cache.is_writable() ? "" : " (read-only)");
  Table sizes({{"what"}, {"files", Table::Align::kRight}, {"size", Table::Align::kRight}, {""}});
  sizes.add(
      {"kernels", fmt::format("{}", now.files), bytes_text(now.bytes),
       fmt::format("{}, {}", limit_text(limits.max_files, fmt::format("{}", limits.max_files)),
                   limit_text(limits.max_bytes, bytes_text(limits.max_bytes)))});
  sizes.add(
      {"quarantine", fmt::format("{}", now.quarantined_files), bytes_text(now.quarantined_bytes)});
  sizes.add({"temporary", fmt::format("{}", now.temporary_files), bytes_text(now.temporary_bytes)});
  Table counts({{"counted so far"}, {"", Table::Align::kRight}});
  for (std::size_t i = static_cast<std::size_t>(Count::kHits); i < cache::kCounts; ++i)
    counts.add({std::string(name_of(Count{i})), fmt::format("{}", now.counted.total.values[i])});
  text += sizes.text() + "\n" + counts.text();
  if (now.counted.bad_records > 0)
    text += fmt::format("{} damaged records of the stats are left out\n", now.counted.bad_records);
  return text;
}

Result<void> set_limit(int64_t& limit, const std::string& text, const char* option) {
  if (text.empty()) return {};
  const auto parsed = cache::parse_limit(text);
  if (!parsed)
    return fail(Stage::kCommand, ErrorCode::kUsage,
                fmt::format("{} is \"{}\", wanted a number such as 65536, 512M or 4G, or none",
                            option, text));
  limit = *parsed;
  return {};
}

bool is_yes(const std::string& question) {
  fmt::print(stderr, "{} [y/N] ", question);
  const int answer = std::getc(stdin);
  return answer == 'y' || answer == 'Y';
}

}  // namespace

Result<void> run_cache_stats(const CacheCommand& command, Terminal& terminal) {
  MOEJIT_TRY_ASSIGN(const auto opened, open_cache(command, terminal));
  const cache::CacheStatistics now = opened->statistics();
  terminal.print(command.is_json ? stats_json(*opened, now) : stats_text(*opened, now));
  return {};
}

Result<void> run_cache_gc(const CacheGcCommand& command, Terminal& terminal) {
  cache::CacheSettings settings = cache::settings_of_environment();
  MOEJIT_TRY(set_limit(settings.limits.max_bytes, command.max_bytes, "--max-bytes"));
  MOEJIT_TRY(set_limit(settings.limits.max_files, command.max_files, "--max-files"));
  MOEJIT_TRY_ASSIGN(const auto opened,
                    open_cache(command.cache, terminal, CacheAccess::kWrite, settings));
  const cache::Collected collected = opened->collect_garbage();
  if (!collected.is_within_limits)
    terminal.note("the excess over the limits was used in the last 10 minutes");
  if (command.cache.is_json) {
    terminal.print(json_output({{"cache", opened->folder()},
                                {"evicted", collected.evicted_files},
                                {"evicted_bytes", collected.evicted_bytes},
                                {"swept", collected.swept},
                                {"files", collected.files},
                                {"bytes", collected.bytes},
                                {"is_within_limits", collected.is_within_limits}}));
    return {};
  }
  terminal.print(fmt::format("evicted: {}, {}\ntemporary files removed: {}\nleft: {}, {}\n",
                             collected.evicted_files, bytes_text(collected.evicted_bytes),
                             collected.swept, collected.files, bytes_text(collected.bytes)));
  return {};
}

Result<void> run_cache_clear(const CacheClearCommand& command, Terminal& terminal) {
  MOEJIT_TRY_ASSIGN(const auto opened, open_cache(command.cache, terminal, CacheAccess::kWrite));
  if (!command.is_confirmed) {
    const std::string question =
        fmt::format("remove all {} kernels in {}?", opened->keys().size(), opened->folder());
    if (::isatty(STDIN_FILENO) == 0)
      return fail(Stage::kCommand, ErrorCode::kUsage, question + " There is nobody to ask",
                  "moejit cache clear --yes");
    if (!is_yes(question)) {
      terminal.note("nothing was removed");
      return {};
    }
  }
  const int64_t removed = opened->clear();
  if (command.cache.is_json)
    terminal.print(json_output({{"cache", opened->folder()}, {"removed", removed}}));
  else
    terminal.print(fmt::format("{} kernels removed from {}\n", removed, opened->folder()));
  return {};
}

}  // namespace moejit::cli
