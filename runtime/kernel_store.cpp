// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernel_store.h"

#include "compiler/compiler.h"
#include "runtime/kernel_entry.h"
#include "runtime/kernel_pack.h"

#include <algorithm>
#include <fmt/core.h>
#include <mutex>

namespace moejit::runtime {

Result<std::unique_ptr<KernelStore>> KernelStore::open(const EngineOptions& options) {
  std::unique_ptr<KernelStore> store(new KernelStore(options));
  if (!options.use_cache) {
    store->no_folder_reason_ = "the caller asked for it";
    return store;
  }
  MOEJIT_TRY(store->open_folder());
  MOEJIT_TRY(store->open_packs());
  return store;
}

Result<void> KernelStore::open_folder() {
  cache::DefaultFolder folder{.path = options_.cache_dir, .is_explicit = true, .reason = {}};
  if (folder.path.empty()) {
    MOEJIT_TRY_ASSIGN(folder, cache::default_folder());
  }
  if (folder.path.empty()) {
    no_folder_reason_ = folder.reason;
    return {};
  }
  auto opened = cache::KernelCache::open(
      folder.path, options_.warn,
      cache::settings_of_environment({.max_bytes = options_.cache_max_bytes,
                                      .max_files = options_.cache_max_files,
                                      .writes_to_network = options_.cache_network_write}));
  if (opened) {
    folder_ = std::move(*opened);
    folder_compilers_ = std::make_unique<FolderCompilers>(*folder_);
    return {};
  }
  if (folder.is_explicit) return tl::make_unexpected(std::move(opened).error());
  no_folder_reason_ = opened.error().message;
  if (options_.warn) options_.warn(fmt::format("{}; kernels stay in memory", no_folder_reason_));
  return {};
}

Result<void> KernelStore::open_packs() {
  std::vector<std::string> paths;
  if (options_.packs) {
    paths = *options_.packs;
  } else {
    MOEJIT_TRY_ASSIGN(paths, cache::default_packs());
  }
  if (paths.empty()) return {};
  MOEJIT_TRY_ASSIGN(const cache::PackTrust trust, cache::pack_trust(options_.pack_keys));
  for (const std::string& path : paths) {
    MOEJIT_TRY_ASSIGN(auto pack, cache::Pack::open(path, trust));
    OpenPack open{.pack = std::move(pack), .compilers = {}};
    for (std::vector<std::string>& compiler : compilers_of(open.pack->manifest())) {
      const auto known = std::ranges::find(compilers_, compiler);
      open.compilers.push_back(static_cast<std::size_t>(known - compilers_.begin()));
      if (known == compilers_.end()) compilers_.push_back(std::move(compiler));
    }
    packs_.push_back(std::move(open));
  }
  return {};
}

KernelStore::Found KernelStore::find(const compiler::KernelSource& source,
                                     std::optional<OwnKey> known) {
  const bool is_at_hand = compiler::is_toolchain_at_hand(source.target);
  const bool opens_compiler = !is_at_hand && (!options_.frozen || options_.own_compiler_only);
  if (opens_compiler)
    if (auto found = find_in_packs(source, std::nullopt)) return {std::move(found), {}};
  if (!folder_ && (packs_.empty() || opens_compiler)) return {};
  std::optional<OwnKey> own;
  if (is_at_hand || opens_compiler)
    if (auto formed = own_key(source, std::move(known))) own = std::move(*formed);
  auto kernel = find_with(source, own, !opens_compiler);
  return {std::move(kernel), std::move(own)};
}

std::optional<ObtainedKernel> KernelStore::find_with(const compiler::KernelSource& source,
                                                     const std::optional<OwnKey>& own,
                                                     bool asks_packs) {
  if (own)
    if (auto found = find_in_folder(source, own->key.digest)) return found;
  const bool takes_others = folder_ && !options_.own_compiler_only && (options_.frozen || !own);
  std::vector<CompilerFields> asked;
  if (takes_others) {
    asked = folder_compilers_->all();
    if (auto found = find_in_folder(source, asked, own)) return found;
  }
  if (asks_packs)
    if (auto found = find_in_packs(source, own)) return found;
  if (!takes_others) return std::nullopt;
  // No other place has the kernel, so it pays to read the whole folder once.
  std::vector<CompilerFields> others = folder_compilers_->look_closer();
  std::erase_if(others, [&](const auto& known) { return std::ranges::count(asked, known) > 0; });
  return find_in_folder(source, others, own);
}

std::optional<ObtainedKernel> KernelStore::find_in_folder(const compiler::KernelSource& source,
                                                          std::span<const CompilerFields> compilers,
                                                          const std::optional<OwnKey>& own) {
  for (const CompilerFields& compiler : compilers) {
    if (own && own->compiler == compiler) continue;
    const auto key = key_with(source, compiler);
    if (!key) continue;  // the compiler is of another target
    if (auto found = find_in_folder(source, key->digest)) return found;
  }
  return std::nullopt;
}

std::optional<ObtainedKernel> KernelStore::find_in_folder(const compiler::KernelSource& source,
                                                          const Digest& key) {
  if (!folder_) return std::nullopt;
  auto entry = folder_->find(key);
  if (!entry) return std::nullopt;
  auto binary = kernel_of(std::move(*entry), source);
  if (!binary) {
    folder_->discard(key, "its metadata is not that of the kernel");
    return std::nullopt;
  }
  return ObtainedKernel{std::make_shared<const compiler::KernelBinary>(std::move(*binary)),
                        KernelOrigin::kCache, std::nullopt};
}

std::optional<ObtainedKernel> KernelStore::find_in_packs(const compiler::KernelSource& source,
                                                         const std::optional<OwnKey>& own) {
  // The source's key for each of compilers_, made when first needed.
  std::vector<std::optional<Digest>> keys(compilers_.size());
  std::vector<bool> is_made(compilers_.size());
  for (const OpenPack& pack : packs_) {
    for (const std::size_t compiler : pack.compilers) {
      if (!is_made[compiler]) {
        is_made[compiler] = true;
        if (own && own->compiler == compilers_[compiler])
          keys[compiler] = own->key.digest;
        else if (const auto key = key_with(source, compilers_[compiler]))
          keys[compiler] = key->digest;
      }
      if (!keys[compiler]) continue;  // the compiler is of another target
      if (auto found = find_in_pack(pack, *keys[compiler], source)) return found;
    }
  }
  return std::nullopt;
}

std::optional<ObtainedKernel> KernelStore::find_in_pack(const OpenPack& pack, const Digest& key,
                                                        const compiler::KernelSource& source) {
  auto entry = pack.pack->get(key);
  if (!entry) {
    report_bad_pack(pack.pack->path(), source, entry.error().message);
    return std::nullopt;
  }
  if (!*entry) return std::nullopt;
  auto binary = kernel_of(std::move(**entry), source);
  if (!binary) {
    report_bad_pack(pack.pack->path(), source,
                    fmt::format("pack {}: entry {}: its metadata is not that of the kernel",
                                pack.pack->path(), key.hex()));
    return std::nullopt;
  }
  return ObtainedKernel{std::make_shared<const compiler::KernelBinary>(std::move(*binary)),
                        KernelOrigin::kPack, std::nullopt};
}

void KernelStore::report_bad_pack(const std::string& path, const compiler::KernelSource& source,
                                  const std::string& message) {
  count(&EngineCounters::corrupt);
  {
    const std::lock_guard lock(warned_mutex_);
    damaged_.emplace(source.entry, path);
    if (!warned_.insert(path).second) return;
  }
  if (options_.warn) options_.warn(fmt::format("{}; its kernels are looked up elsewhere", message));
}

std::string KernelStore::folder_description() const {
  if (!folder_) return "memory only: " + no_folder_reason_;
  return folder_->folder() + (folder_->is_writable() ? "" : " (read-only)");
}

std::string KernelStore::write_problem() const {
  if (!folder_) return no_folder_reason_;
  const std::string problem = folder_->write_problem();
  return problem.empty() ? "" : fmt::format("cache folder {}: {}", folder_->folder(), problem);
}

std::vector<std::string> KernelStore::pack_paths() const {
  std::vector<std::string> paths;
  for (const OpenPack& pack : packs_) paths.push_back(pack.pack->path());
  return paths;
}

EngineCounters KernelStore::counters() const {
  const std::lock_guard guard(counters_mutex_);
  EngineCounters counters = counters_;
  if (folder_) counters.corrupt += folder_->counters().corrupt;
  return counters;
}

void KernelStore::count(int64_t EngineCounters::*counter) {
  const std::lock_guard guard(counters_mutex_);
  ++(counters_.*counter);
}

void KernelStore::count_miss() {
  if (folder_) folder_->count_miss();
}

}  // namespace moejit::runtime
