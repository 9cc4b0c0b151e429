// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string_view>

namespace moejit::checkpoint {

// What a file that is no safetensors file seems to be, and what to do with it.
struct FileKind {
  std::string_view what;  // "a Git LFS pointer instead of the data"
  std::string_view hint;
};

// Recognizes the kind by the first bytes of a file, of which 16 are enough for all kinds except web
// pages. Returns none for bytes that may begin a safetensors file.
std::optional<FileKind> foreign_kind(std::string_view first_bytes);

}  // namespace moejit::checkpoint
