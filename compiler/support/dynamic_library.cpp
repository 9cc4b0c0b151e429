// SPDX-License-Identifier: Apache-2.0
#include "compiler/support/dynamic_library.h"

#include "compiler/support/file.h"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <link.h>
#include <span>
#include <sys/stat.h>
#include <type_traits>
#include <unistd.h>
#include <vector>

namespace moejit {
namespace {

std::size_t align4(std::size_t size) { return (size + 3) & ~std::size_t{3}; }

// Returns the GNU build id among the notes of a segment, or empty.
std::span<const std::uint8_t> build_id_in_notes(std::span<const std::uint8_t> notes) {
  while (notes.size() >= sizeof(ElfW(Nhdr))) {
    ElfW(Nhdr) header;
    std::memcpy(&header, notes.data(), sizeof(header));
    const std::size_t name_at = sizeof(header);
    const std::size_t value_at = name_at + align4(header.n_namesz);
    const std::size_t end = value_at + align4(header.n_descsz);
    if (end > notes.size()) return {};
    const bool is_gnu = header.n_namesz == 4 && std::memcmp(notes.data() + name_at, "GNU", 4) == 0;
    if (is_gnu && header.n_type == NT_GNU_BUILD_ID) return notes.subspan(value_at, header.n_descsz);
    notes = notes.subspan(end);
  }
  return {};
}

std::string hexadecimal(std::span<const std::uint8_t> bytes) {
  std::string hex;
  for (const std::uint8_t byte : bytes) hex += fmt::format("{:02x}", byte);
  return hex;
}

struct Wanted {
  ElfW(Addr) base;
  std::span<const std::uint8_t> build_id;  // in the library
};

// Looks at one library. It allocates nothing: glibc, through which an exception would go, ends a
// process that has no memory for its unwinder.
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

constexpr std::size_t kLargestNotes = 65536;

// Reads records at an offset of a file; false if there are fewer.
template <typename Record>
bool read_at(const FileDescriptor& file, std::uint64_t offset, std::span<Record> records) {
  static_assert(std::is_trivially_copyable_v<Record>);
  const ssize_t got = ::pread(file.get(), static_cast<void*>(records.data()), records.size_bytes(),
                              static_cast<off_t>(offset));
  return got >= 0 && static_cast<std::size_t>(got) == records.size_bytes();
}

}  // namespace

std::string build_id_of_file(const std::string& path) {
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  Elf64_Ehdr header{};
  if (!file || !read_at(file, 0, std::span(&header, 1)) ||
      std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64 ||
      header.e_phentsize != sizeof(Elf64_Phdr))
    return {};
  std::vector<Elf64_Phdr> segments(header.e_phnum);
  if (!read_at(file, header.e_phoff, std::span(segments))) return {};
  for (const Elf64_Phdr& segment : segments) {
    if (segment.p_type != PT_NOTE || segment.p_filesz > kLargestNotes) continue;
    std::vector<std::uint8_t> notes(segment.p_filesz);
    if (!read_at(file, segment.p_offset, std::span(notes))) return {};
    if (const auto id = build_id_in_notes(notes); !id.empty()) return hexadecimal(id);
  }
  return {};
}

bool is_openable(const std::string& name) {
  struct stat status {};
  return name.find('/') == std::string::npos || ::stat(name.c_str(), &status) != 0 ||
         S_ISREG(status.st_mode);
}

tl::expected<DynamicLibrary, std::string> DynamicLibrary::open(const std::string& name) {
  if (!is_openable(name)) return tl::make_unexpected(name + ": it is no plain file");
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
  return hexadecimal(wanted.build_id);
}

}  // namespace moejit
