// SPDX-License-Identifier: Apache-2.0
// Why a kernel is compiled although there is a cache: why, diff.
#include "cli/commands/cache_entries.h"
#include "cli/commands/layer_file.h"
#include "cli/terminal/table.h"
#include "compiler/kernel_key.h"
#include "runtime/kernel_entry.h"

#include <algorithm>
#include <filesystem>
#include <fmt/core.h>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <tuple>

namespace moejit::cli {
namespace {

std::string dump(const nlohmann::ordered_json& json) {
  return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

std::string short_text(const std::string& value) {
  if (value.empty()) return "(none)";
  return value.size() <= 24 ? value : value.substr(0, 21) + "...";
}

struct Present {
  cache::EntryInfo entry;
  std::vector<HashedField> fields;
};

// One kernel that a layer needs, and what the cache has instead where it lacks it.
struct Wanted {
  std::string operation;
  std::string entry;
  compiler::KernelKey key;
  bool is_present = false;
  bool is_quarantined = false;
  std::string problem;                   // of the file under the key
  std::optional<Digest> nearest;         // the kernel whose key differs least
  std::vector<FieldDifference> differs;  // a: wanted, b: that of the nearest
};

bool has_field(const std::vector<FieldDifference>& differences, std::string_view name) {
  return std::ranges::any_of(
      differences, [name](const FieldDifference& difference) { return difference.field == name; });
}

// The same kernel for the same target from another compiler is nearer than another kernel.
void find_nearest(Wanted& wanted, const std::vector<Present>& present) {
  std::optional<std::tuple<bool, bool, size_t>> least;
  for (const Present& candidate : present) {
    if (candidate.fields.empty()) continue;
    auto differences = differing_fields(wanted.key.fields, candidate.fields);
    const std::tuple distance{has_field(differences, "target"), has_field(differences, "entry"),
                              differences.size()};
    if (least && *least <= distance) continue;
    least = distance;
    wanted.nearest = candidate.entry.key;
    wanted.differs = std::move(differences);
  }
}

Result<std::vector<Wanted>> look_for(const compiler::Plan& plan, const cache::KernelCache& cache) {
  std::vector<Present> present;
  std::map<Digest, std::string> problems;
  for (cache::EntryInfo& entry : cache.list()) {
    problems[entry.key] = entry.problem;
    std::vector<HashedField> fields = runtime::key_fields_of(entry.metadata);
    present.push_back({std::move(entry), std::move(fields)});
  }
  const std::vector<Digest> quarantined = cache.quarantined();
  std::vector<Wanted> all;
  for (const compiler::KernelPlan& kernel : plan.kernels) {
    MOEJIT_TRY_ASSIGN(const compiler::KernelSource source,
                      compiler::emit_kernel(kernel, plan.target));
    MOEJIT_TRY_ASSIGN(compiler::KernelKey key, compiler::kernel_key(source));
    Wanted wanted{.operation = kernel.operation, .entry = source.entry, .key = std::move(key)};
    const auto found = problems.find(wanted.key.digest);
    wanted.is_present = found != problems.end() && found->second.empty();
    wanted.problem = found == problems.end() ? "" : found->second;
    wanted.is_quarantined = std::ranges::count(quarantined, wanted.key.digest) > 0;
    if (!wanted.is_present && wanted.problem.empty()) find_nearest(wanted, present);
    all.push_back(std::move(wanted));
  }
  return all;
}

std::string state_text(const Wanted& wanted) {
  if (wanted.is_present) return "in the cache";
  if (!wanted.problem.empty()) return "damaged: " + wanted.problem;
  const std::string_view damaged = wanted.is_quarantined ? "; it was damaged and moved aside" : "";
  if (wanted.differs.empty()) return fmt::format("not there; nor is any other{}", damaged);
  const FieldDifference& first = wanted.differs.front();
  return fmt::format("not there{}; nearest {} differs in {}: wanted {}, has {} ({})", damaged,
                     wanted.nearest->hex().substr(0, 12), first.field, short_text(first.a),
                     short_text(first.b), reason_of(first.field));
}

nlohmann::ordered_json differences_json(const std::vector<FieldDifference>& differences,
                                        const char* a, const char* b) {
  auto json = nlohmann::ordered_json::array();
  for (const FieldDifference& difference : differences)
    json.push_back({{"field", difference.field},
                    {a, difference.a},
                    {b, difference.b},
                    {"reason", reason_of(difference.field)}});
  return json;
}

nlohmann::ordered_json wanted_json(const Wanted& wanted) {
  nlohmann::ordered_json json{
      {"operation", wanted.operation},           {"entry", wanted.entry},
      {"key", wanted.key.digest.hex()},          {"is_present", wanted.is_present},
      {"is_quarantined", wanted.is_quarantined}, {"problem", wanted.problem}};
  json["nearest"] = wanted.nearest ? nlohmann::ordered_json(wanted.nearest->hex()) : nullptr;
  json["first_differing_field"] = wanted.differs.empty()
                                      ? nlohmann::ordered_json()
                                      : nlohmann::ordered_json(wanted.differs.front().field);
  json["differing"] = differences_json(wanted.differs, "wanted", "found");
  return json;
}

Result<void> why_of_layer(const CacheWhyCommand& command, const cache::KernelCache& cache,
                          Terminal& terminal) {
  MOEJIT_TRY_ASSIGN(const compiler::Plan plan, read_plan(command.what, command.target));
  MOEJIT_TRY_ASSIGN(const std::vector<Wanted> all, look_for(plan, cache));
  const auto missing = std::ranges::count(all, false, &Wanted::is_present);
  if (command.cache.is_json) {
    nlohmann::ordered_json json{{"cache", cache.folder()}, {"target", command.target}};
    json["kernels"] = nlohmann::ordered_json::array();
    for (const Wanted& wanted : all) json["kernels"].push_back(wanted_json(wanted));
    json["missing"] = missing;
    terminal.print(dump(json));
    return {};
  }
  Table table({{"kernel"}, {"key"}, {"state"}});
  for (const Wanted& wanted : all)
    table.add({wanted.operation, wanted.key.digest.hex().substr(0, 12), state_text(wanted)});
  terminal.print(table.text());
  terminal.print(fmt::format("{} of {} kernels are in {}\n", std::ssize(all) - missing, all.size(),
                             cache.folder()));
  return {};
}

// Of a key alone nobody can tell what it was made of, only what became of its entry.
Result<void> why_of_key(const CacheWhyCommand& command, const cache::KernelCache& cache,
                        Terminal& terminal) {
  const auto begins = [&command](const Digest& key) { return key.hex().starts_with(command.what); };
  const std::vector<Digest> quarantined = cache.quarantined();
  const bool is_quarantined = std::ranges::any_of(quarantined, begins);
  const std::vector<Digest> keys = cache.keys();
  std::optional<cache::EntryInfo> entry;
  if (std::ranges::any_of(keys, begins)) {
    MOEJIT_TRY_ASSIGN(const Digest key, find_key(cache, command.what));
    entry = cache.inspect(key);
  }
  const bool is_present = entry && entry->problem.empty();
  if (command.cache.is_json) {
    terminal.print(dump({{"cache", cache.folder()},
                         {"key", entry ? entry->key.hex() : command.what},
                         {"is_present", is_present},
                         {"is_quarantined", is_quarantined},
                         {"problem", entry ? entry->problem : ""}}));
    return {};
  }
  terminal.print(is_present       ? "in the cache: every byte is as it was written\n"
                 : entry          ? "damaged: " + entry->problem + "\n"
                 : is_quarantined ? "not there; it was damaged and moved to quarantine/\n"
                                  : "not there: never published, evicted or removed\n");
  if (!entry)
    terminal.print(
        "moejit cache why LAYER tells in which field its key differs from those that "
        "are there\n");
  return {};
}

}  // namespace

Result<void> run_cache_why(const CacheWhyCommand& command, Terminal& terminal) {
  MOEJIT_TRY_ASSIGN(const auto opened, open_cache(command.cache, terminal));
  const bool is_key = command.what.size() >= 4 && command.what.size() <= 64 &&
                      command.what.find_first_not_of("0123456789abcdef") == std::string::npos;
  std::error_code error;
  if (is_key && !std::filesystem::exists(command.what, error))
    return why_of_key(command, *opened, terminal);
  return why_of_layer(command, *opened, terminal);
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
    terminal.print(dump({{"cache", opened->folder()},
                         {"a", keys[0]},
                         {"b", keys[1]},
                         {"differing", differences_json(differences, "a", "b")}}));
    return {};
  }
  Table table({{"field"}, {keys[0].substr(0, 12)}, {keys[1].substr(0, 12)}});
  for (const FieldDifference& difference : differences)
    table.add({difference.field, short_text(difference.a), short_text(difference.b)});
  terminal.print(differences.empty() ? "the same fields\n" : table.text());
  return {};
}

}  // namespace moejit::cli
