// SPDX-License-Identifier: Apache-2.0
// What an engine does for a kernel that no place has, or that it may not make.
#include "compiler/compiler.h"
#include "runtime/kernel_entry.h"
#include "runtime/kernel_store.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

namespace moejit::runtime {
namespace {

constexpr std::string_view kElsewhere = ", on a machine with a compiler and the same moejit";

}  // namespace

KernelStore::LookedUp KernelStore::look_up(const compiler::KernelSource& source,
                                           std::optional<OwnKey> known) {
  auto [kernel, own] = find(source, std::move(known));
  if (kernel) {
    if (kernel->origin == KernelOrigin::kPack) count_miss();
    count(kernel->origin == KernelOrigin::kPack ? &EngineCounters::from_packs
                                                : &EngineCounters::from_cache);
    return {std::move(*kernel), std::move(own)};
  }
  if (!options_.frozen) return {std::nullopt, std::move(own)};
  count_miss();
  return {frozen_error(source, std::move(own)), {}};
}

// Returns the compilers of a target whose kernels the folder is known to have, the newest first.
std::vector<CompilerFields> KernelStore::folder_compilers(const compiler::Target& target) const {
  if (!folder_) return {};
  std::vector<CompilerFields> compilers = folder_compilers_->all();
  std::erase_if(compilers, [&target](const CompilerFields& compiler) {
    return !key_with({.entry = {}, .text = {}, .target = target}, compiler);
  });
  return compilers;
}

// Describes the folder in use, the packs, and the compilers that made the folder's kernels.
std::string KernelStore::places_text(const compiler::Target& target) const {
  std::string text = folder_ ? folder_->folder() : "memory only";
  std::vector<std::string> names;
  for (const CompilerFields& compiler : folder_compilers(target))
    names.push_back(compiler_name(compiler));
  if (!names.empty()) text += fmt::format(", with kernels of {}", fmt::join(names, ", "));
  for (const std::string& pack : pack_paths()) text += "; " + pack;
  return text;
}

std::string KernelStore::by_whom() const {
  return options_.own_compiler_only ? " by the compiler of this machine" : " by any compiler";
}

// Returns the command that makes a kernel, and where it has to run.
std::string KernelStore::build_hint(const compiler::Target& target, std::string_view where) const {
  std::string hint = fmt::format("make it beforehand{}: moejit build {} --target {}", where,
                                 options_.build_arguments, to_string(target));
  if (!packs_.empty())
    hint += " --pack more.moejitpack, and add that to the packs";
  else if (folder_)
    hint += " --cache-dir " + folder_->folder();
  return hint;
}

// Returns a pack in which find() met the source's kernel damaged; none if it met none.
std::optional<std::string> KernelStore::damaged_pack_of(
    const compiler::KernelSource& source) const {
  const std::lock_guard lock(warned_mutex_);
  const auto found = damaged_.find(source.entry);
  return found == damaged_.end() ? std::nullopt : std::optional(found->second);
}

tl::unexpected<Error> KernelStore::frozen_error(const compiler::KernelSource& source,
                                                std::optional<OwnKey> own) const {
  if (const auto pack = damaged_pack_of(source))
    return fail(Stage::kCache, ErrorCode::kCacheMiss,
                fmt::format("the frozen cache has no kernel {} for {}: its entry in pack {} is "
                            "damaged",
                            source.entry, to_string(source.target), *pack),
                "copy the pack again, or rebuild it; moejit pack verify lists all problems");
  // A compiler is not opened just for a message.
  std::optional<Digest> key;
  if (compiler::is_toolchain_at_hand(source.target))
    if (const auto formed = own_key(source, std::move(own))) key = formed->key.digest;
  return fail(Stage::kCache, ErrorCode::kCacheMiss,
              fmt::format("the frozen cache ({}) has no kernel {} for {}{}",
                          places_text(source.target), source.entry, to_string(source.target),
                          key ? fmt::format(" (key {})", key->hex()) : by_whom()),
              build_hint(source.target, key ? "" : kElsewhere));
}

// Adds to the error about the missing compiler what else was tried.
tl::unexpected<Error> KernelStore::without_compiler(const compiler::KernelSource& source,
                                                    Error error) const {
  // If the compiler's version is known and only a part of it is missing, no other place was asked.
  if (options_.use_cache && !compiler::toolchain_identity(source)) {
    error.message +=
        fmt::format("; and the cache ({}) has no kernel {} for {}{}", places_text(source.target),
                    source.entry, to_string(source.target), by_whom());
    error.hint += (error.hint.empty() ? "" : "; or ") + build_hint(source.target, kElsewhere);
  }
  return tl::make_unexpected(std::move(error));
}

// Returns the locks, or null with a single warning if there are none.
cache::StripeLocks* KernelStore::stripe_locks() {
  std::string problem;
  {
    const std::lock_guard guard(locks_mutex_);
    if (has_asked_for_locks_) return locks_.get();
    has_asked_for_locks_ = true;
    auto opened = options_.run_dir.empty() ? cache::open_default_stripe_locks()
                                           : cache::StripeLocks::open(options_.run_dir);
    if (opened) return (locks_ = std::move(*opened)).get();
    problem = opened.error().message;
  }
  if (options_.warn)
    options_.warn(fmt::format("{}; processes of this node may compile the same kernel", problem));
  return nullptr;
}

// Without a writable folder nothing is published, so no lock is needed.
std::optional<cache::StripeLock> KernelStore::lock(const Digest& key, const std::stop_token& stop) {
  if (!folder_ || !folder_->is_writable()) return std::nullopt;
  cache::StripeLocks* const all = stripe_locks();
  auto held = all != nullptr ? all->lock(key, *options_.lock_patience, stop) : std::nullopt;
  if (!held) count(&EngineCounters::without_lock);
  return held;
}

// Runs on a thread of the service, and takes its turn before it waits for the lock. So a thread
// that waits for another process takes no turn away there. Processes that start together compile no
// more kernels at a time than one of them would.
ObtainedResult KernelStore::make(const compiler::KernelSource& source,
                                 const compiler::KernelKey& key, std::optional<OwnKey> own,
                                 const std::stop_token& stop) {
  if (stop.stop_requested())
    return fail(Stage::kCompile, ErrorCode::kInterrupted,
                fmt::format("kernel {} is not wanted any more", source.entry));
  const auto held = lock(key.digest, stop);
  // The previous holder of the lock may have published the kernel since we looked.
  LookedUp nearby = look_up(source, std::move(own));
  if (nearby.result) return std::move(*nearby.result);
  count_miss();
  return keep(source, std::move(nearby.own),
              compiler::compile_kernel_and_time(source, compile_options(stop)));
}

std::vector<ObtainedResult> KernelStore::make_unit(std::vector<Wanted> kernels, const Digest& unit,
                                                   const std::stop_token& stop) {
  const auto held = lock(unit, stop);
  std::vector<ObtainedResult> results(kernels.size());
  std::vector<compiler::KernelSource> missing;
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < kernels.size(); ++i) {
    LookedUp nearby = look_up(kernels[i].source, std::move(kernels[i].own));
    kernels[i].own = std::move(nearby.own);
    if (nearby.result) {
      results[i] = std::move(*nearby.result);
      continue;
    }
    count_miss();
    missing.push_back(std::move(kernels[i].source));
    places.push_back(i);
  }
  auto compiled = compiler::compile_unit_and_time(missing, compile_options(stop));
  for (std::size_t i = 0; i < missing.size(); ++i)
    results[places[i]] =
        keep(missing[i], std::move(kernels[places[i]].own), std::move(compiled[i]));
  return results;
}

compiler::CompileOptions KernelStore::compile_options(const std::stop_token& stop) const {
  return {
      .stop = stop, .worker = options_.compile_worker, .reproducer_dir = options_.reproducer_dir};
}

// Publishes a kernel that a compiler made, or says why there is none.
ObtainedResult KernelStore::keep(const compiler::KernelSource& source, std::optional<OwnKey> own,
                                 Result<compiler::CompiledKernel> compiled) {
  if (!compiled && compiled.error().code == ErrorCode::kCompilerMissing)
    return without_compiler(source, std::move(compiled).error());
  if (!compiled) return tl::make_unexpected(std::move(compiled).error());
  if (compiled->loss && options_.warn)
    options_.warn(fmt::format("{}; its results are right, but it is slow: {}",
                              compiled->loss->message, compiled->loss->hint));
  const auto binary = std::make_shared<const compiler::KernelBinary>(std::move(compiled->binary));
  // Now that the compiler is open, there is no doubt which one it is.
  MOEJIT_TRY_ASSIGN(own, own_key(source, std::move(own)));
  const bool is_published = publish(*binary, own->key);
  count(&EngineCounters::compiled);
  if (options_.use_cache && !is_published) count(&EngineCounters::unpublished);
  return ObtainedKernel{binary, KernelOrigin::kCompiler, compiled->time};
}

// Publishes the kernel and returns whether the folder has it. NVRTC gives equal bytes for equal
// keys. Kernels of the simulator depend on their unit too. If another process has published other
// bytes meanwhile, its bytes stay.
bool KernelStore::publish(const compiler::KernelBinary& binary, const compiler::KernelKey& key) {
  if (!folder_) return false;
  const auto there = folder_->find(key.digest);
  if (!there) {
    // The compiler is recorded first, so that a process that sees the entry knows which one to ask
    // for.
    record_compiler(*folder_, compiler_of(binary.target, key.fields));
    return folder_->put(key.digest, kernel_metadata(binary, key), binary.bytes);
  }
  if (there->payload == binary.bytes || binary.target.kind == compiler::TargetKind::kSim)
    return true;
  count(&EngineCounters::nondeterministic);
  folder_->count_nondeterministic();
  if (options_.warn)
    options_.warn(
        fmt::format("kernel {} was compiled twice, with different bytes (key {}): the "
                    "compiler is not deterministic, or memory is damaged",
                    binary.entry, key.digest.hex()));
  return true;
}

}  // namespace moejit::runtime
