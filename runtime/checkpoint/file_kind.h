// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string_view>

namespace moejit::checkpoint {

// What a file that is not a safetensors file seems to be, and what to do with it.
struct FileKind {
  std::string_view what;  // "a Git LFS pointer instead of the data"
  std::string_view hint;
};

// Recognizes the kind of a file by its first bytes; 16 are enough for all kinds but web pages.
// Returns none if a safetensors file may begin with these bytes.
std::optional<FileKind> foreign_kind(std::string_view first_bytes);

}  // namespace moejit::checkpoint
