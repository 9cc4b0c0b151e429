// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cache/entry.h"
#include "compiler/kernel_binary.h"
#include "compiler/kernel_source.h"

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace moejit::runtime {

// Returns a kernel as an entry of caches and packs, which the arguments alone decide.
cache::Entry kernel_entry(const compiler::KernelBinary& binary, const compiler::KernelKey& key);

// Returns the manifest of a pack of kernels: canonical JSON of "compilers", "kernels" and
// "targets". "compilers" has the compiler_fields() of each compiler that made one of the kernels.
// The set of entries alone decides it. Entries that are no kernels add to "kernels" only.
std::string pack_manifest(std::span<const cache::Entry> entries);

// Returns a manifest that has only "compilers", each by its compiler_fields().
std::string compilers_text(std::span<const std::vector<std::string>> compilers);

// Returns the compilers in a manifest or in a compilers_text(), which may be any text.
std::vector<std::vector<std::string>> compilers_of(std::string_view manifest);

}  // namespace moejit::runtime
