// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cache/kernel_cache.h"
#include "compiler/kernel_key.h"
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

// The compiler that the fields of a key name; empty where it is none of the target's.
CompilerFields compiler_of(const compiler::Target& target, std::span<const HashedField> key);

// "nvrtc 13.0"
std::string compiler_name(const CompilerFields& compiler);

// Puts the newest compiler first and leaves each once: the order depends on the set alone. They are
// compared field by field, the greater first, with numbers in a text compared as numbers. So 13.0
// is before 12.9, and of two builds of one version it is the same one everywhere.
void order_compilers(std::vector<CompilerFields>& compilers);

// The key that a source has with a compiler; none where that is a compiler of another target.
std::optional<compiler::KernelKey> key_with(const compiler::KernelSource& source,
                                            const CompilerFields& compiler);

// A source's key for the compiler of this machine, and the fields that name that. Forming a key
// takes longer than to look it up, so that who has one hands it on.
struct OwnKey {
  compiler::KernelKey key;
  CompilerFields compiler;
};

// Returns `known`, a key that was formed for the source before, while the compiler of this machine
// is the one that it names; else forms the key. The compiler may change once, when it is opened:
// until then files tell its release. Errors: those of compiler::toolchain_identity().
Result<OwnKey> own_key(const compiler::KernelSource& source, std::optional<OwnKey> known);

// Records in a folder that it may hold entries of this compiler. Call it before the first of them
// is published.
void record_compiler(cache::KernelCache& folder, const CompilerFields& compiler);
// The compilers that a folder's records name, in order; reads no entry.
std::vector<CompilerFields> recorded_compilers(const cache::KernelCache& folder);
// The compilers that made the entries of a folder, in order. Reads and verifies all of them.
std::vector<CompilerFields> compilers_of_entries(const cache::KernelCache& folder);

// The compilers of a folder as one process knows them. Any thread may call any function.
class FolderCompilers {
 public:
  // The folder has to outlive it.
  explicit FolderCompilers(cache::KernelCache& folder) : folder_(folder) {}

  // Those that were recorded when this was first called, and what look_closer() found since.
  std::vector<CompilerFields> all();
  // Looks at the records again and, the first time, at every entry: a folder that an earlier
  // version filled has no records, and neither may one whose entries were copied. What it finds is
  // recorded where the folder can be written. Returns all that are known then.
  std::vector<CompilerFields> look_closer();

 private:
  cache::KernelCache& folder_;
  ForkMutex mutex_;
  bool has_read_records_ = false;
  bool has_read_entries_ = false;
  std::vector<CompilerFields> known_;
};

}  // namespace moejit::runtime
