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
  std::unique_ptr<KernelStore> store(new KernelStore());
  store->warn_ = options.warn;
  if (!options.use_cache) {
    store->no_folder_reason_ = "the caller asked for it";
    return store;
  }
  MOEJIT_TRY(store->open_folder(options));
  MOEJIT_TRY(store->open_packs(options));
  return store;
}

Result<void> KernelStore::open_folder(const EngineOptions& options) {
  cache::DefaultFolder folder{.path = options.cache_dir, .is_explicit = true, .reason = {}};
  if (folder.path.empty()) {
    MOEJIT_TRY_ASSIGN(folder, cache::default_folder());
  }
  if (folder.path.empty()) {
    no_folder_reason_ = folder.reason;
    return {};
  }
  auto opened = cache::KernelCache::open(
      folder.path, options.warn,
      cache::settings_of_environment({.max_bytes = options.cache_max_bytes,
                                      .max_files = options.cache_max_files,
                                      .writes_to_network = options.cache_network_write}));
  if (opened) {
    folder_ = std::move(*opened);
    return {};
  }
  if (folder.is_explicit) return tl::make_unexpected(std::move(opened).error());
  no_folder_reason_ = opened.error().message;
  if (warn_) warn_(fmt::format("{}; kernels stay in memory", no_folder_reason_));
  return {};
}

Result<void> KernelStore::open_packs(const EngineOptions& options) {
  std::vector<std::string> paths;
  if (options.packs) {
    paths = *options.packs;
  } else {
    MOEJIT_TRY_ASSIGN(paths, cache::default_packs());
  }
  if (paths.empty()) return {};
  MOEJIT_TRY_ASSIGN(const cache::PackTrust trust, cache::pack_trust(options.pack_keys));
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

std::optional<ObtainedKernel> KernelStore::find(const compiler::KernelSource& source) {
  const bool asks_folder_first = packs_.empty() || compiler::is_toolchain_at_hand(source.target);
  if (!asks_folder_first)
    if (auto found = find_in_packs(source, std::nullopt)) return found;
  if (!folder_ && (packs_.empty() || !asks_folder_first)) return std::nullopt;
  const std::optional<OwnKey> own = own_key(source);
  if (own)
    if (auto found = find_in_folder(source, own->digest)) return found;
  return asks_folder_first ? find_in_packs(source, own) : std::nullopt;
}

// Without a compiler on this machine there is none, and nothing in the folder for it.
std::optional<KernelStore::OwnKey> KernelStore::own_key(const compiler::KernelSource& source) {
  const auto identity = compiler::toolchain_identity(source);
  if (!identity) return std::nullopt;
  return OwnKey{compiler::kernel_key(source, *identity).digest,
                compiler::compiler_fields(source.target, *identity)};
}

std::optional<ObtainedKernel> KernelStore::find_in_folder(const compiler::KernelSource& source,
                                                          const Digest& key) {
  if (!folder_) return std::nullopt;
  auto entry = folder_->get(key);
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
        keys[compiler] = own && own->compiler == compilers_[compiler]
                             ? own->digest
                             : key_with(source, compilers_[compiler]);
      }
      if (!keys[compiler]) continue;  // of another target
      if (auto found = find_in_pack(pack, *keys[compiler], source)) return found;
    }
  }
  return std::nullopt;
}

std::optional<Digest> KernelStore::key_with(const compiler::KernelSource& source,
                                            std::span<const std::string> compiler) {
  const auto identity = compiler::toolchain_identity_with(source, compiler);
  if (!identity || !*identity) return std::nullopt;
  return compiler::kernel_key(source, **identity).digest;
}

std::optional<ObtainedKernel> KernelStore::find_in_pack(const OpenPack& pack, const Digest& key,
                                                        const compiler::KernelSource& source) {
  auto entry = pack.pack->get(key);
  if (!entry) {
    report_bad_pack(pack.pack->path(), entry.error().message);
    return std::nullopt;
  }
  if (!*entry) return std::nullopt;
  auto binary = kernel_of(std::move(**entry), source);
  if (!binary) {
    report_bad_pack(pack.pack->path(),
                    fmt::format("pack {}: entry {}: its metadata is not that of the kernel",
                                pack.pack->path(), key.hex()));
    return std::nullopt;
  }
  return ObtainedKernel{std::make_shared<const compiler::KernelBinary>(std::move(*binary)),
                        KernelOrigin::kPack, std::nullopt};
}

void KernelStore::report_bad_pack(const std::string& path, const std::string& message) {
  ++corrupt_in_packs_;
  {
    const std::lock_guard lock(warned_mutex_);
    if (!warned_.insert(path).second) return;
  }
  if (warn_) warn_(fmt::format("{}; what it should have is looked for elsewhere", message));
}

bool KernelStore::publish(const compiler::KernelBinary& binary, const compiler::KernelKey& key) {
  return folder_ && folder_->put(key.digest, kernel_metadata(binary, key), binary.bytes);
}

std::string KernelStore::folder_description() const {
  if (!folder_) return "memory only: " + no_folder_reason_;
  return folder_->folder() + (folder_->is_writable() ? "" : " (read-only)");
}

std::vector<std::string> KernelStore::pack_paths() const {
  std::vector<std::string> paths;
  for (const OpenPack& pack : packs_) paths.push_back(pack.pack->path());
  return paths;
}

std::int64_t KernelStore::corrupt() const {
  return corrupt_in_packs_ + (folder_ ? folder_->counters().corrupt : 0);
}

}  // namespace moejit::runtime
