// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cache/entry.h"
#include "compiler/support/error.h"

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace moejit::cache {

// Returns the entries in the order of their keys, each key once. If several have the same payload,
// it takes the one with the shortest metadata, then the first in the order of bytes. Error
// kInvalidValue: one key with two payloads.
Result<std::vector<Entry>> unique_entries(std::vector<Entry> entries);

// Returns the bytes of a pack (cache/pack/pack_format.h). Only the set of entries and the manifest
// decide them. Entries are in the order of their keys, each once (unique_entries()). `manifest` is
// the caller's, by convention canonical JSON. Error kInvalidValue: another order, or something
// larger than a pack may hold.
Result<std::vector<std::byte>> encode_pack(std::span<const Entry> entries,
                                           std::string_view manifest);

// Writes the bytes of a pack to a file, whole or not at all. Whatever the umask allows, only the
// owner may write to the file: otherwise it would not be trusted. Error kFileWrite.
Result<void> write_pack_file(const std::string& path, const std::vector<std::byte>& bytes);

}  // namespace moejit::cache
