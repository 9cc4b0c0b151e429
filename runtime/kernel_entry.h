// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cache/entry.h"
#include "compiler/kernel_binary.h"
#include "compiler/kernel_source.h"

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace moejit::runtime {

// Most bytes of a kernel's cache entry besides its machine code: header, metadata, padding and
// checksum. The bound holds for every kernel of the layers in docs/examples/layers, fused or apart.
inline constexpr std::size_t kMostEntryOverheadBytes = 4608;

// Returns the metadata of a kernel's cache entry: canonical JSON (keys sorted, no blanks) of
// "entry", "target", "usage" if known, and "key". The key has the fields of the key in order as
// pairs of name and value; of a header's digest it has the first digits. Its arguments alone decide
// it, so that equal kernels make equal files.
std::string kernel_metadata(const compiler::KernelBinary& binary, const compiler::KernelKey& key);

// Returns the kernel in a verified entry; none if the entry is not of the kernel that the source
// names.
std::optional<compiler::KernelBinary> kernel_of(cache::Entry entry,
                                                const compiler::KernelSource& source);

// Returns the fields of the key in such metadata, in order, with values as they are stored. Earlier
// versions wrote all digits of headers, or one field "header:*" ("header *") for all headers. Empty
// if the text is something else.
std::vector<HashedField> key_fields_of(std::string_view metadata);

// Returns the text that metadata store of a field's value. Values of the field of two keys are the
// same, as far as metadata tell, if their stored texts are.
std::string_view stored_value(std::string_view field, std::string_view value);

}  // namespace moejit::runtime
