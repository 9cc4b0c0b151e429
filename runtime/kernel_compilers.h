// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cache/kernel_cache.h"
#include "compiler/kernel_source.h"
#include "compiler/support/digest.h"
#include "compiler/support/fork.h"

#include <optional>
#include <span>
#include <string>
#include <vector>

namespace moejit::runtime {

// A compiler as keys name it: its compiler::compiler_fields(). It need not be on this machine.
using CompilerFields = std::vector<std::string>;

// Returns the compiler that the fields of a key name; empty if it is not one of the target's.
CompilerFields compiler_of(const compiler::Target& target, std::span<const HashedField> key);

// Returns for example "nvrtc 13.0".
std::string compiler_name(const CompilerFields& compiler);

// Puts the newest compiler first and removes duplicates; the order depends on the set alone.
// Compilers are compared field by field, the greater first, and numbers in a text as numbers. So
// 13.0 comes before 12.9, and of two builds of one version the same one comes first everywhere.
void order_compilers(std::vector<CompilerFields>& compilers);

// Returns the key of a source with a compiler; none if the compiler is of another target.
std::optional<compiler::KernelKey> key_with(const compiler::KernelSource& source,
                                            const CompilerFields& compiler);

// A source's key for the compiler of this machine, and the fields that name that compiler. Forming
// a key takes longer than a lookup, so callers hand the key on.
struct OwnKey {
  compiler::KernelKey key;
  CompilerFields compiler;
};

// Returns `known`, a key formed earlier for the source, if it still names the compiler of this
// machine; else forms the key. The compiler may change once, when it is opened: until then its
// release is read off files. Errors: as of compiler::toolchain_identity().
Result<OwnKey> own_key(const compiler::KernelSource& source, std::optional<OwnKey> known);

// Records in a folder that it may hold entries of this compiler. Must be called before the first
// such entry is published.
void record_compiler(cache::KernelCache& folder, const CompilerFields& compiler);
// Returns the compilers that a folder's records name, in order; reads no entry.
std::vector<CompilerFields> recorded_compilers(const cache::KernelCache& folder);
// Returns the compilers that made the entries of a folder, in order. Reads and verifies all
// entries.
std::vector<CompilerFields> compilers_of_entries(const cache::KernelCache& folder);

// The compilers of a folder as one process knows them. Any thread may call any function.
class FolderCompilers {
 public:
  // The folder has to outlive this object.
  explicit FolderCompilers(cache::KernelCache& folder) : folder_(folder) {}

  // Returns the compilers recorded when this function was first called, and the ones that
  // look_closer() has found since.
  std::vector<CompilerFields> all();
  // Reads the records again and, the first time, every entry. A folder that an earlier version
  // filled has no records, and copied entries may have none. Records what it finds if the folder
  // can be written. Returns all compilers known then.
  std::vector<CompilerFields> look_closer();

 private:
  cache::KernelCache& folder_;
  ForkMutex mutex_;
  bool has_read_records_ = false;
  bool has_read_entries_ = false;
  std::vector<CompilerFields> known_;
};

}  // namespace moejit::runtime
