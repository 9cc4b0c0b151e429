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

// cubin_entries() and cubin_resource_usage() are declared in compiler/kernel_binary.h.

// Adds the spills in the assembler's report ("8 bytes spill stores, 4 bytes spill loads").
void add_spills_from_log(std::string_view log, ResourceUsage& usage);

}  // namespace moejit::compiler
