// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/support/error.h"
#include "compiler/support/file.h"
#include "runtime/host_tensor.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace moejit::checkpoint {

// One tensor of a file. `dtype_name` may be any dtype that the format knows. `dtype` is set only if
// moejit computes with it.
struct SafetensorsEntry {
  std::string name;
  std::string dtype_name;
  std::optional<compiler::DType> dtype;
  std::vector<int64_t> shape;
  int64_t offset = 0;  // in the file
  int64_t bytes = 0;
};

// Bytes of the longest header that the format allows.
inline constexpr int64_t kLongestSafetensorsHeader = 100'000'000;

// Reads the JSON header of the file `path`, whose data are `data_bytes` bytes from `data_offset`
// on. Error kInvalidFile, unless all of this holds:
// - Names are unique, dtypes are known and dimensions are not negative.
// - Sizes do not overflow, and shape and dtype give exactly the bytes between the offsets.
// - Offsets lie inside the file, and no two tensors overlap. Holes are allowed.
Result<std::vector<SafetensorsEntry>> parse_safetensors_header(std::string_view json,
                                                               const std::string& path,
                                                               int64_t data_offset,
                                                               int64_t data_bytes);

// A safetensors file: an 8-byte little-endian length, that many bytes of JSON, then the data.
// Opening it checks everything that the header claims. Tensors are read when they are asked for, so
// a shard of many gigabytes costs only what is used of it. Every error names the file, and the
// tensor if there is one.
class SafetensorsFile {
 public:
  // Opens a file. Errors: kFileNotFound, kFileRead, kInvalidFile.
  static Result<SafetensorsFile> open(const std::string& path);

  const std::string& path() const { return path_; }
  const std::vector<SafetensorsEntry>& entries() const { return entries_; }  // sorted by name
  const SafetensorsEntry* find(std::string_view name) const;

  // Returns the tensor, or kMissingTensor with the most similar name in the file.
  Result<const SafetensorsEntry*> at(std::string_view name) const;

  // Fills `destination` with the bytes of `entry` from `byte_offset` on. The range must lie inside
  // the entry.
  Result<void> read_into(const SafetensorsEntry& entry, std::span<std::byte> destination,
                         int64_t byte_offset = 0) const;
  // Reads a tensor. Also returns kTensorMismatch for a dtype that moejit does not compute with.
  Result<runtime::HostTensor> read(const SafetensorsEntry& entry) const;

 private:
  std::string path_;
  FileDescriptor file_;
  std::vector<SafetensorsEntry> entries_;
};

// Writes the tensors as a safetensors file. Larger element types come first, then names in order,
// so that every tensor is aligned and equal tensors give equal files. `metadata` goes into the
// header as it is. A temporary file is renamed at the end; a failure (kFileWrite) leaves nothing
// behind.
Result<void> write_safetensors(const std::string& path, const runtime::TensorMap& tensors,
                               const std::map<std::string, std::string>& metadata = {});

// Returns the length of the header and the header itself, padded to a multiple of 8 bytes.
std::string safetensors_header(const runtime::TensorMap& tensors,
                               const std::map<std::string, std::string>& metadata);

// Checks, before the work is done, whether a file can probably be written at `path`.
Result<void> check_writable(const std::string& path);

}  // namespace moejit::checkpoint
