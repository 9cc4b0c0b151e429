// SPDX-License-Identifier: Apache-2.0
#include "runtime/simulator/global_memory.h"

#include <algorithm>
#include <fmt/core.h>
#include <sys/mman.h>

namespace moejit::runtime {
namespace {

// Who wrote the bytes of 8 aligned bytes in this launch:
//   bits 56 to 63  which bytes were written
//   bit 55         by several CTAs: nothing can be said of them any more
//   bit 54         by several threads or in several epochs: only the CTA can be said
//   bits 34 to 53  CTA, modulo 2^20
//   bits 0 to 30   the thread's stamp
struct WriteStamp {
  static constexpr uint64_t kManyCtas = uint64_t{1} << 55;
  static constexpr uint64_t kManyThreads = uint64_t{1} << 54;
  uint64_t bits;

  static WriteStamp make(uint32_t bytes, int32_t cta, Stamp stamp) {
    return {uint64_t{bytes} << 56 | (static_cast<uint64_t>(cta) & 0xfffffu) << 34 |
            (stamp & ~kWholeWarp)};
  }
  uint32_t bytes() const { return static_cast<uint32_t>(bits >> 56); }
  int32_t cta() const { return static_cast<int32_t>(bits >> 34 & 0xfffffu); }
  Stamp stamp() const { return static_cast<Stamp>(bits & 0x7fffffffu); }
};

// The bytes of an aligned access within the 8 aligned bytes that it touches.
uint32_t byte_mask(uintptr_t address, uint32_t bytes) {
  return bytes >= 8 ? 0xffu : ((1u << bytes) - 1) << (address % 8);
}

// May `actor` touch bytes that carry this stamp?
bool is_ordered(WriteStamp past, uint32_t bytes, const GlobalActor& actor) {
  if ((past.bytes() & bytes) == 0 || (past.bits & WriteStamp::kManyCtas) != 0) return true;
  if (past.cta() != (actor.cta & 0xfffff)) return false;
  if ((past.bits & WriteStamp::kManyThreads) != 0) return true;
  return actor.order->ordered(past.stamp(), actor.now);
}

WriteStamp combine(WriteStamp past, WriteStamp now) {
  if ((past.bytes() & ~now.bytes()) == 0) return now;
  uint64_t bits = now.bits | (past.bits & (uint64_t{0xff} << 56)) |
                  (past.bits & (WriteStamp::kManyCtas | WriteStamp::kManyThreads));
  if (past.cta() != now.cta()) bits |= WriteStamp::kManyCtas;
  if (past.stamp() != now.stamp()) bits |= WriteStamp::kManyThreads;
  return {bits};
}

}  // namespace

LaunchMemory::LaunchMemory(std::span<const MemoryRegion> regions, Allocations& allocations) {
  for (const MemoryRegion& region : regions) {
    if (region.address == nullptr || region.bytes <= 0) continue;
    const auto begin = reinterpret_cast<uintptr_t>(region.address);
    regions_.push_back(Region{.begin = begin,
                              .end = begin + static_cast<uintptr_t>(region.bytes),
                              .is_writable = region.writable,
                              .name = std::string(region.name),
                              .initialised = allocations.find(region.address, region.bytes)});
  }
  std::ranges::sort(regions_, {}, &Region::begin);
  map_stamps();
}

LaunchMemory::~LaunchMemory() {
  for (const Mapping& mapping : mappings_) munmap(mapping.address, mapping.bytes);
}

// Regions that overlap share their stamps. Where the system refuses the memory, races there are
// not looked for.
void LaunchMemory::map_stamps() {
  for (std::size_t first = 0; first < regions_.size();) {
    std::size_t last = first;
    uintptr_t end = regions_[first].end;
    bool is_writable = regions_[first].is_writable;
    while (last + 1 < regions_.size() && regions_[last + 1].begin < end) {
      ++last;
      end = std::max(end, regions_[last].end);
      is_writable |= regions_[last].is_writable;
    }
    if (is_writable) {
      const uintptr_t begin = regions_[first].begin & ~uintptr_t{7};
      const std::size_t bytes = ((end - begin) / 8 + 2) * sizeof(uint64_t);
      void* mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      if (mapped != MAP_FAILED) {
        mappings_.push_back({mapped, bytes});
        for (std::size_t i = first; i <= last; ++i) {
          regions_[i].stamps = static_cast<uint64_t*>(mapped);
          regions_[i].stamps_begin = begin;
        }
      }
    }
    first = last + 1;
  }
}

const LaunchMemory::Region* LaunchMemory::find(uintptr_t address, uint32_t bytes,
                                               bool for_write) const {
  for (const Region& region : regions_) {
    if (address >= region.begin && address + bytes <= region.end &&
        (region.is_writable || !for_write)) {
      return &region;
    }
  }
  return nullptr;
}

bool LaunchMemory::access(uintptr_t address, uint32_t bytes, sim::Access kind,
                          const GlobalActor& actor) const {
  const bool is_read = kind == sim::Access::kRead || kind == sim::Access::kAtomic;
  const bool is_write = kind == sim::Access::kWrite;
  const Region* region = find(address, bytes, kind != sim::Access::kRead);
  if (region == nullptr) return false;
  if (region->initialised != nullptr) {
    if (is_read && !region->initialised->all(address, bytes)) return false;
    if (is_write) region->initialised->set(address, bytes);
  }
  if (region->stamps == nullptr) return true;
  const uint32_t mask = byte_mask(address, bytes);
  const uint32_t words = bytes == 16 ? 2 : 1;
  uint64_t* stamps = region->stamps + (address - region->stamps_begin) / 8;
  for (uint32_t i = 0; i < words; ++i) {
    const WriteStamp past{__atomic_load_n(stamps + i, __ATOMIC_RELAXED)};
    if (!is_ordered(past, mask, actor)) return false;
    if (!is_write) continue;
    const WriteStamp now = combine(past, WriteStamp::make(mask, actor.cta, actor.now));
    __atomic_store_n(stamps + i, now.bits, __ATOMIC_RELAXED);
  }
  return true;
}

std::string LaunchMemory::explain(uintptr_t address, uint32_t bytes, sim::Access kind,
                                  const GlobalActor& actor) const {
  const char* verb = kind == sim::Access::kRead    ? "reads"
                     : kind == sim::Access::kWrite ? "writes"
                                                   : "updates";
  if (regions_.empty()) return fmt::format("{} {} bytes of a launch without memory", verb, bytes);
  const Region* inside = find(address, bytes, false);
  if (inside == nullptr) {
    // The region that begins last before the address, else the first of all.
    const Region* near = &regions_.front();
    for (const Region& region : regions_) {
      if (region.begin <= address) near = &region;
    }
    return fmt::format("{} {} bytes at byte {} of {}, which has bytes 0 to {}", verb, bytes,
                       static_cast<int64_t>(address - near->begin), near->name,
                       near->end - near->begin - 1);
  }
  const std::string what = fmt::format("{} {} bytes at byte {} of {}", verb, bytes,
                                       address - inside->begin, inside->name);
  const Region* region = find(address, bytes, kind != sim::Access::kRead);
  if (region == nullptr) return what + ", which this kernel may only read";
  for (uint32_t i = 0; region->stamps != nullptr && i < (bytes == 16 ? 2u : 1u); ++i) {
    const uint64_t* stamp = region->stamps + (address - region->stamps_begin) / 8 + i;
    const WriteStamp past{__atomic_load_n(stamp, __ATOMIC_RELAXED)};
    if (is_ordered(past, byte_mask(address, bytes), actor)) continue;
    const bool many = (past.bits & WriteStamp::kManyThreads) != 0;
    const bool same_cta = past.cta() == (actor.cta & 0xfffff);
    return fmt::format("{} that CTA {}{} wrote in this launch, {}", what, past.cta(),
                       many ? "" : fmt::format(", thread {},", thread_of(past.stamp())),
                       same_cta ? "with no barrier between" : "and CTAs of a launch have no order");
  }
  return what + " that nothing has written";
}

}  // namespace moejit::runtime
