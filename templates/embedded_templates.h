// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/support/error.h"

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace moejit::templates {

// One header that emitted kernels may include, as it was when the library was built.
struct EmbeddedFile {
  std::string_view include_name;  // path below templates/, such as "moejit_device/core/types.cuh"
  std::string_view sha256;        // of text, 64 lowercase hexadecimal digits
  std::string_view text;
};

// Folders whose files stand in for files of moejit_device/ptx/ with the same names; the first that
// has a file counts. "moejit_sim" has moejit_sim/ptx/. Empty: a kernel sees moejit_device/ptx/.
using Overlays = std::span<const std::string_view>;

// All embedded files, sorted by include name.
std::span<const EmbeddedFile> embedded_files();

// The embedded file of exactly this name, or nullptr.
const EmbeddedFile* find_embedded(std::string_view include_name);

// The file that `#include "include_name"` means with these overlays, or nullptr.
const EmbeddedFile* resolve_include(std::string_view include_name, Overlays overlays);

// A file of a closure and the name under which the source includes it.
struct IncludedFile {
  std::string include_name;
  const EmbeddedFile* file;
};

// All embedded files that `source` includes, directly or through others, each once, sorted by the
// name it is included by. A quoted include that is not embedded is an Error; includes in angle
// brackets are left to the compiler. What embedded files include is read off them once per process;
// they are part of the program and cannot change.
Result<std::vector<IncludedFile>> include_closure(std::string_view source, Overlays overlays);

}  // namespace moejit::templates
