// SPDX-License-Identifier: Apache-2.0
// Records name the compilers whose entries a folder holds, so that a machine without any of these
// compilers still knows what to ask for. A record is a file whose name is the SHA-256 of its text.
// So any number of processes may write the same record, no record ever changes, and its name shows
// whether it is damaged.
#include "cache/kernel_cache.h"

#include <span>

namespace moejit::cache {
namespace {

constexpr const char* kFolder = "compilers";
constexpr std::int64_t kLargestRecord = 4096;

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

void KernelCache::add_compiler(std::string_view text) {
  if (!is_writable() || std::ssize(text) > kLargestRecord) return;
  const std::string name = std::string(kFolder) + "/" + sha256(text).hex();
  std::vector<std::byte> present;
  if (folder_.read(name, present) == 0 && text_of(present) == text) return;
  // A failure is ignored: it keeps entries from being written too, which reports it.
  static_cast<void>(folder_.publish(name, std::as_bytes(std::span(text))));
}

std::vector<std::string> KernelCache::compilers() const {
  std::vector<std::string> texts;
  for (const FileInfo& file : folder_.files_in(kFolder)) {
    std::vector<std::byte> bytes;
    if (!file.is_regular || file.bytes > kLargestRecord || folder_.read(file.name, bytes) != 0)
      continue;
    std::string text = text_of(bytes);
    if (file.name == std::string(kFolder) + "/" + sha256(text).hex())
      texts.push_back(std::move(text));
  }
  return texts;
}

}  // namespace moejit::cache
