// SPDX-License-Identifier: Apache-2.0
#include "runtime/tune/folder_lock.h"

#include <cerrno>
#include <fcntl.h>
#include <filesystem>
#include <sys/file.h>

namespace moejit::tune {

FileDescriptor lock_folder_of(const std::string& path) {
  std::string folder = std::filesystem::path(path).parent_path();
  if (folder.empty()) folder = ".";
  FileDescriptor lock(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!lock) return lock;
  int result = 0;
  do result = ::flock(lock.get(), LOCK_EX);
  while (result != 0 && errno == EINTR);
  if (result != 0) return {};
  return lock;
}

}  // namespace moejit::tune
