// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cache/entry.h"
#include "compiler/kernel_binary.h"
#include "compiler/kernel_key.h"

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace moejit::runtime {

// Most bytes that a kernel's cache entry has beside its machine code: header, metadata, padding and
// checksum. It holds for every kernel of the layers in docs/examples/layers, fused or apart.
inline constexpr std::size_t kMostEntryOverheadBytes = 2304;

// The metadata that a kernel's cache entry carries: canonical JSON (keys sorted, no blanks) of
// "entry", "target", "usage" where known, and "key", the fields of the key in order as pairs of
// name and value, with its headers folded (fold_headers.h). A function of its arguments alone, so
// that equal kernels make equal files.
std::string kernel_metadata(const compiler::KernelBinary& binary, const compiler::KernelKey& key);

// The kernel in a verified entry; none where the entry is not of the kernel that the source names.
std::optional<compiler::KernelBinary> kernel_of(cache::Entry entry,
                                                const compiler::KernelSource& source);

// The fields of the key that such metadata holds, in order, with the stored digits of the digests
// of headers: all 64 where an earlier version wrote them. Empty where it is something else.
std::vector<HashedField> key_fields_of(std::string_view metadata);

}  // namespace moejit::runtime
