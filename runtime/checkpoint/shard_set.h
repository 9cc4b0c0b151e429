// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/support/error.h"
#include "runtime/checkpoint/safetensors_file.h"

#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace moejit::checkpoint {

// What a file that is not a safetensors file seems to be, and what to do with it.
struct FileKind {
  std::string_view what;  // "a Git LFS pointer instead of the data"
  std::string_view hint;
};

// Recognizes the kind of a file by its first bytes; 16 are enough for all kinds but web pages.
// Returns none if a safetensors file may begin with these bytes.
std::optional<FileKind> foreign_kind(std::string_view first_bytes);

// The shards of an index, and which of them holds which tensor.
struct ShardIndex {
  std::string path;
  std::vector<std::string> shards;                      // paths
  std::vector<std::pair<std::string, size_t>> tensors;  // names, and indices into `shards`
};

// The files of a checkpoint: files that the user named, and files of an index. Files of an index
// need not be opened to know their tensors.
struct ShardFiles {
  std::vector<std::string> files;
  std::vector<ShardIndex> indexes;
};

// Resolves the value of `--weights`: safetensors files, an index (model.safetensors.index.json), or
// a folder that has an index or one safetensors file. Reads none of a file's data. Errors:
// kFileNotFound, kFileRead, kInvalidFile. kInvalidFile means an index that is no map from tensors
// to files beside it, or a folder with no clear choice.
Result<ShardFiles> find_shard_files(const std::vector<std::string>& paths);

// A tensor and the shard that holds it.
struct ShardEntry {
  const SafetensorsFile* file = nullptr;
  const SafetensorsEntry* entry = nullptr;
};

// The shards of a checkpoint as if they were one file. A shard of an index is opened when one of
// its tensors is first asked for.
class ShardSet {
 public:
  // Opens files, indexes or folders. Returns the errors of find_shard_files() and
  // SafetensorsFile::open(), and kInvalidFile if two shards hold a tensor of the same name.
  static Result<ShardSet> open(const std::vector<std::string>& paths);

  bool has(std::string_view name) const { return owners_.contains(name); }

  // Returns the tensor; has() must be true for it. Returns the errors of SafetensorsFile::open(),
  // and kMissingTensor if the shard lacks a tensor that its index promises.
  Result<ShardEntry> find(std::string_view name);

  // Calls `visit` with the name of every tensor, in alphabetical order.
  void for_each_name(const std::function<void(const std::string&)>& visit) const;

  // Returns a name for messages: "a.safetensors", "a.safetensors and 2 more" or the path of the
  // index.
  std::string description() const;

  // Returns the folder of the first file, where a model's config.json is. An empty text means the
  // current folder.
  std::string folder() const;

  // Returns what the names of the shards say about a missing one: "model-00002-of-00003.safetensors
  // is not among the files". Empty if none is missing or the names are not numbered in this way.
  std::string missing_shard() const;

 private:
  struct Shard {
    std::string path;
    std::optional<SafetensorsFile> file;
  };

  Result<void> add(const std::string& tensor, size_t shard);
  Result<const SafetensorsFile*> open_shard(size_t shard, std::string_view tensor);

  std::string index_;  // path of the only index, if it lists all shards
  std::vector<Shard> shards_;
  std::map<std::string, size_t, std::less<>> owners_;  // tensor, and its place in shards_
};

}  // namespace moejit::checkpoint
