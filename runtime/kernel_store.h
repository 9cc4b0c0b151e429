// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cache/kernel_cache.h"
#include "cache/pack.h"
#include "compiler/kernel_source.h"
#include "compiler/support/fork.h"
#include "runtime/engine.h"
#include "runtime/kernel_compilers.h"

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

namespace moejit::runtime {

// Finds an engine's kernels outside its memory: in the user's cache folder, then in packs, in the
// order given. New kernels go to the folder; packs are only read, and kernels from a pack are not
// copied to the folder. Any thread may call any function.
//
// The key of a kernel holds the compiler that made it. In the folder, kernels are looked up for the
// compiler of this machine, which is known without opening NVRTC if its files allow that. If they
// do not, packs are asked first, so that a run which they serve never opens it. If there is no
// compiler, or if the engine is frozen, nothing will be compiled. Then kernels are looked up for
// each compiler that made entries of the folder, the newest first. A frozen engine never opens
// NVRTC for this. In a pack, kernels are looked up for each compiler that its manifest names: the
// pack stands for its compiler, which need not be here.
class KernelStore {
 public:
  // Errors: as of Engine::create().
  static Result<std::unique_ptr<KernelStore>> open(const EngineOptions& options);

  // The result of find().
  struct Found {
    std::optional<ObtainedKernel> kernel;  // from kCache or kPack; none if it is nowhere
    std::optional<OwnKey> own;             // set if the compiler of this machine was needed
  };
  // Finds a kernel. `known` is the key that an earlier call for the source returned.
  Found find(const compiler::KernelSource& source, std::optional<OwnKey> known = {});
  // Counts in the folder's stats that it did not have a kernel. find() does not, because a kernel
  // is looked for more than once, and under the keys of several compilers.
  void count_miss();
  // Publishes a kernel to the folder and returns whether the folder has it. False without a folder.
  bool publish(const compiler::KernelBinary& binary, const compiler::KernelKey& key);

  cache::KernelCache* folder() const { return folder_.get(); }  // null: memory only
  // Returns the folder in use, or why there is none ("memory only: ...").
  std::string folder_description() const;
  // Returns why publish() fails, as Engine::write_problem() does.
  std::string write_problem() const;
  std::vector<std::string> pack_paths() const;
  // Returns a pack in which find() met the source's kernel damaged; none if it met none.
  std::optional<std::string> damaged_pack_of(const compiler::KernelSource& source) const;
  // Returns the compilers of a target whose kernels the folder is known to have, the newest first.
  std::vector<CompilerFields> folder_compilers(const compiler::Target& target) const;
  std::int64_t corrupt() const;  // entries of folder and packs that failed verification

 private:
  // A pack, and which of compilers_ made its kernels.
  struct OpenPack {
    std::unique_ptr<cache::Pack> pack;
    std::vector<std::size_t> compilers;
  };
  KernelStore() = default;
  Result<void> open_folder(const EngineOptions& options);
  Result<void> open_packs(const EngineOptions& options);
  std::optional<ObtainedKernel> find_with(const compiler::KernelSource& source,
                                          const std::optional<OwnKey>& own, bool asks_packs);
  std::optional<ObtainedKernel> find_in_folder(const compiler::KernelSource& source,
                                               const Digest& key);
  // Looks for kernels of `compilers`, except the compiler of the own key.
  std::optional<ObtainedKernel> find_in_folder(const compiler::KernelSource& source,
                                               std::span<const CompilerFields> compilers,
                                               const std::optional<OwnKey>& own);
  std::optional<ObtainedKernel> find_in_packs(const compiler::KernelSource& source,
                                              const std::optional<OwnKey>& own);
  std::optional<ObtainedKernel> find_in_pack(const OpenPack& pack, const Digest& key,
                                             const compiler::KernelSource& source);
  void report_bad_pack(const std::string& path, const compiler::KernelSource& source,
                       const std::string& message);

  bool is_frozen_ = false;
  bool takes_other_compilers_ = true;
  std::unique_ptr<cache::KernelCache> folder_;
  std::unique_ptr<FolderCompilers> folder_compilers_;  // null: there is no folder
  std::string no_folder_reason_;
  std::vector<OpenPack> packs_;
  std::vector<CompilerFields> compilers_;  // of all packs, each once
  cache::WarningSink warn_;
  std::atomic<std::int64_t> corrupt_in_packs_{0};
  mutable ForkMutex warned_mutex_;
  std::set<std::string> warned_;                // paths of packs
  std::map<std::string, std::string> damaged_;  // entry of a kernel, path of the damaged pack
};

}  // namespace moejit::runtime
