// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cache/entry.h"
#include "compiler/kernel_binary.h"
#include "compiler/kernel_key.h"

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace moejit::runtime {

// A kernel as an entry of caches and packs; a function of its arguments alone.
cache::Entry kernel_entry(const compiler::KernelBinary& binary, const compiler::KernelKey& key);

// What a pack of kernels says about itself: canonical JSON of "compilers" (for each that made one
// of them its compiler_fields()), "kernels" and "targets". A function of the set of entries.
// Entries that are no kernels add to "kernels" alone.
std::string pack_manifest(std::span<const cache::Entry> entries);

// A text of "compilers" alone, each by its compiler_fields().
std::string compilers_text(std::span<const std::vector<std::string>> compilers);

// The compilers in a manifest or in a compilers_text(), which may be any text.
std::vector<std::vector<std::string>> compilers_of(std::string_view manifest);

}  // namespace moejit::runtime
