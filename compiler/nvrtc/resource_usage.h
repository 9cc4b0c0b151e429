// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/kernel_binary.h"
#include "compiler/support/error.h"

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace moejit::compiler {

// Names of the kernels in a cubin, in file order. Error kInternal: not a well-formed ELF image.
Result<std::vector<std::string>> cubin_entries(std::span<const std::byte> cubin);

// Registers, static shared memory, stack and code size of one kernel of a cubin. Spills are not in
// a cubin. Error kInternal: malformed, or no such kernel. Any bytes may be given.
Result<ResourceUsage> cubin_resource_usage(std::span<const std::byte> cubin,
                                           std::string_view entry);

// Adds what the assembler's report says about spills ("8 bytes spill stores, 4 bytes spill loads").
void add_spills_from_log(std::string_view log, ResourceUsage& usage);

}  // namespace moejit::compiler
