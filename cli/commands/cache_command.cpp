// SPDX-License-Identifier: Apache-2.0
// Shows the entries of the cache: ls, show, verify, and diff, which tells in which fields two keys
// differ.
#include "cli/commands/cache_entries.h"
#include "cli/terminal/output.h"
#include "compiler/support/table.h"
#include "runtime/kernel_entry.h"

#include <algorithm>
#include <chrono>
#include <fmt/core.h>
#include <nlohmann/json.hpp>

namespace moejit::cli {
namespace {

struct Listing {
  std::string folder;
  std::vector<cache::EntryInfo> entries;
  double seconds = 0;  // time to read and verify
};

Result<Listing> list_cache(const CacheCommand& command, const Terminal& terminal) {
  MOEJIT_TRY_ASSIGN(const auto opened, open_cache(command, terminal));
  const auto start = std::chrono::steady_clock::now();
  Listing listing{opened->folder(), opened->list()};
  listing.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return listing;
}

int64_t file_bytes(const Listing& listing) {
  int64_t bytes = 0;
  for (const cache::EntryInfo& entry : listing.entries) bytes += entry.file_bytes;
  return bytes;
}

std::string throughput_text(const Listing& listing) {
  return fmt::format(
      "read in {:.3f} s, {:.0f} MB/s\n", listing.seconds,
      static_cast<double>(file_bytes(listing)) * 1e-6 / std::max(listing.seconds, 1e-6));
}

int64_t count_damaged(const Listing& listing) {
  return std::ranges::count_if(
      listing.entries, [](const cache::EntryInfo& entry) { return !entry.problem.empty(); });
}

nlohmann::ordered_json entry_json(const cache::EntryInfo& entry) {
  return {{"key", entry.key.hex()},
          {"path", entry.path},
          {"entry", metadata_text(entry, "entry")},
          {"target", metadata_text(entry, "target")},
          {"file_bytes", entry.file_bytes},
          {"problem", entry.problem}};
}

nlohmann::ordered_json json_listing(const Listing& listing) {
  nlohmann::ordered_json json;
  json["cache"] = listing.folder;
  json["entries"] = nlohmann::ordered_json::array();
  for (const cache::EntryInfo& entry : listing.entries)
    json["entries"].push_back(entry_json(entry));
  json["damaged"] = count_damaged(listing);
  return json;
}

std::string entry_count_text(const Listing& listing) {
  return fmt::format("{} kernel{} in {}, {}\n", listing.entries.size(),
                     listing.entries.size() == 1 ? "" : "s", listing.folder,
                     bytes_text(file_bytes(listing)));
}

std::string show_json(const cache::EntryInfo& entry) {
  nlohmann::ordered_json json = entry_json(entry);
  json["payload_bytes"] = entry.payload_bytes;
  const auto metadata = parse_foreign_json(entry.metadata);
  json["usage"] = nullptr;
  if (metadata.is_object() && metadata.contains("usage")) json["usage"] = metadata["usage"];
  json["fields"] = nlohmann::ordered_json::array();
  for (const HashedField& field : runtime::key_fields_of(entry.metadata))
    json["fields"].push_back({{"field", field.name}, {"value", field.value}});
  return json_output(json);
}

std::string json_text(const nlohmann::ordered_json& value) {
  return value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string show_text(const cache::EntryInfo& entry) {
  std::string text = fmt::format(
      "key     {}\nfile    {}, {}\nentry   {}\ntarget  {}\nstate   {}\n", entry.key.hex(),
      entry.path, bytes_text(entry.file_bytes), cell_text(metadata_text(entry, "entry"), 256),
      cell_text(metadata_text(entry, "target")),
      entry.problem.empty() ? "every byte is as it was written" : entry.problem);
  const auto metadata = parse_foreign_json(entry.metadata);
  if (metadata.is_object() && metadata.contains("usage") && metadata["usage"].is_object()) {
    text += "\n";
    Table usage({{"resource"}, {"used", Table::Align::kRight}});
    for (const auto& [name, value] : metadata["usage"].items())
      usage.add({cell_text(name), cell_text(json_text(value))});
    text += usage.text();
  }
  const std::vector<HashedField> fields = runtime::key_fields_of(entry.metadata);
  if (fields.empty()) return text;
  Table table({{"field of the key"}, {"value"}});
  for (const HashedField& field : fields)
    table.add({cell_text(field.name), cell_text(field.value, 256)});
  return text + "\n" + table.text();
}

}  // namespace

Result<void> run_cache_ls(const CacheCommand& command, Terminal& terminal) {
  MOEJIT_TRY_ASSIGN(const Listing listing, list_cache(command, terminal));
  if (command.is_json) {
    terminal.print(json_output(json_listing(listing)));
    return {};
  }
  Table table({{"key"}, {"target"}, {"entry"}, {"size", Table::Align::kRight}, {"problem"}});
  for (const cache::EntryInfo& entry : listing.entries)
    table.add({entry.key.hex().substr(0, 12), cell_text(metadata_text(entry, "target")),
               cell_text(metadata_text(entry, "entry")), bytes_text(entry.file_bytes),
               entry.problem});
  if (!listing.entries.empty()) terminal.print(table.text(terminal.width()));
  terminal.print(entry_count_text(listing));
  return {};
}

Result<void> run_cache_show(const CacheShowCommand& command, Terminal& terminal) {
  MOEJIT_TRY_ASSIGN(const auto opened, open_cache(command.cache, terminal));
  MOEJIT_TRY_ASSIGN(const Digest key, find_key(*opened, command.key));
  const auto entry = opened->inspect(key);
  if (!entry)
    return fail(Stage::kCommand, ErrorCode::kUsage,
                fmt::format("{} has gone meanwhile", key.hex()));
  terminal.print(command.cache.is_json ? show_json(*entry) : show_text(*entry));
  return {};
}

Result<void> run_cache_verify(const CacheCommand& command, Terminal& terminal) {
  MOEJIT_TRY_ASSIGN(const Listing listing, list_cache(command, terminal));
  if (command.is_json) {
    nlohmann::ordered_json json = json_listing(listing);
    json["file_bytes"] = file_bytes(listing);
    json["seconds"] = listing.seconds;
    terminal.print(json_output(json));
  }
  const cache::EntryInfo* first = nullptr;
  for (const cache::EntryInfo& entry : listing.entries) {
    if (entry.problem.empty()) continue;
    if (first == nullptr) first = &entry;
    if (!command.is_json) terminal.print(fmt::format("{}: {}\n", entry.path, entry.problem));
  }
  if (!command.is_json) terminal.print(entry_count_text(listing) + throughput_text(listing));
  if (first == nullptr) {
    if (!command.is_json) terminal.print("every byte is as it was written\n");
    return {};
  }
  return fail(
      Stage::kCache, ErrorCode::kCacheCorrupt,
      fmt::format("{} of {} cache entries failed verification, the first is {}: {}",
                  count_damaged(listing), listing.entries.size(), first->path, first->problem),
      "the next run or build that needs them makes them again");
}

Result<void> run_cache_diff(const CacheDiffCommand& command, Terminal& terminal) {
  MOEJIT_TRY_ASSIGN(const auto opened, open_cache(command.cache, terminal));
  std::vector<std::vector<HashedField>> fields;
  std::vector<std::string> keys;
  for (const std::string& text : {command.a, command.b}) {
    MOEJIT_TRY_ASSIGN(const Digest key, find_key(*opened, text));
    const auto entry = opened->inspect(key);
    fields.push_back(entry ? runtime::key_fields_of(entry->metadata) : std::vector<HashedField>());
    keys.push_back(key.hex());
    if (fields.back().empty())
      return fail(
          Stage::kCache, ErrorCode::kCacheCorrupt,
          fmt::format("cache entry {} does not tell the fields of its key{}{}", key.hex(),
                      entry && !entry->problem.empty() ? ": " : "", entry ? entry->problem : ""),
          "moejit cache verify");
  }
  const std::vector<FieldDifference> differences = differing_fields(fields[0], fields[1]);
  if (command.cache.is_json) {
    const nlohmann::ordered_json json{{"cache", opened->folder()},
                                      {"a", keys[0]},
                                      {"b", keys[1]},
                                      {"differing", differences_json(differences, "a", "b")}};
    terminal.print(json_output(json));
    return {};
  }
  Table table({{"field"}, {keys[0].substr(0, 12)}, {keys[1].substr(0, 12)}});
  for (const FieldDifference& difference : differences) {
    auto [a, b] = short_texts(difference.a, difference.b);
    table.add({cell_text(difference.field), std::move(a), std::move(b)});
  }
  terminal.print(differences.empty() ? "the same fields\n" : table.text(terminal.width()));
  return {};
}

}  // namespace moejit::cli
