// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/kernel_binary.h"
#include "compiler/support/error.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace moejit::compiler {

struct ElfSection {
  std::string_view name;
  uint32_t type = 0;
  uint64_t size = 0;                    // also of sections without bytes in the file
  std::span<const std::byte> contents;  // empty if the file holds none
};

// Returns the sections of a 64-bit little-endian ELF image, as views into it. None if the image is
// malformed: every offset, size and name is checked, so any bytes may be given.
std::optional<std::vector<ElfSection>> elf_sections(std::span<const std::byte> image);

// Returns a value at `offset`, unaligned; none past the end.
std::optional<uint16_t> read_u16(std::span<const std::byte> bytes, std::size_t offset);
std::optional<uint32_t> read_u32(std::span<const std::byte> bytes, std::size_t offset);

// cubin_entries() and cubin_resource_usage() are declared in compiler/kernel_binary.h.

// Adds the spills in the assembler's report ("8 bytes spill stores, 4 bytes spill loads").
void add_spills_from_log(std::string_view log, ResourceUsage& usage);

}  // namespace moejit::compiler
