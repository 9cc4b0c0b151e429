// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/safetensors/safetensors_file.h"

#include <string>
#include <string_view>
#include <vector>

namespace moejit::cli {

// A tensor and the shard that holds it.
struct ShardEntry {
  const SafetensorsFile* file = nullptr;
  const SafetensorsEntry* entry = nullptr;
  explicit operator bool() const { return entry != nullptr; }
};

// The shards of a checkpoint as if they were one file.
class ShardSet {
 public:
  // Errors: those of SafetensorsFile::open(); kInvalidFile where two shards hold a tensor of the
  // same name.
  static Result<ShardSet> open(const std::vector<std::string>& paths);

  ShardEntry find(std::string_view name) const;

  // What stands before ".experts.0." in tensor names, each once: "model.layers.3.mlp".
  std::vector<std::string> expert_prefixes() const;

  // "a.safetensors" or "a.safetensors and 2 more"
  std::string description() const;

 private:
  std::vector<SafetensorsFile> files_;
};

}  // namespace moejit::cli
