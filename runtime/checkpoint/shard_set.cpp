// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/shard_set.h"

#include "compiler/support/json_document.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fmt/core.h>
#include <set>

namespace moejit::checkpoint {
namespace {

std::string shown(const std::string& path) { return escape_for_message(path, 4096); }

std::string normal(const std::string& path) {
  return std::filesystem::path(path).lexically_normal().string();
}

// The parts of a shard's name: "model-", 2 and 3 for model-00002-of-00003.safetensors.
struct NumberedName {
  std::string stem;
  int32_t number = 0;
  int32_t count = 0;
};

std::optional<NumberedName> numbered_name(const std::string& path) {
  constexpr std::string_view kEnding = ".safetensors", kMiddle = "-of-";
  constexpr size_t kDigits = 5, kLength = 2 * kDigits + kMiddle.size();
  std::string name = std::filesystem::path(path).filename().string();
  if (!name.ends_with(kEnding) || name.size() < kEnding.size() + kLength) return std::nullopt;
  name.resize(name.size() - kEnding.size());
  const std::string_view tail = std::string_view(name).substr(name.size() - kLength);
  NumberedName result{name.substr(0, name.size() - kLength), 0, 0};
  const auto read = [](std::string_view digits, int32_t& number) {
    const auto [end, error] = std::from_chars(digits.begin(), digits.end(), number);
    return error == std::errc() && end == digits.end() && number >= 0;
  };
  if (tail.substr(kDigits, kMiddle.size()) != kMiddle ||
      !read(tail.substr(0, kDigits), result.number) ||
      !read(tail.substr(kDigits + kMiddle.size()), result.count))
    return std::nullopt;
  return result;
}

}  // namespace

Result<ShardSet> ShardSet::open(const std::vector<std::string>& paths) {
  MOEJIT_TRY_ASSIGN(const ShardFiles found, find_shard_files(paths));
  ShardSet set;
  for (const std::string& path : found.files) {
    const size_t shard = set.shards_.size();
    MOEJIT_TRY_ASSIGN(SafetensorsFile file, SafetensorsFile::open(path));
    set.shards_.push_back({path, std::move(file)});
    for (const SafetensorsEntry& entry : set.shards_[shard].file->entries())
      MOEJIT_TRY(set.add(entry.name, shard));
  }
  std::map<std::string, size_t> numbers;  // indices of the shards, by normalized path
  for (size_t i = 0; i < set.shards_.size(); ++i) numbers.emplace(normal(set.shards_[i].path), i);
  for (const ShardIndex& index : found.indexes) {
    std::vector<size_t> shards;
    for (const std::string& path : index.shards) {
      const auto [number, is_new] = numbers.emplace(normal(path), set.shards_.size());
      if (is_new) set.shards_.push_back({path, std::nullopt});
      shards.push_back(number->second);
    }
    for (const auto& [tensor, shard] : index.tensors) MOEJIT_TRY(set.add(tensor, shards[shard]));
  }
  if (found.files.empty() && found.indexes.size() == 1) set.index_ = found.indexes.front().path;
  return set;
}

Result<void> ShardSet::add(const std::string& tensor, size_t shard) {
  const auto [owner, is_new] = owners_.emplace(tensor, shard);
  // The user may name a shard and also the index that lists it.
  if (is_new || owner->second == shard) return {};
  return fail(Stage::kFile, ErrorCode::kInvalidFile,
              fmt::format("{}: tensor {} is in {} too", shown(shards_[shard].path),
                          quote_for_message(tensor, 200), shown(shards_[owner->second].path)),
              "give each shard of one checkpoint once");
}

Result<const SafetensorsFile*> ShardSet::open_shard(size_t shard, std::string_view tensor) {
  std::optional<SafetensorsFile>& file = shards_[shard].file;
  if (file) return &*file;
  auto opened = SafetensorsFile::open(shards_[shard].path);
  if (!opened) {
    Error error = std::move(opened).error();
    if (error.code == ErrorCode::kFileNotFound)
      error.hint = fmt::format("the index says that it holds tensor {}: download this shard, too",
                               quote_for_message(tensor, 200));
    return tl::make_unexpected(std::move(error));
  }
  file = std::move(*opened);
  return &*file;
}

Result<ShardEntry> ShardSet::find(std::string_view name) {
  const auto owner = owners_.find(name);
  if (owner == owners_.end())
    return fail(
        Stage::kFile, ErrorCode::kMissingTensor,
        fmt::format("{}: tensor {} is missing", description(), quote_for_message(name, 200)));
  MOEJIT_TRY_ASSIGN(const SafetensorsFile* file, open_shard(owner->second, name));
  if (const SafetensorsEntry* entry = file->find(name)) return ShardEntry{file, entry};
  return fail(Stage::kFile, ErrorCode::kMissingTensor,
              fmt::format("{}: tensor {} is missing, which the index places there", file->path(),
                          quote_for_message(name, 200)),
              "index and shard are not of one checkpoint: download both again");
}

void ShardSet::for_each_name(const std::function<void(const std::string&)>& visit) const {
  for (const auto& [name, shard] : owners_) visit(name);
}

std::string ShardSet::description() const {
  if (!index_.empty()) return shown(index_);
  if (shards_.empty()) return "no file";
  if (shards_.size() == 1) return shown(shards_.front().path);
  return fmt::format("{} and {} more", shown(shards_.front().path), shards_.size() - 1);
}

std::string ShardSet::folder() const {
  const std::string& first = !index_.empty() || shards_.empty() ? index_ : shards_.front().path;
  return std::filesystem::path(first).parent_path().string();
}

std::string ShardSet::missing_shard() const {
  if (!index_.empty()) return "";  // the index lists all shards, so none is missing
  std::set<int32_t> numbers;
  std::optional<NumberedName> name;
  for (const Shard& shard : shards_) {
    std::optional<NumberedName> next = numbered_name(shard.path);
    if (!next || (name && (next->stem != name->stem || next->count != name->count))) return "";
    numbers.insert(next->number);
    name = std::move(next);
  }
  if (!name) return "";
  for (int32_t number = 1; number <= name->count; ++number)
    if (!numbers.contains(number))
      return fmt::format("{}{:05}-of-{:05}.safetensors is not among the files",
                         escape_for_message(name->stem, 200), number, name->count);
  return "";
}

}  // namespace moejit::checkpoint
