// SPDX-License-Identifier: Apache-2.0
#include "runtime/simulator/cta.h"
#include "runtime/simulator/group/ranks_state.h"

#include <cstring>
#include <fmt/core.h>

namespace moejit::runtime {

const char* verb_of(sim::Access kind) {
  if (kind == sim::Access::kWrite || kind == sim::Access::kWarpWrite) return "writes";
  return kind == sim::Access::kAtomic ? "updates" : "reads";
}

// Checks an address in the shared memory of the thread's CTA and returns its offset in the
// cluster's shared memory.
uint32_t Cta::shared_offset(uint32_t address, uint32_t bytes, const char* verb, sim::Site site) {
  const uint32_t offset = address - sim::kSharedBase;
  const uint32_t limit = launch_->shared_bytes;
  if (address < sim::kSharedBase || offset > limit || limit - offset < bytes) {
    report(site, fmt::format("{} {} bytes at offset {} of shared memory, of which the launch has "
                             "{} bytes",
                             verb, bytes, static_cast<int64_t>(address) - sim::kSharedBase, limit));
  }
  if (address % bytes != 0) {
    report(site, fmt::format("{} {} bytes at offset {} of shared memory, which is not a multiple "
                             "of {}",
                             verb, bytes, offset, bytes));
  }
  return shared_begin(cta_of(thread())) + offset;
}

// Reports a CTA of the cluster that does not exist or has ended: its shared memory may be
// another's.
void Cta::check_alive(int32_t cta, const char* verb, sim::Site site) {
  if (cta < 0 || cta >= launch_->cluster_ctas) {
    report(site, fmt::format("{} CTA {} of a cluster of {}", verb, cta, launch_->cluster_ctas));
  }
  if ((alive_warps_ & warps_of(cta)) == 0) {
    report(site, fmt::format("{} CTA {} of the cluster, which has ended: a sync_cluster before its "
                             "end is missing",
                             verb, cta));
  }
}

void* Cta::access_shared(uint32_t address, uint32_t bytes, sim::Access kind, sim::Site site) {
  const uint32_t offset = shared_offset(address, bytes, verb_of(kind), site);
  const bool is_whole_warp = kind == sim::Access::kWarpRead || kind == sim::Access::kWarpWrite ||
                             kind == sim::Access::kOperandRead;
  const Actor now = is_whole_warp ? order_.whole_warp(thread()) : actor();
  const Conflict conflict =
      kind == sim::Access::kOperandRead ? shared_.read_operand(offset, bytes, now, site)
      : kind == sim::Access::kRead || kind == sim::Access::kWarpRead
          ? shared_.read(offset, bytes, now, site)
          : shared_.write(offset, bytes, now, site, kind == sim::Access::kAtomic);
  if (conflict != Conflict::kNone) report(site, describe(conflict, verb_of(kind), bytes));
  return shared_.at(offset);
}

void* Cta::access_global(const void* address, uint32_t bytes, sim::Access kind, sim::Site site) {
  const auto number = reinterpret_cast<uintptr_t>(address);
  if (number % bytes != 0) {
    report(site, fmt::format("{} {} bytes of global memory at address {:#x}, which is not a "
                             "multiple of {}",
                             verb_of(kind), bytes, number, bytes));
  }
  if (rank_ != nullptr && is_symmetric(number)) {
    return access_symmetric(number, bytes, kind, site);
  }
  check_kernel_before(number, bytes, kind, site);
  const GlobalActor now = global_actor();
  if (!launch_->memory->access(number, bytes, kind, now)) {
    report(site, launch_->memory->explain(number, bytes, kind, now));
  }
  return const_cast<void*>(address);
}

GlobalActor Cta::global_actor() const {
  return {first_cta_, actor(), rank_ == nullptr ? nullptr : &rank_->knowledge};
}

// Checks a prefetch. It reads nothing: bytes that nothing wrote, or that others write, are fine.
void Cta::prefetch_global(const void* address, uint32_t bytes, sim::Site site) {
  const auto number = reinterpret_cast<uintptr_t>(address);
  if (number % 16 != 0 || bytes % 16 != 0) {
    report(site, fmt::format("prefetches {} bytes of global memory at address {:#x}: not both are "
                             "multiples of 16",
                             bytes, number));
  }
  if (!launch_->memory->contains(number, bytes)) {
    report(site, launch_->memory->explain(number, bytes, sim::Access::kRead, global_actor()));
  }
}

// Starts an asynchronous copy. The hardware may complete it at any time between here and the wait
// that covers it. Both ends of that interval are tried, by a random choice for each copy; either
// way the target counts as pending until the wait.
void Cta::copy_async(uint32_t destination, const void* source, uint32_t bytes, sim::Site site) {
  if (source != nullptr) access_global(source, bytes, sim::Access::kRead, site);
  start({.offset = shared_offset(destination, bytes, "copies", site),
         .bytes = bytes,
         .source = source,
         .site = site});
}

void Cta::copy_operand_async(uint32_t destination, const void* source, uint32_t bytes,
                             sim::Site site) {
  if (source != nullptr) check_source(reinterpret_cast<uintptr_t>(source), bytes, site);
  start({.offset = shared_offset(destination, bytes, "copies", site),
         .bytes = bytes,
         .source = source,
         .site = site,
         .is_operand = true});
}

void Cta::start(AsyncCopy copy) {
  const Conflict conflict = shared_.begin_copy(copy.offset, copy.bytes, actor(), copy.site);
  if (conflict != Conflict::kNone) report(copy.site, describe(conflict, "overwrites", copy.bytes));
  if ((fibers_.random().next() & 1u) != 0) {
    land(copy);
    copy.has_landed = true;
  }
  copies_.add(thread(), copy);
}

void Cta::land(const AsyncCopy& copy) {
  if (copy.source != nullptr && !copy.is_operand)
    access_global(copy.source, copy.bytes, sim::Access::kRead, copy.site);
  move(copy);
}

void Cta::move(const AsyncCopy& copy) {
  std::byte* const to = shared_.at(copy.offset);
  if (copy.source == nullptr) {
    std::memset(to, 0, copy.bytes);
    return;
  }
  std::memcpy(to, copy.source, copy.bytes);
  const auto address = reinterpret_cast<uintptr_t>(copy.source);
  if (!copy.is_operand || launch_->memory->is_written(address, copy.bytes)) return;
  for (uint32_t byte = 0; byte < copy.bytes; ++byte) {
    if (launch_->memory->is_written(address + byte, 1)) continue;
    to[byte] = std::byte{0xff};
    shared_.mark_uninitialised(copy.offset + byte, 1);
  }
}

void Cta::wait_async_copies(int32_t pending_groups) {
  copies_.complete(thread(), pending_groups, [this](const AsyncCopy& copy) {
    if (!copy.has_landed) land(copy);
    shared_.end_copy(copy.offset, copy.bytes, actor().stamp);
  });
}

}  // namespace moejit::runtime
