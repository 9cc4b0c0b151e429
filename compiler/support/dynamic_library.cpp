// SPDX-License-Identifier: Apache-2.0
#include "compiler/support/dynamic_library.h"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <dlfcn.h>
#include <elf.h>
#include <fmt/core.h>
#include <link.h>
#include <span>

namespace moejit {
namespace {

std::size_t align4(std::size_t size) { return (size + 3) & ~std::size_t{3}; }

// The GNU build id among the notes of a segment, in hexadecimal, or empty.
std::string build_id_in_notes(std::span<const std::uint8_t> notes) {
  while (notes.size() >= sizeof(ElfW(Nhdr))) {
    ElfW(Nhdr) header;
    std::memcpy(&header, notes.data(), sizeof(header));
    const std::size_t name_at = sizeof(header);
    const std::size_t value_at = name_at + align4(header.n_namesz);
    const std::size_t end = value_at + align4(header.n_descsz);
    if (end > notes.size()) return {};
    const bool is_gnu = header.n_namesz == 4 && std::memcmp(notes.data() + name_at, "GNU", 4) == 0;
    if (is_gnu && header.n_type == NT_GNU_BUILD_ID) {
      std::string hex;
      for (const std::uint8_t byte : notes.subspan(value_at, header.n_descsz)) {
        hex += fmt::format("{:02x}", byte);
      }
      return hex;
    }
    notes = notes.subspan(end);
  }
  return {};
}

struct Wanted {
  ElfW(Addr) base;
  std::string build_id;
};

int look_at_library(dl_phdr_info* info, std::size_t /*size*/, void* data) {
  auto& wanted = *static_cast<Wanted*>(data);
  if (info->dlpi_addr != wanted.base) return 0;
  for (const ElfW(Phdr) & segment : std::span(info->dlpi_phdr, info->dlpi_phnum)) {
    if (segment.p_type != PT_NOTE || !wanted.build_id.empty()) continue;
    // NOLINTNEXTLINE(performance-no-int-to-ptr): the loader tells addresses as integers
    const auto* start = reinterpret_cast<const std::uint8_t*>(wanted.base + segment.p_vaddr);
    wanted.build_id = build_id_in_notes({start, segment.p_memsz});
  }
  return 1;
}

const link_map* map_of(void* handle) {
  link_map* map = nullptr;
  return dlinfo(handle, RTLD_DI_LINKMAP, static_cast<void*>(&map)) == 0 ? map : nullptr;
}

}  // namespace

tl::expected<DynamicLibrary, std::string> DynamicLibrary::open(const std::string& name) {
  if (void* handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL)) return DynamicLibrary(handle);
  const char* reason = dlerror();  // NOLINT(concurrency-mt-unsafe): per thread in glibc
  return tl::make_unexpected(std::string(reason != nullptr ? reason : "unknown reason"));
}

void* DynamicLibrary::symbol(const char* name) const { return dlsym(handle_, name); }

std::string DynamicLibrary::path() const {
  const link_map* map = map_of(handle_);
  return map != nullptr ? map->l_name : "";
}

std::string DynamicLibrary::build_id() const {
  const link_map* map = map_of(handle_);
  if (map == nullptr) return {};
  Wanted wanted{.base = map->l_addr, .build_id = {}};
  dl_iterate_phdr(look_at_library, &wanted);
  return wanted.build_id;
}

}  // namespace moejit
