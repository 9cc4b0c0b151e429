// SPDX-License-Identifier: Apache-2.0
#include "compiler/nvrtc/elf_sections.h"

#include <cstring>
#include <elf.h>

namespace moejit::compiler {
namespace {

using Bytes = std::span<const std::byte>;

template <typename Record>
std::optional<Record> read(Bytes bytes, std::size_t offset) {
  if (offset > bytes.size() || bytes.size() - offset < sizeof(Record)) return std::nullopt;
  Record record;
  std::memcpy(&record, bytes.data() + offset, sizeof(record));
  return record;
}

std::optional<Bytes> slice(Bytes bytes, uint64_t offset, uint64_t size) {
  if (offset > bytes.size() || bytes.size() - offset < size) return std::nullopt;
  return bytes.subspan(offset, size);
}

std::optional<std::string_view> name_at(Bytes names, uint32_t offset) {
  if (offset >= names.size()) return std::nullopt;
  const auto* start = reinterpret_cast<const char*>(names.data()) + offset;
  const std::size_t length = strnlen(start, names.size() - offset);
  if (length == names.size() - offset) return std::nullopt;  // no zero byte
  return std::string_view(start, length);
}

bool is_elf64(const Elf64_Ehdr& header) {
  return std::memcmp(header.e_ident, ELFMAG, SELFMAG) == 0 &&
         header.e_ident[EI_CLASS] == ELFCLASS64 && header.e_ident[EI_DATA] == ELFDATA2LSB &&
         header.e_shentsize == sizeof(Elf64_Shdr);
}

std::optional<Bytes> contents_of(Bytes image, const Elf64_Shdr& section) {
  if (section.sh_type == SHT_NOBITS || section.sh_type == SHT_NULL) return Bytes{};
  return slice(image, section.sh_offset, section.sh_size);
}

}  // namespace

std::optional<uint16_t> read_u16(Bytes bytes, std::size_t offset) {
  return read<uint16_t>(bytes, offset);
}
std::optional<uint32_t> read_u32(Bytes bytes, std::size_t offset) {
  return read<uint32_t>(bytes, offset);
}

std::optional<std::vector<ElfSection>> elf_sections(Bytes image) {
  const auto header = read<Elf64_Ehdr>(image, 0);
  if (!header || !is_elf64(*header)) return std::nullopt;
  const auto table = slice(image, header->e_shoff, uint64_t{header->e_shnum} * sizeof(Elf64_Shdr));
  if (!table) return std::nullopt;
  const auto section_at = [&](std::size_t i) {
    return read<Elf64_Shdr>(*table, i * sizeof(Elf64_Shdr));
  };
  const auto name_section = section_at(header->e_shstrndx);
  if (!name_section) return std::nullopt;
  const auto names = contents_of(image, *name_section);
  if (!names) return std::nullopt;

  std::vector<ElfSection> sections;
  for (std::size_t i = 0; i < header->e_shnum; ++i) {
    const auto section = section_at(i);
    const auto name = section ? name_at(*names, section->sh_name) : std::nullopt;
    const auto contents = section ? contents_of(image, *section) : std::nullopt;
    if (!name || !contents) return std::nullopt;
    sections.push_back({*name, section->sh_type, section->sh_size, *contents});
  }
  return sections;
}

}  // namespace moejit::compiler
