// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/support/error.h"

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace moejit::cli {

// Names the shards of an index, and says which of them holds which tensor.
struct ShardIndex {
  std::string path;
  std::vector<std::string> shards;                      // paths
  std::vector<std::pair<std::string, size_t>> tensors;  // names, and places of their shards above
};

// Tells the files that a checkpoint consists of: those that were named, and those of an index,
// which need not be opened to know their tensors.
struct ShardFiles {
  std::vector<std::string> files;
  std::vector<ShardIndex> indexes;
};

// Resolves what `--weights` was given: safetensors files, an index (model.safetensors.index.json)
// or a folder that has an index, or one safetensors file. Nothing of a file's data is read. Errors:
// kFileNotFound, kFileRead; kInvalidFile for an index that is no map from tensors to files beside
// it, and for a folder in which it is not clear what to take.
Result<ShardFiles> find_shard_files(const std::vector<std::string>& paths);

}  // namespace moejit::cli
