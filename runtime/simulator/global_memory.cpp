// SPDX-License-Identifier: Apache-2.0
#include "runtime/simulator/global_memory.h"

#include <algorithm>
#include <fmt/core.h>
#include <sys/mman.h>

namespace moejit::runtime {
namespace {

// Records who wrote the bytes of an aligned word in this launch. Every race that it reports is
// true: if its bits do not suffice, it reports nothing.
//   bits 28 to 31  which bytes were written
//   bit 27         whether several actors wrote: thread is then kOneCta or kSeveralCtas
//   bits 17 to 26  a hash of the CTA
//   bits 7 to 16   thread
//   bits 0 to 6    epoch of its warp; kLateEpoch for all that do not fit
struct WriteStamp {
  static constexpr uint32_t kSeveral = 1u << 27;
  static constexpr uint32_t kOneCta = 0;
  static constexpr uint32_t kSeveralCtas = 1;
  static constexpr uint32_t kLateEpoch = 127;
  uint32_t bits;

  static WriteStamp make(uint32_t bytes, const GlobalActor& actor) {
    return {bytes << 28 | KnownCtas::hash(actor.cta) << 17 |
            static_cast<uint32_t>(actor_of(actor.actor.stamp)) << 7 |
            std::min(epoch_of(actor.actor.stamp), kLateEpoch)};
  }
  uint32_t bytes() const { return bits >> 28; }
  bool several() const { return (bits & kSeveral) != 0; }
  bool several_ctas() const { return several() && thread() == kSeveralCtas; }
  uint32_t cta_hash() const { return bits >> 17 & 1023u; }
  uint32_t thread() const { return bits >> 7 & 1023u; }
  uint32_t epoch() const { return bits & 127u; }
};

// Returns which bytes of each of its words an aligned access touches.
uint32_t byte_mask(uintptr_t address, uint32_t bytes) {
  return bytes >= 4 ? 0xfu : ((1u << bytes) - 1) << (address % 4);
}

uint32_t words_of(uint32_t bytes) { return bytes >= 4 ? bytes / 4 : 1; }

// Returns whether `actor` may touch these bytes of a word with this stamp.
bool is_ordered(WriteStamp past, uint32_t bytes, const GlobalActor& actor) {
  if ((past.bytes() & bytes) == 0 || past.several_ctas()) return true;
  if (past.cta_hash() != KnownCtas::hash(actor.cta)) {
    const Stamp stamp =
        past.several() ? 0 : make_stamp(static_cast<int32_t>(past.thread()), past.epoch());
    return actor.others != nullptr && actor.others->knows_cta(past.cta_hash(), stamp, actor.actor);
  }
  if (past.several() || past.epoch() == WriteStamp::kLateEpoch) return true;
  return actor.actor.is_after(make_stamp(static_cast<int32_t>(past.thread()), past.epoch()));
}

WriteStamp combine(WriteStamp past, WriteStamp now) {
  if ((past.bytes() & ~now.bytes()) == 0) return now;
  const uint32_t both = (past.bytes() | now.bytes()) << 28;
  const auto identity = [](WriteStamp stamp) { return stamp.bits & ((1u << 28) - 1); };
  if (identity(past) == identity(now)) return {both | identity(now)};
  const bool one_cta = !past.several_ctas() && past.cta_hash() == now.cta_hash();
  return {both | WriteStamp::kSeveral | now.cta_hash() << 17 |
          (one_cta ? WriteStamp::kOneCta : WriteStamp::kSeveralCtas) << 7};
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

// Maps the stamps. Overlapping regions share them. If the system refuses the memory, races there
// are not detected.
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
      const uintptr_t begin = regions_[first].begin & ~uintptr_t{15};
      const std::size_t bytes = ((end - begin) / 4 + 4) * sizeof(uint32_t);
      void* mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      if (mapped != MAP_FAILED) {
        mappings_.push_back({mapped, bytes});
        for (std::size_t i = first; i <= last; ++i) {
          regions_[i].stamps = static_cast<uint32_t*>(mapped);
          regions_[i].stamps_begin = begin;
        }
      }
    }
    first = last + 1;
  }
}

const LaunchMemory::Region* LaunchMemory::find(uintptr_t address, uint64_t bytes,
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
  uint32_t* stamps = region->stamps + (address - region->stamps_begin) / 4;
  const WriteStamp own = WriteStamp::make(mask, actor);
  for (uint32_t i = 0; i < words_of(bytes); ++i) {
    const WriteStamp past{__atomic_load_n(stamps + i, __ATOMIC_RELAXED)};
    if (past.bits != 0 && !is_ordered(past, mask, actor)) return false;
    if (is_write) __atomic_store_n(stamps + i, combine(past, own).bits, __ATOMIC_RELAXED);
  }
  return true;
}

bool LaunchMemory::may_copy_from(uintptr_t address, uint64_t bytes,
                                 const GlobalActor& actor) const {
  const Region* region = find(address, bytes, false);
  if (region == nullptr) return false;
  if (region->stamps == nullptr) return true;
  const uintptr_t first = (address - region->stamps_begin) / 4;
  const uintptr_t last = (address + bytes - 1 - region->stamps_begin) / 4;
  for (uintptr_t i = first; i <= last; ++i) {
    const WriteStamp past{__atomic_load_n(region->stamps + i, __ATOMIC_RELAXED)};
    if (past.bits != 0 && !is_ordered(past, 0xfu, actor)) return false;
  }
  return true;
}

bool LaunchMemory::is_written(uintptr_t address, uint64_t bytes) const {
  const Region* region = find(address, bytes, false);
  return region == nullptr || region->initialised == nullptr ||
         region->initialised->all_of_range(address, bytes);
}

std::string LaunchMemory::place_of(uintptr_t address) const {
  const Region* region = find(address, 1, false);
  if (region == nullptr) return fmt::format("address {:#x}", address);
  return fmt::format("byte {} of {}", address - region->begin, region->name);
}

std::string LaunchMemory::explain(uintptr_t address, uint32_t bytes, sim::Access kind,
                                  const GlobalActor& actor) const {
  const char* verb = kind == sim::Access::kRead    ? "reads"
                     : kind == sim::Access::kWrite ? "writes"
                                                   : "updates";
  if (regions_.empty()) return fmt::format("{} {} bytes of a launch without memory", verb, bytes);
  const Region* inside = find(address, bytes, false);
  if (inside == nullptr) {
    // The region that begins last before the address, else the first one.
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
  for (uint32_t i = 0; region->stamps != nullptr && i < words_of(bytes); ++i) {
    const uint32_t* stamp = region->stamps + (address - region->stamps_begin) / 4 + i;
    const WriteStamp past{__atomic_load_n(stamp, __ATOMIC_RELAXED)};
    if (is_ordered(past, byte_mask(address, bytes), actor)) continue;
    if (past.cta_hash() != KnownCtas::hash(actor.cta)) {
      return what + (actor.others == nullptr
                         ? " that another CTA wrote in this launch, and CTAs have no order (race)"
                         : " that another CTA wrote in this launch: no release and acquire of a "
                           "flag orders the two (race)");
    }
    return fmt::format("{} that thread {} wrote with no barrier since (race)", what, past.thread());
  }
  return what + std::string(kNothingHasWritten);
}

}  // namespace moejit::runtime
