// SPDX-License-Identifier: Apache-2.0
#include "cache/network_file_system.h"

#include <array>
#include <cerrno>
#include <cstdint>
#include <sys/vfs.h>

namespace moejit::cache {
namespace {

struct FileSystem {
  std::uint32_t magic;  // as in statfs(2) and the kernel's headers
  std::string_view name;
};

constexpr std::array kNetworkFileSystems{
    FileSystem{0x00006969, "NFS"},    FileSystem{0x0000517B, "SMB"},
    FileSystem{0xFE534D42, "SMB"},    FileSystem{0xFF534D42, "CIFS"},
    FileSystem{0x0BD00BD0, "Lustre"}, FileSystem{0x47504653, "GPFS"},
    FileSystem{0x00C36400, "Ceph"},   FileSystem{0x19830326, "BeeGFS"},
    FileSystem{0xAAD7AAEA, "PanFS"},  FileSystem{0x5346414F, "AFS"},
    FileSystem{0x6B414653, "AFS"},    FileSystem{0x73757245, "Coda"},
    FileSystem{0x7461636F, "OCFS2"},  FileSystem{0x01161970, "GFS2"},
};

}  // namespace

std::string_view network_file_system_of(int fd) {
  struct statfs status {};
  if (::fstatfs(fd, &status) != 0) return {};
  const auto magic = static_cast<std::uint32_t>(status.f_type);
  for (const FileSystem& system : kNetworkFileSystems)
    if (system.magic == magic) return system.name;
  return {};
}

}  // namespace moejit::cache
