// SPDX-License-Identifier: Apache-2.0
// Tells why a kernel is compiled although there are a cache and packs.
#include "cli/commands/layer_file.h"
#include "cli/commands/tuning_records.h"
#include "cli/commands/wanted_kernels.h"
#include "cli/terminal/output.h"
#include "compiler/support/env.h"
#include "compiler/support/table.h"

#include <algorithm>
#include <filesystem>
#include <fmt/core.h>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

namespace moejit::cli {
namespace {

// Opens the places that an engine asks. An unusable folder that was named is an error; an unusable
// default folder is skipped if there are packs.
Result<KernelPlaces> open_places(const CacheWhyCommand& command, const Terminal& terminal) {
  KernelPlaces places;
  MOEJIT_TRY_ASSIGN(places.is_frozen, is_switched_on(Variable::kFrozen));
  places.is_frozen |= command.is_frozen;
  std::vector<std::string> paths = command.packs;
  if (paths.empty()) {
    MOEJIT_TRY_ASSIGN(paths, cache::default_packs());
  }
  if (!paths.empty()) {
    MOEJIT_TRY_ASSIGN(const cache::PackTrust trust, cache::pack_trust(command.pack_keys));
    for (const std::string& path : paths) {
      MOEJIT_TRY_ASSIGN(auto pack, cache::Pack::open(path, trust));
      places.packs.push_back(std::move(pack));
    }
  }
  auto folder = open_cache(command.cache, terminal);
  if (folder) {
    places.folder = std::move(*folder);
    return places;
  }
  const bool is_named = !command.cache.dir.empty() || environment(Variable::kCacheDir).has_value();
  if (is_named || paths.empty()) return tl::make_unexpected(std::move(folder).error());
  terminal.warn(folder.error().message + "; only packs are looked at");
  return places;
}

// Returns the name of a pack's file, or its path if another pack has the same name.
std::string pack_name(const std::string& path, const KernelPlaces& places) {
  const auto name_of = [](const std::string& file) { return file.substr(file.rfind('/') + 1); };
  const auto same = std::ranges::count_if(
      places.packs, [&](const auto& pack) { return name_of(pack->path()) == name_of(path); });
  return same == 1 ? name_of(path) : path;
}

std::string state_text(const WantedKernel& wanted, const KernelPlaces& places) {
  if (!wanted.found_in.empty()) {
    std::string text = "in the cache";
    if (wanted.is_in_pack) text = "in pack " + pack_name(wanted.found_in, places);
    if (!wanted.is_own_compiler)
      text += fmt::format(", made by {}", runtime::compiler_name(wanted.compiler));
    return text;
  }
  if (!wanted.problem.empty()) return "damaged: " + cell_text(wanted.problem, 256);
  const std::string_view damaged = wanted.is_quarantined ? "; it was damaged and moved aside" : "";
  if (wanted.differs.empty()) return fmt::format("not there; nor is any other{}", damaged);
  if (!wanted.is_nearest_of_operation)
    return fmt::format("not there; nor is any other {}{}", wanted.operation, damaged);
  const FieldDifference& first = wanted.differs.front();
  const auto [a, b] = short_texts(first.a, first.b);
  return fmt::format("not there{}; nearest {} differs in {}: wanted {}, has {} ({})", damaged,
                     wanted.nearest->hex().substr(0, 12), cell_text(first.field), a, b,
                     reason_of(first.field));
}

nlohmann::ordered_json wanted_json(const WantedKernel& wanted) {
  const auto text = [](const std::string& value) {
    return value.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(value);
  };
  const auto hex = [](const std::optional<Digest>& key) { return key ? key->hex() : ""; };
  return {{"operation", wanted.operation},
          {"entry", wanted.entry},
          {"key", text(hex(wanted.key))},
          {"compiler", text(runtime::compiler_name(wanted.compiler))},
          {"is_present", !wanted.found_in.empty()},
          {"found_in", text(wanted.found_in)},
          {"is_quarantined", wanted.is_quarantined},
          {"problem", wanted.problem},
          {"nearest", text(hex(wanted.nearest))},
          {"is_nearest_of_operation", wanted.is_nearest_of_operation},
          {"first_differing_field", text(wanted.differs.empty() ? "" : wanted.differs[0].field)},
          {"differing", differences_json(wanted.differs, "wanted", "found")}};
}

// Returns for example "8 of 8 kernels are there: 3 in FOLDER, 5 in PACK".
std::string summary_text(const std::vector<WantedKernel>& all, const KernelPlaces& places) {
  std::vector<std::pair<std::string, std::ptrdiff_t>> counts;
  if (places.folder) counts.emplace_back(places.folder->folder(), 0);
  for (const auto& pack : places.packs) counts.emplace_back(pack->path(), 0);
  std::ptrdiff_t found = 0;
  for (auto& [place, count] : counts) {
    count = std::ranges::count(all, place, &WantedKernel::found_in);
    found += count;
  }
  std::string text = fmt::format("{} of {} kernels are ", found, all.size());
  if (counts.size() == 1) return text + fmt::format("in {}\n", counts[0].first);
  text += "there:";
  for (const auto& [place, count] : counts) text += fmt::format(" {} in {},", count, place);
  text.back() = '\n';
  return text;
}

nlohmann::ordered_json places_json(const KernelPlaces& places) {
  nlohmann::ordered_json json{{"cache", places.folder
                                            ? nlohmann::ordered_json(places.folder->folder())
                                            : nlohmann::ordered_json()}};
  json["packs"] = nlohmann::ordered_json::array();
  for (const auto& pack : places.packs) json["packs"].push_back(pack->path());
  return json;
}

Result<void> why_of_layer(const CacheWhyCommand& command, const KernelPlaces& places,
                          Terminal& terminal) {
  MOEJIT_TRY_ASSIGN(const compiler::Plan plan, read_plan(command.what, command.plan));
  MOEJIT_TRY_ASSIGN(const std::vector<WantedKernel> all, look_for(plan, places));
  if (command.cache.is_json) {
    nlohmann::ordered_json json = places_json(places);
    json["target"] = command.plan.target;
    json["kernels"] = nlohmann::ordered_json::array();
    for (const WantedKernel& wanted : all) json["kernels"].push_back(wanted_json(wanted));
    json["missing"] = std::ranges::count(all, "", &WantedKernel::found_in);
    terminal.print(json_output(json));
    return {};
  }
  Table table({{"kernel"}, {"key"}, {"state"}});
  for (const WantedKernel& wanted : all)
    table.add({wanted.operation, wanted.key ? wanted.key->hex().substr(0, 12) : "?",
               state_text(wanted, places)});
  terminal.print(table.text(terminal.width()));
  terminal.print(summary_text(all, places));
  return {};
}

// Returns the pack with a key that begins with these digits; null if none has one.
Result<const cache::Pack*> pack_with(const KernelPlaces& places, const std::string& digits) {
  for (const auto& pack : places.packs) {
    MOEJIT_TRY_ASSIGN(const auto entries, pack->places());
    for (const cache::Pack::Place& entry : entries)
      if (entry.key.hex().starts_with(digits)) return pack.get();
  }
  return nullptr;
}

// The state of one entry.
struct EntryState {
  std::optional<cache::EntryInfo> entry;  // in the folder
  bool is_quarantined = false;
  std::string pack;  // path of the pack that has it; empty: none
  bool is_present() const { return (entry && entry->problem.empty()) || !pack.empty(); }
};

Result<EntryState> state_of(const std::string& digits, const KernelPlaces& places) {
  const auto begins = [&digits](const Digest& key) { return key.hex().starts_with(digits); };
  EntryState state;
  if (places.folder) {
    state.is_quarantined = std::ranges::any_of(places.folder->quarantined(), begins);
    if (std::ranges::any_of(places.folder->keys(), begins)) {
      MOEJIT_TRY_ASSIGN(const Digest key, find_key(*places.folder, digits));
      state.entry = places.folder->inspect(key);
    }
  }
  if (state.is_present()) return state;
  MOEJIT_TRY_ASSIGN(const cache::Pack* const pack, pack_with(places, digits));
  if (pack != nullptr) state.pack = pack->path();
  return state;
}

// Prints the state of a key's entry. A key does not say what it was made of, so nothing is
// compared.
Result<void> why_of_key(const CacheWhyCommand& command, const KernelPlaces& places,
                        Terminal& terminal) {
  MOEJIT_TRY_ASSIGN(const EntryState state, state_of(command.what, places));
  if (command.cache.is_json) {
    nlohmann::ordered_json json = places_json(places);
    json["key"] = state.entry ? state.entry->key.hex() : command.what;
    json["is_present"] = state.is_present();
    json["is_quarantined"] = state.is_quarantined;
    json["problem"] = state.entry ? state.entry->problem : "";
    terminal.print(json_output(json));
    return {};
  }
  terminal.print(!state.pack.empty()    ? fmt::format("in pack {}\n", state.pack)
                 : state.is_present()   ? "in the cache: every byte is as it was written\n"
                 : state.entry          ? "damaged: " + state.entry->problem + "\n"
                 : state.is_quarantined ? "not there; it was damaged and moved to quarantine/\n"
                                        : "not there: never published, evicted or removed\n");
  if (!state.entry && !state.is_present())
    terminal.print(
        "moejit cache why LAYER tells in which field its key differs from those that "
        "are there\n");
  return {};
}

}  // namespace

Result<void> run_cache_why(const CacheWhyCommand& command, Terminal& terminal) {
  MOEJIT_TRY_ASSIGN(const KernelPlaces places, open_places(command, terminal));
  const bool is_key = command.what.size() >= 4 && command.what.size() <= 64 &&
                      command.what.find_first_not_of("0123456789abcdef") == std::string::npos;
  std::error_code error;
  if (is_key && !std::filesystem::exists(command.what, error))
    return why_of_key(command, places, terminal);
  return why_of_layer(command, places, terminal);
}

}  // namespace moejit::cli
