// SPDX-License-Identifier: Apache-2.0
#include "compiler/nvrtc/resource_usage.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <elf.h>
#include <fmt/core.h>
#include <optional>

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

namespace {

using Bytes = std::span<const std::byte>;
using Sections = std::vector<ElfSection>;

// Section .nv.info is a list of attributes. Each has a byte of format, a byte of kind, and two
// bytes. These hold a small value or, in format kSized, the number of bytes that follow. The
// attributes of kernels that we read are sized and hold {index of the kernel's symbol, value}.
constexpr uint8_t kSized = 4;
constexpr uint8_t kFrameSize = 0x11;
constexpr uint8_t kRegisterCount = 0x2f;
constexpr std::size_t kAttributeHeader = 4;

// Architectures with this section count the kilobyte that the system reserves as part of a kernel's
// shared memory.
constexpr std::string_view kReservedSection = ".nv.shared.reserved.0";
constexpr uint64_t kReservedBytes = 1024;

Error malformed(std::string_view what) {
  return {Stage::kCompile, ErrorCode::kInternal, fmt::format("cubin: {}", what), {}, {}};
}

const ElfSection* find(const Sections& sections, std::string_view name) {
  const auto at = std::find_if(sections.begin(), sections.end(),
                               [&](const ElfSection& section) { return section.name == name; });
  return at == sections.end() ? nullptr : &*at;
}

std::optional<std::string_view> symbol_name(const Sections& sections, uint32_t index) {
  const ElfSection* symbols = find(sections, ".symtab");
  const ElfSection* names = find(sections, ".strtab");
  if (symbols == nullptr || names == nullptr) return std::nullopt;
  const auto offset = read_u32(symbols->contents, std::size_t{index} * sizeof(Elf64_Sym));
  if (!offset || *offset >= names->contents.size()) return std::nullopt;
  const std::string_view all(reinterpret_cast<const char*>(names->contents.data()),
                             names->contents.size());
  return all.substr(*offset, all.find('\0', *offset) - *offset);
}

// Returns the value of a kernel's attribute, or none.
std::optional<uint32_t> attribute(const Sections& sections, uint8_t wanted,
                                  std::string_view entry) {
  const ElfSection* info = find(sections, ".nv.info");
  if (info == nullptr) return std::nullopt;
  const Bytes bytes = info->contents;
  for (std::size_t at = 0;
       bytes.size() >= kAttributeHeader && at <= bytes.size() - kAttributeHeader;) {
    const auto format = std::to_integer<uint8_t>(bytes[at]);
    const auto kind = std::to_integer<uint8_t>(bytes[at + 1]);
    const std::size_t size = format == kSized ? read_u16(bytes, at + 2).value_or(0) : 0;
    if (format == kSized && kind == wanted) {
      const auto symbol = read_u32(bytes, at + kAttributeHeader);
      const auto value = read_u32(bytes, at + kAttributeHeader + 4);
      if (symbol && value && symbol_name(sections, *symbol) == entry) return value;
    }
    at += kAttributeHeader + size;
  }
  return std::nullopt;
}

uint64_t static_shared_bytes(const Sections& sections, std::string_view entry) {
  const ElfSection* shared = find(sections, fmt::format(".nv.shared.{}", entry));
  if (shared == nullptr) return 0;
  const uint64_t reserved = find(sections, kReservedSection) != nullptr ? kReservedBytes : 0;
  return shared->size - std::min(shared->size, reserved);
}

int32_t number_before(std::string_view log, std::string_view words) {
  const std::size_t at = log.find(words);
  if (at == std::string_view::npos) return 0;
  std::size_t first = at;
  while (first > 0 && log[first - 1] >= '0' && log[first - 1] <= '9') --first;
  int32_t number = 0;
  std::from_chars(log.data() + first, log.data() + at, number);
  return number;
}

}  // namespace

Result<std::vector<std::string>> cubin_entries(Bytes cubin) {
  constexpr std::string_view kPrefix = ".text.";
  const auto sections = elf_sections(cubin);
  if (!sections) return tl::make_unexpected(malformed("not a well-formed 64-bit ELF image"));
  std::vector<std::string> entries;
  for (const ElfSection& section : *sections) {
    if (section.name.starts_with(kPrefix))
      entries.emplace_back(section.name.substr(kPrefix.size()));
  }
  return entries;
}

Result<ResourceUsage> cubin_resource_usage(Bytes cubin, std::string_view entry) {
  const auto sections = elf_sections(cubin);
  if (!sections) return tl::make_unexpected(malformed("not a well-formed 64-bit ELF image"));
  const ElfSection* code = find(*sections, fmt::format(".text.{}", entry));
  if (code == nullptr) return tl::make_unexpected(malformed(fmt::format("no kernel {}", entry)));
  const auto registers = attribute(*sections, kRegisterCount, entry);
  if (!registers) return tl::make_unexpected(malformed(fmt::format("no registers of {}", entry)));
  return ResourceUsage{
      .registers = static_cast<int32_t>(*registers),
      .static_shared_bytes = static_cast<int32_t>(static_shared_bytes(*sections, entry)),
      .stack_bytes = static_cast<int32_t>(attribute(*sections, kFrameSize, entry).value_or(0)),
      .code_bytes = static_cast<int32_t>(code->size)};
}

void add_spills_from_log(std::string_view log, ResourceUsage& usage) {
  usage.spill_store_bytes = number_before(log, " bytes spill stores");
  usage.spill_load_bytes = number_before(log, " bytes spill loads");
}

}  // namespace moejit::compiler
