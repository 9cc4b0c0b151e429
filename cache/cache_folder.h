// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/support/error.h"
#include "compiler/support/file.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <sys/types.h>
#include <vector>

namespace moejit::cache {

// A file as a listing saw it.
struct FileInfo {
  std::string name;  // relative to <root>/v2
  std::int64_t bytes = 0;
  std::int64_t modified_ns = 0;  // since 1970; for entries: the last use, to the hour
  std::int64_t changed_ns = 0;   // of the status: when it was moved to its place
  ino_t inode = 0;
  bool is_regular = false;
  bool is_folder = false;
};

// Why a file of the cache is not believed, though it can be reached.
struct Refusal {
  std::string name;  // of the file or of its folder, relative to <root>/v2; empty: nothing is wrong
  std::string reason, hint;
  bool is_obstacle = false;  // of the wrong kind, such as a folder or a pipe
};

// The folder that holds a cache. It is opened once, and everything below it is reached relative to
// it. So nobody can swap it meanwhile:
//
//   <root>/v2/<2 hex>/<62 hex>   entries
//   <root>/v2/stats              counters of all processes, advisory
//   <root>/v2/compilers/         a small file for each compiler that made entries, advisory
//   <root>/v2/tmp/               files being written
//   <root>/v2/quarantine/        files that failed verification, the newest 16
//
// v2 is the version of the format. <root>/v1 belongs to earlier versions of moejit, so that a
// rollback finds it unchanged: only remove_older() looks at it.
//
// A cached kernel is code with the rights of its user. So <root>, v2, each folder below it and each
// file has to belong to the user or to root. Nobody else may be able to write to it.
//
// There are three kinds of trouble, from the user's to the machine's:
//   - the folder can never work (not ours, no folder, forbidden): open() fails;
//   - it can be read only (permissions, or a network file system): is_writable() is false;
//   - the file system fails (EIO, ESTALE, EMFILE, ...): fault() is that error, the folder looks
//     empty, and a later process may have more luck.
class CacheFolder {
 public:
  // Opens the folder and makes it with mode 0700 if need be. On a network file system nothing is
  // made or written unless the caller says so. A folder that cannot be written to but holds a cache
  // is opened for reading. Error kCacheUnusable with the reason.
  static Result<CacheFolder> open(const std::string& path, bool writes_to_network = false);

  // Returns what open() would find or could make, and makes nothing.
  static Result<CacheFolder> look(const std::string& path, bool writes_to_network = false);

  bool exists() const { return static_cast<bool>(version_); }  // false: it holds no cache yet
  const std::string& root() const { return root_; }            // absolute
  std::string path_of(const std::string& name) const;
  bool is_writable() const { return is_writable_; }
  int fault() const { return fault_; }  // 0: none
  // Returns the name of the network file system that keeps the folder from being written to; else
  // empty.
  std::string_view network() const { return network_; }

  // The remaining functions return 0 or errno; names are relative to <root>/v2.

  // Reads a file. ENOENT if there is none; EPERM if why_refused() gives a reason. With `marks_use`
  // the file's time becomes now if it is more than an hour off; a failure to set it is no error.
  int read(const std::string& name, std::vector<std::byte>& bytes, bool marks_use = false) const;
  // Says what is wrong with a file or its folder: of the wrong kind, not ours, or others may write
  // to it.
  Refusal why_refused(const std::string& name) const;
  // Writes, syncs and renames a temporary file. Other processes may call it at the same time. Moves
  // to quarantine/ what is of the wrong kind and in the way; EPERM if others may write to the
  // folder.
  int publish(const std::string& name, std::span<const std::byte> bytes) const;
  // Appends to a file in one write, makes the file if need be, and does not sync. EFBIG if the file
  // already has `max_bytes`; EPERM as for read().
  int append(const std::string& name, std::span<const std::byte> bytes,
             std::int64_t max_bytes) const;
  // Moves a file, or whatever has its name, to quarantine/ as `new_name`, and drops the oldest ones
  // there.
  int quarantine(const std::string& name, const std::string& new_name) const;
  // Removes a file, or a folder in its place, unless it was used or replaced after the listing that
  // `file` is from (EBUSY).
  int remove(const FileInfo& file) const;
  // Removes what earlier versions of moejit left in the folder.
  void remove_older() const;
  // Removes temporary files that nobody will finish, and returns how many.
  std::int64_t sweep_temporaries() const;

  // Returns the names in a folder, sorted; none if it cannot be read. "." is <root>/v2 itself.
  std::vector<std::string> names_in(const std::string& folder) const;
  // Returns the files in a folder in the order of their names, without those that vanish meanwhile.
  std::vector<FileInfo> files_in(const std::string& folder) const;

 private:
  CacheFolder() = default;
  enum class Missing { kMake, kLeave };
  static Result<CacheFolder> open(const std::string& path, bool writes_to_network, Missing missing);
  Result<void> make_and_open(bool writes_to_network, Missing missing);
  int open_folder(const std::string& folder, FileDescriptor& opened) const;
  bool clears_the_way(const std::string& name) const;
  int write_temporary(const std::string& name, std::span<const std::byte> bytes) const;
  int move_into_place(const std::string& temporary, const std::string& name,
                      std::int64_t bytes) const;
  int sync_folder(const std::string& folder) const;
  std::optional<FileInfo> info_of(const std::string& name) const;
  void trim_quarantine() const;

  std::string root_;
  FileDescriptor version_;  // <root>/v2; empty if there is none
  bool is_writable_ = false;
  int fault_ = 0;
  std::string_view network_;
};

// Returns nanoseconds since 1970, from the clock that file systems use.
std::int64_t now_ns();

// The folder to use if the caller names none.
struct DefaultFolder {
  std::string path;                      // empty: memory only
  bool is_explicit = false;              // the user named it (MOEJIT_CACHE_DIR)
  std::string reason;                    // why the path is empty, if it is
  bool is_of_password_database = false;  // below the home of the password database, not HOME
};

// Returns the first of MOEJIT_CACHE_DIR, XDG_CACHE_HOME/moejit, HOME/.cache/moejit, and
// .cache/moejit in the home of the password database. Relative paths and "/" are passed over, but a
// relative MOEJIT_CACHE_DIR is an error (kCacheUnusable). The result is never the working
// directory, nor a folder for temporary files.
Result<DefaultFolder> default_folder();

}  // namespace moejit::cache
