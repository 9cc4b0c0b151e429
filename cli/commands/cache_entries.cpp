// SPDX-License-Identifier: Apache-2.0
#include "cli/commands/cache_entries.h"

#include <algorithm>
#include <array>
#include <fmt/core.h>
#include <nlohmann/json.hpp>
#include <utility>

namespace moejit::cli {
namespace {

Result<std::string> folder_of(const CacheCommand& command) {
  if (!command.dir.empty()) return command.dir;
  MOEJIT_TRY_ASSIGN(const cache::DefaultFolder folder, cache::default_folder());
  if (!folder.path.empty()) return folder.path;
  return fail(Stage::kCache, ErrorCode::kCacheUnusable,
              fmt::format("there is no cache folder: {}", folder.reason),
              "name one with --cache-dir or MOEJIT_CACHE_DIR");
}

// A name and how often it occurred before, so that the second "option" is compared with the second
// one of the other key.
using Place = std::pair<std::string, int>;

std::vector<std::pair<Place, std::string>> placed(std::span<const HashedField> fields) {
  std::vector<std::pair<Place, std::string>> result;
  for (const HashedField& field : fields) {
    const auto earlier = std::ranges::count_if(
        result, [&](const auto& other) { return other.first.first == field.name; });
    result.push_back({{field.name, static_cast<int>(earlier)}, field.value});
  }
  return result;
}

// Returns whether the text names the entry, with or without the "moejit_" that names of kernels
// begin with.
bool is_named(const std::string& entry, std::string_view text) {
  constexpr std::string_view kPrefix = "moejit_";
  return !text.empty() && (entry.starts_with(text) ||
                           (entry.starts_with(kPrefix) &&
                            std::string_view(entry).substr(kPrefix.size()).starts_with(text)));
}

Result<Digest> find_key_by_name(const cache::KernelCache& cache, const std::string& text) {
  std::vector<Digest> found;
  std::string list;
  for (const cache::EntryInfo& entry : cache.list()) {
    const std::string name = metadata_text(entry, "entry");
    if (!is_named(name, text)) continue;
    found.push_back(entry.key);
    if (found.size() <= 8)
      list += fmt::format("{}{} ({} for {})", list.empty() ? "" : ", ",
                          entry.key.hex().substr(0, 12), name, metadata_text(entry, "target"));
  }
  if (found.size() == 1) return found.front();
  if (found.empty())
    return fail(
        Stage::kCommand, ErrorCode::kUsage,
        fmt::format("{} has no kernel whose key or name begins with \"{}\"", cache.folder(), text),
        "moejit cache ls shows keys and names");
  return fail(Stage::kCommand, ErrorCode::kUsage,
              fmt::format("{} kernels in {} have a name that begins with \"{}\"", found.size(),
                          cache.folder(), text),
              fmt::format("give the key of one: {}{}", list, found.size() > 8 ? ", ..." : ""));
}

}  // namespace

Result<std::unique_ptr<cache::KernelCache>> open_cache(const CacheCommand& command,
                                                       const Terminal& terminal, CacheAccess access,
                                                       cache::CacheSettings settings) {
  MOEJIT_TRY_ASSIGN(const std::string folder, folder_of(command));
  // When a user tidies a cache by hand, the command writes to it even on a network file system.
  if (access == CacheAccess::kWrite) settings.writes_to_network = true;
  MOEJIT_TRY_ASSIGN(
      auto opened,
      cache::KernelCache::open(
          folder, [&terminal](std::string_view text) { terminal.warn(text); }, settings));
  if (const std::string fault = opened->fault(); !fault.empty())
    return fail(Stage::kCache, ErrorCode::kFileRead,
                fmt::format("cache folder {}: {}", opened->folder(), fault),
                "look at the disk or mount");
  if (access == CacheAccess::kWrite && !opened->is_writable())
    return fail(Stage::kCache, ErrorCode::kCacheUnusable,
                fmt::format("cache folder {} is read-only", opened->folder()),
                "ask who installed it");
  return opened;
}

Result<Digest> find_key(const cache::KernelCache& cache, const std::string& text) {
  std::string wanted = text;
  if (const std::size_t slash = wanted.rfind('/'); slash != std::string::npos && slash >= 2)
    wanted = wanted.substr(slash - 2, 2) + wanted.substr(slash + 1);
  std::vector<Digest> found;
  for (const Digest& key : cache.keys())
    if (!wanted.empty() && key.hex().starts_with(wanted)) found.push_back(key);
  if (found.size() == 1) return found.front();
  if (found.empty()) return find_key_by_name(cache, text);
  return fail(Stage::kCommand, ErrorCode::kUsage,
              fmt::format("{} kernels in {} have a key that begins with \"{}\", such as {} and {}",
                          found.size(), cache.folder(), text, found[0].hex().substr(0, 16),
                          found[1].hex().substr(0, 16)),
              "give more digits");
}

std::string metadata_text(const cache::EntryInfo& entry, const char* name) {
  const nlohmann::json metadata = nlohmann::json::parse(entry.metadata, nullptr, false);
  if (!metadata.is_object() || !metadata.contains(name) || !metadata[name].is_string()) return "?";
  return metadata[name].get<std::string>();
}

std::vector<FieldDifference> differing_fields(std::span<const HashedField> a,
                                              std::span<const HashedField> b) {
  const auto left = placed(a);
  const auto right = placed(b);
  const auto value_in = [](const auto& fields, const Place& place) {
    const auto found = std::ranges::find(fields, place, [](const auto& f) { return f.first; });
    return found == fields.end() ? nullptr : &found->second;
  };
  std::vector<FieldDifference> result;
  for (const auto& [place, value] : left) {
    const std::string* other = value_in(right, place);
    const auto stored = [&place](const std::string& text) {
      return runtime::stored_value(place.first, text);
    };
    if (other == nullptr || stored(value) != stored(*other))
      result.push_back({place.first, value, other == nullptr ? "" : *other});
  }
  for (const auto& [place, value] : right)
    if (value_in(left, place) == nullptr) result.push_back({place.first, "", value});
  return result;
}

nlohmann::ordered_json differences_json(std::span<const FieldDifference> differences, const char* a,
                                        const char* b) {
  auto json = nlohmann::ordered_json::array();
  for (const FieldDifference& difference : differences)
    json.push_back({{"field", difference.field},
                    {a, difference.a},
                    {b, difference.b},
                    {"reason", reason_of(difference.field)}});
  return json;
}

namespace {

// Returns whether a byte continues a character of UTF-8.
bool is_continuation(char byte) { return (static_cast<unsigned char>(byte) & 0xC0U) == 0x80U; }

}  // namespace

std::string cell_text(std::string_view text, std::size_t most) {
  constexpr std::string_view kCut = "...";
  std::string cell(text);
  if (cell.size() > most) {
    std::size_t end = most - kCut.size();
    while (end > 0 && is_continuation(cell[end])) --end;
    cell.replace(end, std::string::npos, kCut);
  }
  std::ranges::replace_if(
      cell, [](unsigned char c) { return c < 0x20U || c == 0x7FU; }, '?');
  return cell;
}

std::pair<std::string, std::string> short_texts(std::string_view a, std::string_view b) {
  constexpr std::size_t kMost = 24;
  constexpr std::size_t kBefore = 8;  // bytes before the first one that differs
  const auto common = static_cast<std::size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
  const auto cell = [&](std::string_view value) -> std::string {
    if (value.empty()) return "(none)";
    if (std::max(a.size(), b.size()) <= kMost || common <= kBefore) return cell_text(value, kMost);
    std::size_t begin = common - kBefore;
    while (begin < common && is_continuation(value[begin])) ++begin;
    return "..." + cell_text(value.substr(begin), kMost);
  };
  return {cell(a), cell(b)};
}

std::string_view reason_of(std::string_view field) {
  struct Reason {
    std::string_view beginning, text;
  };
  constexpr std::array kReasons = {
      Reason{"schema", "another version of moejit stores other things"},
      Reason{"target", "made for another target"},
      Reason{"entry", "other shapes, types or choices"},
      Reason{"source", "other source: another layer, plan or version of moejit"},
      Reason{"launch_abi", "another version of moejit launches it in another way"},
      Reason{"compiler_build_id", "another build of NVRTC"},
      Reason{"builtins_build_id", "another build of NVRTC's builtins"},
      Reason{"compiler", "another compiler"},
      Reason{"option", "other compiler options"},
      Reason{"header", "other headers: another version of moejit"},
      Reason{"toolchain", "another compiler"},
  };
  const auto found = std::ranges::find_if(
      kReasons, [field](const Reason& reason) { return field.starts_with(reason.beginning); });
  return found == kReasons.end() ? "another input" : found->text;
}

}  // namespace moejit::cli
