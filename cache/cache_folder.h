// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/support/error.h"
#include "compiler/support/file.h"

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace moejit::cache {

// The folder that holds a cache. It is opened once and everything below is reached relative to
// it, so that nobody can swap it behind our back:
//
//   <root>/v1/<2 hex>/<62 hex>   entries
//   <root>/v1/tmp/               files being written
//   <root>/v1/quarantine/        entries that failed verification, the newest 16
//
// A cached kernel is code with the rights of its user. So the folder has to belong to the user
// (or to root) and nobody else may be able to write to it.
class CacheFolder {
 public:
  // Opens the folder, making it with mode 0700 if need be. Error kCacheUnusable with the reason.
  // A folder that cannot be written to but holds a cache is opened for reading.
  static Result<CacheFolder> open(const std::string& path);

  const std::string& root() const { return root_; }  // absolute
  bool is_writable() const { return is_writable_; }

  // The remaining functions return 0 or errno; names are relative to <root>/v1.

  // ENOENT where there is none; EPERM where it is no plain file or not ours.
  int read(const std::string& name, std::vector<std::byte>& bytes) const;
  // Writes, syncs and renames a temporary file. Other processes may do the same at the same time.
  int publish(const std::string& name, std::span<const std::byte> bytes) const;
  // Moves a file to quarantine/ under `new_name`, and drops the oldest ones there.
  int quarantine(const std::string& name, const std::string& new_name) const;
  // Names in a folder, sorted; none where it cannot be read. "." is <root>/v1 itself.
  std::vector<std::string> names_in(const std::string& folder) const;

 private:
  CacheFolder() = default;
  int write_temporary(const std::string& name, std::span<const std::byte> bytes) const;
  int move_into_place(const std::string& temporary, const std::string& name) const;
  int sync_folder(const std::string& folder) const;
  void trim_quarantine() const;

  std::string root_;
  FileDescriptor version_;  // <root>/v1
  bool is_writable_ = false;
};

// The folder to use where the caller names none.
struct DefaultFolder {
  std::string path;          // empty: memory only
  bool is_explicit = false;  // the user named it (MOEJIT_CACHE_DIR)
  std::string reason;        // where the path is empty: why
};

// MOEJIT_CACHE_DIR, XDG_CACHE_HOME/moejit, HOME/.cache/moejit, the same with the home of the
// password database; relative paths and "/" are passed over, except that a relative
// MOEJIT_CACHE_DIR is an error (kCacheUnusable). Never the working directory, never a folder for
// temporary files.
Result<DefaultFolder> default_folder();

}  // namespace moejit::cache
