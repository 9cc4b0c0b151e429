// SPDX-License-Identifier: Apache-2.0
// Shows in which fields two keys differ.
#include "cli/commands/cache_entries.h"
#include "cli/terminal/output.h"
#include "compiler/support/table.h"
#include "runtime/kernel_entry.h"

#include <fmt/core.h>
#include <nlohmann/json.hpp>

namespace moejit::cli {

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
