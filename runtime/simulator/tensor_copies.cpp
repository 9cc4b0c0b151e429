// SPDX-License-Identifier: Apache-2.0
#include "runtime/simulator/cta.h"
#include "runtime/simulator/site_format.h"

#include <algorithm>
#include <cstring>
#include <fmt/core.h>

namespace moejit::runtime {

// Starts tensor copies: everything that can be wrong with them is found now, in the order of the
// program. Their bytes move later (tensor_landing.cpp), in pieces and in any order.

SimTensorMap Cta::tensor_map_at(const void* map, int32_t rank, sim::Site site) {
  const auto* bytes = static_cast<const std::byte*>(map);
  const std::span<const std::byte> params = launch_->params;
  SimTensorMap decoded{{.magic = 0}};
  const bool is_inside =
      !std::less<>()(bytes, params.data()) &&
      !std::less<>()(params.data() + params.size(), bytes + sizeof(device::TensorMap));
  if (!is_inside || reinterpret_cast<uintptr_t>(map) % alignof(device::TensorMap) != 0) {
    report(site, "uses a tensor map that is not in the kernel's parameter record");
  }
  std::memcpy(&decoded, bytes, sizeof(decoded));
  if (decoded.magic != SimTensorMap::kMagic) {
    report(site, "uses a tensor map that encode_tensor_map has not made");
  }
  if (rank != 0 && rank != decoded.rank) {
    report(site,
           fmt::format("gives {} coordinates to a tensor map of rank {}", rank, decoded.rank));
  }
  return decoded;
}

TensorCopy Cta::make_copy(const void* map, const int32_t* at, int32_t rank, uint32_t address,
                          const char* verb, sim::Site site) {
  const SimTensorMap decoded = tensor_map_at(map, rank, site);
  TensorCopy copy = place_copy(decoded, address, decoded.is_swizzled != 0 ? 1024 : 128, verb, site);
  std::copy_n(at, rank, copy.at.begin());
  return copy;
}

// Returns a copy of the map's first box whose place in shared memory is checked.
TensorCopy Cta::place_copy(const SimTensorMap& map, uint32_t address, uint32_t alignment,
                           const char* verb, sim::Site site) {
  TensorCopy copy{.map = map, .thread = thread(), .site = site};
  const auto bytes = static_cast<uint32_t>(copy.map.bytes());
  copy.offset = address - sim::kSharedBase;
  const uint32_t limit = launch_->shared_bytes;
  if (address < sim::kSharedBase || copy.offset > limit || limit - copy.offset < bytes) {
    report(site, fmt::format("{} a box of {} bytes at offset {} of shared memory, of which the "
                             "launch has {} bytes",
                             verb, bytes, static_cast<int64_t>(address) - sim::kSharedBase, limit));
  }
  if (address % alignment != 0) {
    report(site, fmt::format("{} a box{} at offset {} of shared memory, wanted a multiple of {}",
                             verb, copy.map.is_swizzled != 0 ? " with the 128-byte swizzle" : "",
                             copy.offset, alignment));
  }
  copy.offset += shared_begin(cta_of(thread()));
  return copy;
}

void Cta::check_source(const TensorCopy& copy) {
  for (int32_t row = 0; row < copy.map.rows(); ++row) {
    const BoxRow source = row_of_box(copy.map, copy.at, row);
    const auto bytes = static_cast<uint32_t>(source.end - source.begin);
    if (bytes > 0) check_source(source.source, bytes, copy.site);
  }
}

// Checks global memory that a copy reads, which may have bytes that nothing has written.
void Cta::check_source(uintptr_t address, uint32_t bytes, sim::Site site) {
  if (rank_ != nullptr && is_symmetric(address)) check_symmetric_copy(address, bytes, site);
  check_kernel_before(address, bytes, sim::Access::kRead, site);
  if (launch_->memory->may_copy_from(address, bytes, global_actor())) return;
  report(site, launch_->memory->explain(address, bytes, sim::Access::kRead, global_actor()));
}

// Bytes that follow each other are the rows of a box, of 16 bytes each.
void Cta::load_bulk(uint32_t destination, const void* source, uint32_t bytes, uint32_t barrier,
                    sim::Site site) {
  const auto address = reinterpret_cast<uintptr_t>(source);
  const auto rows = static_cast<int32_t>(bytes / 16);
  if (address % 16 != 0 || bytes % 16 != 0 || bytes == 0) {
    report(site, fmt::format("copies {} bytes from an address that is {} past a multiple of 16, "
                             "wanted multiples of 16",
                             bytes, address % 16));
  }
  const SimTensorMap line{{.address = address,
                           .dims = {16, rows, 1, 1},
                           .strides = {16, 0, 0},
                           .box = {16, rows, 1, 1}}};
  const TensorCopy copy = place_copy(line, destination, 16, "copies", site);
  check_source(copy);
  load_into(cta_of(thread()), copy, barrier, site);
}

void Cta::load_tensor(uint32_t destination, const void* map, uint32_t barrier, const int32_t* at,
                      int32_t rank, uint32_t ctas, sim::Site site) {
  TensorCopy copy = make_copy(map, at, rank, destination, "copies", site);
  check_source(copy);
  const int32_t own = cta_of(thread());
  if (ctas == 0) return load_into(own, copy, barrier, site);
  copy.offset -= shared_begin(own);
  for (int32_t cta = 0; ctas >> cta != 0; ++cta) {
    if ((ctas >> cta & 1u) == 0) continue;
    check_alive(cta, "copies to", site);
    TensorCopy to_cta = copy;
    to_cta.offset += shared_begin(cta);
    load_into(cta, to_cta, barrier, site);
  }
}

// Starts a load into a CTA whose place is known; it completes on the mbarrier at an address.
void Cta::load_into(int32_t cta, TensorCopy copy, uint32_t barrier_address, sim::Site site) {
  Mbarrier& barrier = mbarrier_at(barrier_address, cta, "copies to", site);
  if (!barrier.is_visible_to_copies) {
    report(site, fmt::format("starts a copy that completes on the mbarrier at offset {}, whose "
                             "initialization at {} no fence_mbarrier_init followed",
                             in_cta(barrier.offset), barrier.init_site));
  }
  const bool has_rows = copy.map.is_swizzled != 0 && copy.map.row_bytes() == 128;
  const Stamp done = Ordering::agent_stamp(barrier.agent, barrier.phase);
  for (uint32_t chunk = 0; chunk < copy.map.bytes() / SharedMemory::kChunk; ++chunk) {
    const Conflict conflict =
        shared_.write_async(copy.offset + chunk * SharedMemory::kChunk, actor(), done, site,
                            has_rows ? Arrangement::kSwizzledRows : Arrangement::kOther);
    if (conflict != Conflict::kNone) {
      report(site, describe(conflict, "overwrites", SharedMemory::kChunk));
    }
  }
  copy.barrier = mbarriers_.index_of(barrier);
  barrier.bytes_under_way += copy.map.bytes();
  barrier.last_copy = {copy.thread, site};
  barrier.copied_phases = barrier.phase + 1;
  start_pieces(copy);
}

void Cta::prefetch_tensor(const void* map, int32_t rank, sim::Site site) {
  tensor_map_at(map, rank, site);
}

TensorStores& Cta::stores_of_thread() {
  if (TensorStores* own = tensor_copies_.find(thread())) return *own;
  tensor_copies_.stores.push_back(
      {.thread = thread(), .agent = add_agent(Agent::Kind::kStores, thread())});
  return tensor_copies_.stores.back();
}

void Cta::store_tensor(const void* map, uint32_t source, const int32_t* at, int32_t rank,
                       sim::TensorStoreKind kind, sim::Site site) {
  TensorCopy copy = make_copy(map, at, rank, source, "stores", site);
  copy.is_load = false;
  copy.store_kind = kind;
  if (kind == sim::TensorStoreKind::kAddF32 && copy.map.element_bytes != 4) {
    report(site, fmt::format("adds fp32 numbers through a tensor map of {}-byte elements",
                             copy.map.element_bytes));
  }
  TensorStores& own = stores_of_thread();
  copy.number = own.started++;
  own.not_waited.push_back({copy.number, own.committed, site});
  const Stamp done = Ordering::agent_stamp(own.agent, copy.number);
  for (int32_t row = 0; row < copy.map.rows(); ++row) {
    const BoxRow target = row_of_box(copy.map, copy.at, row);
    const auto bytes = static_cast<uint32_t>(target.end - target.begin);
    if (bytes > 0 && rank_ != nullptr && is_symmetric(target.source)) {
      report(site,
             "stores a box to memory of the group, which the simulator does not follow: "
             "copy rows of it with store_bulk");
    }
    if (bytes > 0) check_kernel_before(target.source, bytes, sim::Access::kWrite, site);
    if (bytes > 0 && !launch_->memory->is_writable(target.source, bytes)) {
      report(site,
             launch_->memory->explain(target.source, bytes, sim::Access::kWrite, global_actor()));
    }
    for (uint32_t chunk = 0; chunk < copy.map.row_bytes() / SharedMemory::kChunk; ++chunk) {
      const int64_t first = int64_t{chunk} * SharedMemory::kChunk;
      const bool is_inside = first < target.end && first + SharedMemory::kChunk > target.begin;
      const Conflict conflict = shared_.read_async(copy.chunk_offset(row, chunk), actor(), done,
                                                   site, Arrangement::kAny, is_inside);
      if (conflict != Conflict::kNone) {
        report(site, describe(conflict, "stores", SharedMemory::kChunk));
      }
    }
  }
  start_pieces(copy);
}

void Cta::start_pieces(const TensorCopy& copy) {
  const int32_t rows = copy.map.rows();
  const int32_t pieces = 1 + static_cast<int32_t>(fibers_.random().below(4));
  const int32_t step = (rows + pieces - 1) / pieces;
  for (int32_t row = 0; row < rows; row += step) {
    tensor_copies_.pieces.push_back({copy, row, std::min(row + step, rows)});
  }
}

void Cta::commit_tensor_stores() {
  if (TensorStores* own = tensor_copies_.find(thread())) ++own->committed;
}

void Cta::wait_tensor_stores(int32_t pending_groups) {
  TensorStores* own = tensor_copies_.find(thread());
  if (own == nullptr) return;
  const auto is_covered = [&](const TensorStores::Store& store) {
    return store.group < own->committed - pending_groups;
  };
  const auto first_pending = std::ranges::find_if_not(own->not_waited, is_covered);
  const uint32_t before =
      first_pending == own->not_waited.end() ? own->started : first_pending->number;
  land_stores(thread(), before);
  own->not_waited.erase(own->not_waited.begin(), first_pending);
  order_.learn(thread(), own->agent, before);
}

}  // namespace moejit::runtime
