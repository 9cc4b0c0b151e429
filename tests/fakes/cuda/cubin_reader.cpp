// SPDX-License-Identifier: Apache-2.0
#include "tests/fakes/cuda/cubin_reader.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <elf.h>

namespace moejit::testing::fake {
namespace {

constexpr std::string_view kCode = ".text.", kInfo = ".nv.info.", kShared = ".nv.shared.";
constexpr std::size_t kReservedShared = 1024;  // by the system, of each CTA on Hopper

template <typename Record>
std::optional<Record> read(std::string_view bytes, std::size_t at) {
  if (at > bytes.size() || sizeof(Record) > bytes.size() - at) return std::nullopt;
  Record record;
  std::memcpy(&record, bytes.data() + at, sizeof(record));
  return record;
}

std::string_view part(std::string_view bytes, std::size_t at, std::size_t length) {
  return at > bytes.size() ? std::string_view() : bytes.substr(at, length);
}

// Attribute 0x17 tells of a parameter: its number and offset, and in bits 18 to 31 of the last word
// its size. (0x19 has the size of all with what is left free before the first.)
std::size_t param_bytes_of(std::string_view info) {
  constexpr std::size_t kHeader = 4, kLastWord = kHeader + 8;
  for (std::size_t at = 0; at + kHeader <= info.size();) {
    const auto format = static_cast<uint8_t>(info[at]);
    const auto kind = static_cast<uint8_t>(info[at + 1]);
    const uint16_t value = *read<uint16_t>(info, at + 2);
    if (format == 4 && kind == 0x17) return read<uint32_t>(info, at + kLastWord).value_or(0) >> 18U;
    at += kHeader + (format == 4 ? value : 0);
  }
  return 0;
}

}  // namespace

std::size_t elf_bytes(const void* image) {
  Elf64_Ehdr header;
  std::memcpy(&header, image, sizeof(header));
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) return sizeof(header);
  return std::max<std::size_t>(header.e_shoff + header.e_shnum * sizeof(Elf64_Shdr),
                               header.e_phoff + header.e_phnum * sizeof(Elf64_Phdr));
}

std::optional<Cubin> read_cubin(std::string_view image) {
  const auto header = read<Elf64_Ehdr>(image, 0);
  if (!header || std::memcmp(header->e_ident, ELFMAG, SELFMAG) != 0) return std::nullopt;
  const auto section = [&](std::size_t index) {
    return read<Elf64_Shdr>(image, header->e_shoff + index * sizeof(Elf64_Shdr));
  };
  const auto names = section(header->e_shstrndx);
  if (!names) return std::nullopt;
  const std::string_view all_names = part(image, names->sh_offset, names->sh_size);
  Cubin cubin;
  for (std::size_t i = 1; i < header->e_shnum; ++i) {
    const auto each = section(i);
    if (!each) return std::nullopt;
    const std::string_view rest = part(all_names, each->sh_name, std::string_view::npos);
    const std::string_view name = rest.substr(0, rest.find('\0'));
    if (name.starts_with(kCode)) {
      if (!cubin.entry.empty()) return std::nullopt;
      cubin.entry = name.substr(kCode.size());
    } else if (name.starts_with(kInfo)) {
      cubin.param_bytes = param_bytes_of(part(image, each->sh_offset, each->sh_size));
    } else if (name.starts_with(kShared) && each->sh_size > kReservedShared) {
      cubin.static_shared_bytes = static_cast<int>(each->sh_size - kReservedShared);
    }
  }
  if (cubin.entry.empty()) return std::nullopt;
  return cubin;
}

}  // namespace moejit::testing::fake
