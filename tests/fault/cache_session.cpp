// SPDX-License-Identifier: Apache-2.0
// A program that uses the kernel cache as an engine does, for tests in which the file system
// fails. "Compiling" is a function of the key that takes no time. What it prints is a function of
// its arguments alone: whatever happens to the cache, the kernels are the same.
//
//   cache_session run NAME...    obtains a kernel for each name, twice, in two sessions
//   cache_session put NAME...    publishes one for each name
//   cache_session hit NAME       how many of 100 reads were hits
//   cache_session list           "<key> <problem>" for each entry
//
// The folder is that of the environment. Warnings go to standard error, a line each.
#include "cache/kernel_cache.h"

#include <cstdio>
#include <fmt/core.h>
#include <string>
#include <vector>

namespace moejit::cache {
namespace {

// Three warnings in three lines.
void warn(std::string_view text) { fmt::print(stderr, "{}\n", text); }

std::unique_ptr<KernelCache> open_cache() {
  const auto folder = default_folder();
  if (!folder) {
    warn(folder.error().message);
    return nullptr;
  }
  if (folder->path.empty()) return nullptr;
  auto cache = KernelCache::open(folder->path, &warn);
  if (cache) return std::move(*cache);
  warn(cache.error().message);
  return nullptr;
}

std::vector<std::byte> compiled(const std::string& name) {
  std::vector<std::byte> code;
  for (int i = 0; i < 100; ++i)
    for (const std::uint8_t byte : sha256(fmt::format("{} {}", name, i)).bytes)
      code.push_back(std::byte{byte});
  return code;
}

// The cache's kernel where it has one, else a new one that the cache is given.
std::vector<std::byte> obtain(KernelCache* cache, const std::string& name) {
  const Digest key = sha256(name);
  if (cache != nullptr)
    if (auto entry = cache->get(key)) return std::move(entry->payload);
  std::vector<std::byte> code = compiled(name);
  if (cache != nullptr) cache->put(key, "{\"entry\":\"" + name + "\"}", code);
  return code;
}

int run(const std::vector<std::string>& names) {
  for (int session = 0; session < 2; ++session) {
    const auto cache = open_cache();
    for (const std::string& name : names)
      fmt::print("{} {}\n", name, sha256(obtain(cache.get(), name)).hex());
  }
  return 0;
}

int put(const std::vector<std::string>& names) {
  const auto cache = open_cache();
  for (const std::string& name : names)
    if (cache) cache->put(sha256(name), "{\"entry\":\"" + name + "\"}", compiled(name));
  return 0;
}

int hit(const std::string& name) {
  const auto cache = open_cache();
  int hits = 0;
  for (int i = 0; i < 100; ++i) hits += cache && cache->get(sha256(name)) ? 1 : 0;
  fmt::print("{}\n", hits);
  return 0;
}

int list() {
  if (const auto cache = open_cache())
    for (const EntryInfo& entry : cache->list())
      fmt::print("{} {}\n", entry.key.hex(), entry.problem);
  return 0;
}

}  // namespace
}  // namespace moejit::cache

int main(int argc, char** argv) {
  const std::string verb = argc > 1 ? argv[1] : "";
  const std::vector<std::string> names(argv + std::min(argc, 2), argv + argc);
  if (verb == "run") return moejit::cache::run(names);
  if (verb == "put") return moejit::cache::put(names);
  if (verb == "hit" && names.size() == 1) return moejit::cache::hit(names[0]);
  if (verb == "list") return moejit::cache::list();
  fmt::print(stderr, "cache_session run NAME... | put NAME... | hit NAME | list\n");
  return 2;
}
