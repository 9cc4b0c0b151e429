// SPDX-License-Identifier: Apache-2.0
#include "runtime/simulator/group/symmetric_memory.h"

#include <algorithm>
#include <sys/mman.h>

namespace moejit::runtime {
namespace {

constexpr int64_t kPage = 4096;

void* map(int64_t bytes) {
  void* mapped = mmap(nullptr, static_cast<std::size_t>(bytes), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return mapped == MAP_FAILED ? nullptr : mapped;
}

// Calls visit(word's address, mask of its bytes) for the words of a range.
template <typename Visit>
void for_words(uintptr_t address, uint64_t bytes, Visit visit) {
  const uintptr_t end = address + bytes;
  for (uintptr_t word = address & ~uintptr_t{3}; word < end; word += 4) {
    const uintptr_t first = std::max(word, address) - word;
    const uintptr_t last = std::min(word + 4, end) - word;
    visit(word, static_cast<uint8_t>((0xfu << first) & (0xfu >> (4 - last))));
  }
}

bool is_same(const AccessRecord& a, const AccessRecord& b) {
  return a.run == b.run && a.stamp == b.stamp;
}

}  // namespace

std::unique_ptr<SymmetricMemory> SymmetricMemory::create(int32_t ranks, int64_t heap_bytes) {
  std::unique_ptr<SymmetricMemory> memory(new SymmetricMemory);
  memory->heap_bytes_ = std::max<int64_t>(heap_bytes + kPage - 1, kPage) / kPage * kPage;
  // A page between heaps is nobody's, so that no region reaches into two.
  memory->stride_ = memory->heap_bytes_ + kPage;
  memory->total_bytes_ = memory->stride_ * ranks;
  memory->base_ = static_cast<std::byte*>(map(memory->total_bytes_));
  memory->words_ =
      static_cast<Word*>(map(memory->total_bytes_ / 4 * static_cast<int64_t>(sizeof(Word))));
  if (memory->base_ == nullptr || memory->words_ == nullptr) return nullptr;
  for (int32_t rank = 0; rank < ranks; ++rank) {
    memory->written_.push_back(std::make_unique<InitialisedBits>(
        reinterpret_cast<uintptr_t>(memory->heap(rank)), memory->heap_bytes_));
  }
  return memory;
}

SymmetricMemory::~SymmetricMemory() {
  if (base_ != nullptr) munmap(base_, static_cast<std::size_t>(total_bytes_));
  if (words_ != nullptr) munmap(words_, static_cast<std::size_t>(total_bytes_ / 4) * sizeof(Word));
}

std::optional<Trouble> SymmetricMemory::find_unwritten(uintptr_t address, uint64_t bytes) {
  InitialisedBits& written = bits_of(address);
  if (written.all_of_range(address, bytes)) return std::nullopt;
  while (written.all_of_range(address, 1)) ++address;
  const AccessRecord& past = word_at(address).written;
  const bool is_stale = past.run != 0 && (past.bytes >> (address % 4) & 1u) != 0;
  return Trouble{is_stale ? Trouble::Kind::kStale : Trouble::Kind::kUnwritten, address, past};
}

std::optional<Trouble> SymmetricMemory::update(uintptr_t address, uint64_t bytes,
                                               const Accessor& who) {
  std::optional<Trouble> trouble;
  for_words(address, bytes, [&](uintptr_t at, uint8_t mask) {
    const AccessRecord& past = word_at(at).written;
    if (trouble || (past.bytes & mask) == 0 || who.knows(past)) return;
    const bool is_known = who.is_copy && who.knowledge.knows(past, who.actor);
    trouble = Trouble{is_known ? Trouble::Kind::kNotFenced : Trouble::Kind::kWritten, at, past};
  });
  return trouble ? trouble : find_unwritten(address, bytes);
}

std::optional<Trouble> SymmetricMemory::read(uintptr_t address, uint64_t bytes,
                                             const Accessor& who) {
  std::optional<Trouble> trouble = update(address, bytes, who);
  if (trouble) return trouble;
  for_words(address, bytes, [&](uintptr_t at, uint8_t mask) {
    word_at(at).read = {who.actor.stamp, who.site, who.knowledge.run(), mask, false};
  });
  return trouble;
}

std::optional<Trouble> SymmetricMemory::write(uintptr_t address, uint64_t bytes,
                                              const Accessor& who) {
  std::optional<Trouble> trouble;
  for_words(address, bytes, [&](uintptr_t at, uint8_t mask) {
    if (trouble) return;
    Word& word = word_at(at);
    const AccessRecord past = word.written;
    if ((past.bytes & mask) != 0 && !who.knowledge.knows(past, who.actor)) {
      trouble = Trouble{Trouble::Kind::kWritten, at, past};
      return;
    }
    if ((word.read.bytes & mask) != 0 && !who.knowledge.knows(word.read, who.actor)) {
      trouble = Trouble{Trouble::Kind::kRead, at, word.read};
      return;
    }
    AccessRecord now{who.actor.stamp, who.site, who.knowledge.run(), mask, false};
    // Bytes of the word that another access wrote stay written.
    if ((past.bytes & ~mask) != 0) {
      now.bytes |= past.bytes;
      now.is_several = past.is_several || !is_same(past, now);
    }
    word = {now, {}};
  });
  return trouble;
}

void SymmetricMemory::write_flag(uintptr_t address, const Accessor& who) {
  word_at(address) = {{who.actor.stamp, who.site, who.knowledge.run(), 0xf, false}, {}};
  mark_landed(address, 4);
}

void SymmetricMemory::mark_landed(uintptr_t address, uint64_t bytes) {
  bits_of(address).set_range(address, bytes);
}

void SymmetricMemory::write_by_host(uintptr_t address, uint64_t bytes) {
  if (bytes == 0) return;
  for_words(address, bytes, [&](uintptr_t at, uint8_t mask) {
    if (mask == 0xf) word_at(at) = {};
  });
  mark_landed(address, bytes);
}

void SymmetricMemory::expire(uintptr_t address, uint64_t bytes) {
  bits_of(address).clear_range(address, bytes);
}

}  // namespace moejit::runtime
