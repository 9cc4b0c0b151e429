// SPDX-License-Identifier: Apache-2.0
#include "cli/checkpoint/shard_set.h"

#include "compiler/support/json_document.h"

#include <fmt/core.h>
#include <map>
#include <set>

namespace moejit::cli {

Result<ShardSet> ShardSet::open(const std::vector<std::string>& paths) {
  ShardSet shards;
  for (const std::string& path : paths) {
    MOEJIT_TRY_ASSIGN(SafetensorsFile file, SafetensorsFile::open(path));
    shards.files_.push_back(std::move(file));
  }
  std::map<std::string_view, const SafetensorsFile*> owners;
  for (const SafetensorsFile& file : shards.files_)
    for (const SafetensorsEntry& entry : file.entries()) {
      const auto [owner, is_new] = owners.emplace(entry.name, &file);
      if (!is_new)
        return fail(Stage::kFile, ErrorCode::kInvalidFile,
                    fmt::format("{}: tensor {} is in {} too", file.path(),
                                quote_for_message(entry.name), owner->second->path()),
                    "give each shard of one checkpoint once");
    }
  return shards;
}

ShardEntry ShardSet::find(std::string_view name) const {
  for (const SafetensorsFile& file : files_)
    if (const SafetensorsEntry* entry = file.find(name)) return {&file, entry};
  return {};
}

std::vector<std::string> ShardSet::expert_prefixes() const {
  constexpr std::string_view kMark = ".experts.";
  std::set<std::string> prefixes;
  for (const SafetensorsFile& file : files_)
    for (const SafetensorsEntry& entry : file.entries())
      if (const size_t at = entry.name.find(kMark); at != std::string::npos)
        prefixes.insert(entry.name.substr(0, at));
  return {prefixes.begin(), prefixes.end()};
}

std::string ShardSet::description() const {
  if (files_.empty()) return "no file";
  if (files_.size() == 1) return files_.front().path();
  return fmt::format("{} and {} more", files_.front().path(), files_.size() - 1);
}

}  // namespace moejit::cli
