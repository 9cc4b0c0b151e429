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

// Entries in the order of their keys, each once; of several with the same payload that with the
// shortest metadata, of these the first in the order of bytes. Error kInvalidValue: one key with
// two payloads.
Result<std::vector<Entry>> unique_entries(std::vector<Entry> entries);

// The bytes of a pack (cache/pack/pack_format.h): a function of the set of entries and of the
// manifest alone. Entries are in the order of their keys, each once (unique_entries()).
// `manifest` is the caller's, by convention canonical JSON. Error kInvalidValue: another order, or
// something larger than a pack may hold.
Result<std::vector<std::byte>> encode_pack(std::span<const Entry> entries,
                                           std::string_view manifest);

// Writes such bytes to a file, whole or not at all. Whatever the umask allows, nobody but the owner
// may write to it: it would not be believed. Error kFileWrite.
Result<void> write_pack_file(const std::string& path, const std::vector<std::byte>& bytes);

}  // namespace moejit::cache
