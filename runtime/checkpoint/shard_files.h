// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/support/error.h"

#include <cstddef>
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

}  // namespace moejit::checkpoint
