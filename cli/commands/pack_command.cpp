// SPDX-License-Identifier: Apache-2.0
// Runs the read-only verbs of moejit pack: ls, verify.
#include "cache/pack.h"
#include "cli/commands/cache_entries.h"
#include "cli/commands/pack_commands.h"
#include "cli/terminal/output.h"
#include "compiler/support/table.h"

#include <fmt/core.h>
#include <nlohmann/json.hpp>
#include <span>

namespace moejit::cli {
namespace {

using nlohmann::ordered_json;

// Returns a text field of an entry's metadata; "?" if it has none.
std::string field_of(const cache::Entry& entry, const char* name) {
  const nlohmann::json metadata = nlohmann::json::parse(entry.metadata, nullptr, false);
  if (!metadata.is_object() || !metadata.contains(name) || !metadata[name].is_string()) return "?";
  return metadata[name].get<std::string>();
}

ordered_json signatures_json(const cache::Pack& pack) {
  ordered_json list = ordered_json::array();
  for (const cache::Signature& signature : pack.signatures())
    list.push_back({{"key", signature.key_id.hex()},
                    {"serial", signature.terms.serial},
                    {"expires", signature.terms.expires_at == 0
                                    ? ordered_json(nullptr)
                                    : ordered_json(cache::date_text(signature.terms.expires_at))}});
  return list;
}

ordered_json pack_json(const cache::Pack& pack) {
  ordered_json json{{"pack", pack.path()},
                    {"digest", pack.digest().hex()},
                    {"bytes", pack.file_bytes()},
                    {"kernels", pack.size()}};
  json["manifest"] = parse_foreign_json(pack.manifest());
  if (json["manifest"].is_discarded()) json["manifest"] = nullptr;
  json["signatures"] = signatures_json(pack);
  return json;
}

std::string summary_text(const cache::Pack& pack) {
  std::string text =
      fmt::format("{} kernel{} in {}, {}, digest {}\n", pack.size(), pack.size() == 1 ? "" : "s",
                  pack.path(), bytes_text(pack.file_bytes()), pack.digest().hex().substr(0, 16));
  for (const cache::Signature& signature : pack.signatures())
    text += fmt::format("signed with key {}, serial {}, {}\n", signature.key_id.hex().substr(0, 16),
                        signature.terms.serial,
                        signature.terms.expires_at == 0
                            ? "never expires"
                            : "good until " + cache::date_text(signature.terms.expires_at));
  return text;
}

}  // namespace

Result<void> run_pack_ls(const PackCommand& command, Terminal& terminal) {
  MOEJIT_TRY_ASSIGN(const auto pack, cache::Pack::open(command.file, {.is_inspection = true}));
  MOEJIT_TRY_ASSIGN(const auto places, pack->places());
  ordered_json json = pack_json(*pack);
  json["entries"] = ordered_json::array();
  Table table({{"key"}, {"target"}, {"entry"}, {"size", Table::Align::kRight}, {"problem"}});
  for (const cache::Pack::Place& place : places) {
    const auto entry = pack->get(place.key);
    const cache::Entry found = entry && *entry ? **entry : cache::Entry{};
    const std::string problem = entry ? "" : entry.error().message;
    const auto bytes = static_cast<int64_t>(place.bytes);
    table.add({place.key.hex().substr(0, 12), cell_text(field_of(found, "target")),
               cell_text(field_of(found, "entry")), bytes_text(bytes),
               problem.empty() ? "" : "damaged"});
    json["entries"].push_back({{"key", place.key.hex()},
                               {"entry", field_of(found, "entry")},
                               {"target", field_of(found, "target")},
                               {"bytes", bytes},
                               {"problem", problem}});
  }
  if (command.is_json) {
    terminal.print(json_output(json));
    return {};
  }
  if (!places.empty()) terminal.print(table.text(terminal.width()));
  terminal.print(summary_text(*pack));
  return {};
}

Result<void> run_pack_verify(const PackCommand& command, Terminal& terminal) {
  MOEJIT_TRY_ASSIGN(const cache::PackTrust trust, cache::pack_trust(command.keys));
  MOEJIT_TRY_ASSIGN(const auto pack, cache::Pack::open(command.file, trust));
  const std::vector<std::string> problems = pack->verify();
  if (command.is_json) {
    ordered_json json = pack_json(*pack);
    json["problems"] = problems;
    json["trusted_by"] = trust.ring ? "signature" : "owner and mode";
    terminal.print(json_output(json));
  } else {
    for (const std::string& problem : problems) terminal.print(problem + "\n");
    terminal.print(summary_text(*pack));
    if (problems.empty())
      terminal.print(fmt::format("every byte is as it was written; trusted by its {}\n",
                                 trust.ring ? "signature" : "owner and mode"));
  }
  if (problems.empty()) return {};
  return fail(Stage::kCache, ErrorCode::kCacheCorrupt,
              fmt::format("pack {}: {} problem{}, the first is {}", pack->path(), problems.size(),
                          problems.size() == 1 ? "" : "s", problems.front()),
              "copy it again, or rebuild it");
}

}  // namespace moejit::cli
