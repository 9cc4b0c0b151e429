// SPDX-License-Identifier: Apache-2.0
#include "cache/kernel_cache.h"
#include "cli/commands/commands.h"
#include "cli/terminal/table.h"

#include <fmt/core.h>
#include <nlohmann/json.hpp>

namespace moejit::cli {
namespace {

Result<std::string> cache_folder(const CacheCommand& command) {
  if (!command.dir.empty()) return command.dir;
  MOEJIT_TRY_ASSIGN(const cache::DefaultFolder folder, cache::default_folder());
  if (!folder.path.empty()) return folder.path;
  return fail(Stage::kCache, ErrorCode::kCacheUnusable,
              fmt::format("there is no cache folder: {}", folder.reason),
              "name one with --cache-dir or MOEJIT_CACHE_DIR");
}

struct Listing {
  std::string folder;
  std::vector<cache::EntryInfo> entries;
};

Result<Listing> list_cache(const CacheCommand& command, const Terminal& terminal) {
  MOEJIT_TRY_ASSIGN(const std::string folder, cache_folder(command));
  MOEJIT_TRY_ASSIGN(const std::unique_ptr<cache::KernelCache> opened,
                    cache::KernelCache::open(
                        folder, [&terminal](std::string_view text) { terminal.warn(text); }));
  return Listing{opened->folder(), opened->list()};
}

// A text field of an entry's metadata; "?" where the entry is damaged.
std::string field_of(const cache::EntryInfo& entry, const char* name) {
  const nlohmann::json metadata = nlohmann::json::parse(entry.metadata, nullptr, false);
  if (!metadata.is_object() || !metadata.contains(name) || !metadata[name].is_string()) return "?";
  return metadata[name].get<std::string>();
}

std::string json_listing(const Listing& listing) {
  nlohmann::ordered_json json;
  json["cache"] = listing.folder;
  json["entries"] = nlohmann::ordered_json::array();
  int64_t damaged = 0;
  for (const cache::EntryInfo& entry : listing.entries) {
    damaged += entry.problem.empty() ? 0 : 1;
    json["entries"].push_back({{"key", entry.key.hex()},
                               {"path", entry.path},
                               {"entry", field_of(entry, "entry")},
                               {"target", field_of(entry, "target")},
                               {"file_bytes", entry.file_bytes},
                               {"problem", entry.problem}});
  }
  json["damaged"] = damaged;
  return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

int64_t count_damaged(const Listing& listing) {
  int64_t damaged = 0;
  for (const cache::EntryInfo& entry : listing.entries) damaged += entry.problem.empty() ? 0 : 1;
  return damaged;
}

std::string entry_count_text(const Listing& listing) {
  int64_t bytes = 0;
  for (const cache::EntryInfo& entry : listing.entries) bytes += entry.file_bytes;
  return fmt::format("{} kernel{} in {}, {}\n", listing.entries.size(),
                     listing.entries.size() == 1 ? "" : "s", listing.folder, bytes_text(bytes));
}

}  // namespace

Result<void> run_cache_ls(const CacheCommand& command, Terminal& terminal) {
  MOEJIT_TRY_ASSIGN(const Listing listing, list_cache(command, terminal));
  if (command.is_json) {
    terminal.print(json_listing(listing));
    return {};
  }
  Table table({{"key"}, {"target"}, {"entry"}, {"size", Table::Align::kRight}, {"problem"}});
  for (const cache::EntryInfo& entry : listing.entries)
    table.add({entry.key.hex().substr(0, 12), field_of(entry, "target"), field_of(entry, "entry"),
               bytes_text(entry.file_bytes), entry.problem});
  if (!listing.entries.empty()) terminal.print(table.text());
  terminal.print(entry_count_text(listing));
  return {};
}

Result<void> run_cache_verify(const CacheCommand& command, Terminal& terminal) {
  MOEJIT_TRY_ASSIGN(const Listing listing, list_cache(command, terminal));
  if (command.is_json) terminal.print(json_listing(listing));
  const cache::EntryInfo* first = nullptr;
  for (const cache::EntryInfo& entry : listing.entries) {
    if (entry.problem.empty()) continue;
    if (first == nullptr) first = &entry;
    if (!command.is_json) terminal.print(fmt::format("{}: {}\n", entry.path, entry.problem));
  }
  if (!command.is_json) terminal.print(entry_count_text(listing));
  if (first == nullptr) {
    if (!command.is_json) terminal.print("every byte is as it was written\n");
    return {};
  }
  return fail(
      Stage::kCache, ErrorCode::kCacheCorrupt,
      fmt::format("{} of {} cache entries failed verification, the first is {}: {}",
                  count_damaged(listing), listing.entries.size(), first->path, first->problem),
      "the next run or build that needs them makes them anew");
}

}  // namespace moejit::cli
