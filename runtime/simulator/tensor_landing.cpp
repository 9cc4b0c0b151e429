// SPDX-License-Identifier: Apache-2.0
#include "runtime/simulator/cta.h"
#include "runtime/simulator/group/ranks_state.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <fmt/core.h>

namespace moejit::runtime {

// Moves the bytes of tensor copies, at the times that the simulator chose.

namespace {

// Adds the `bytes` bytes of fp32 numbers in memory to `sums`.
void add_f32(const void* memory, std::byte* sums, std::size_t bytes) {
  for (std::size_t at = 0; at < bytes; at += sizeof(float)) {
    float old = 0.0f;
    float sum = 0.0f;
    std::memcpy(&old, static_cast<const std::byte*>(memory) + at, sizeof(float));
    std::memcpy(&sum, sums + at, sizeof(float));
    sum += old;
    std::memcpy(sums + at, &sum, sizeof(float));
  }
}

}  // namespace

void Cta::land(const CopyPiece& piece) {
  const TensorCopy& copy = piece.copy;
  for (int32_t row = piece.first_row; row < piece.end_row; ++row) {
    if (copy.is_load) {
      land_row_of_load(copy, row);
    } else {
      land_row_of_store(copy, row);
    }
  }
  if (!copy.is_load) return;
  Mbarrier& barrier = mbarriers_[copy.barrier];
  const int64_t bytes = (piece.end_row - piece.first_row) * copy.map.row_bytes();
  barrier.bytes -= bytes;
  barrier.bytes_under_way -= bytes;
  complete_if_done(barrier);
}

// Lands a row of a load. Elements outside of the tensor are zeros. Bytes that nothing has written
// become NaN.
void Cta::land_row_of_load(const TensorCopy& copy, int32_t row) {
  constexpr int64_t kChunk = SharedMemory::kChunk;
  const BoxRow source = row_of_box(copy.map, copy.at, row);
  const auto* from = reinterpret_cast<const std::byte*>(source.source);
  const bool is_written =
      launch_->memory->is_written(source.source, static_cast<uint64_t>(source.end - source.begin));
  for (int64_t first = 0; first < copy.map.row_bytes(); first += kChunk) {
    const uint32_t offset = copy.chunk_offset(row, static_cast<uint32_t>(first / kChunk));
    std::byte* to = shared_.at(offset);
    const int64_t begin = std::max(source.begin, first);
    const int64_t end = std::min(source.end, first + kChunk);
    if (begin > first || end < first + kChunk) std::memset(to, 0, kChunk);
    if (begin >= end) continue;
    std::memcpy(to + (begin - first), from + (begin - source.begin),
                static_cast<std::size_t>(end - begin));
    for (int64_t byte = begin; !is_written && byte < end; ++byte) {
      const auto address = source.source + static_cast<uintptr_t>(byte - source.begin);
      if (launch_->memory->is_written(address, 1)) continue;
      to[byte - first] = std::byte{0xff};
      shared_.mark_uninitialised(offset + static_cast<uint32_t>(byte - first), 1);
    }
  }
}

void Cta::land_row_of_store(const TensorCopy& copy, int32_t row) {
  if (copy.is_bulk) return take_bulk_row(copy, row);
  constexpr int64_t kChunk = SharedMemory::kChunk;
  std::array<std::byte, 256 * 8> bytes;  // the longest row
  for (int64_t first = 0; first < copy.map.row_bytes(); first += kChunk) {
    const uint32_t offset = copy.chunk_offset(row, static_cast<uint32_t>(first / kChunk));
    std::memcpy(bytes.data() + first, shared_.at(offset), kChunk);
  }
  const BoxRow target = row_of_box(copy.map, copy.at, row);
  const GlobalActor writer{first_cta_, order_.actor(copy.thread)};
  uint32_t size = 0;
  for (int64_t at = target.begin; at < target.end; at += size) {
    // Each access is the largest aligned one, up to 16 bytes.
    const uintptr_t address = target.source + static_cast<uintptr_t>(at - target.begin);
    const auto rest = static_cast<uint64_t>(target.end - at);
    size = static_cast<uint32_t>(
        std::min<uint64_t>({16, std::bit_floor(rest), address & ~(address - 1)}));
    const auto check = [&](sim::Access access) {
      if (launch_->memory->access(address, size, access, writer)) return;
      std::string what = launch_->memory->explain(address, size, access, writer);
      report_of(copy.thread, copy.site, what);
    };
    auto* to = reinterpret_cast<void*>(address);
    if (copy.store_kind == sim::TensorStoreKind::kAddF32) {
      check(sim::Access::kRead);
      add_f32(to, bytes.data() + at, size);
    }
    check(sim::Access::kWrite);
    std::memcpy(to, bytes.data() + at, size);
  }
}

// Lands the stores of a thread with lower numbers than `before`.
void Cta::land_stores(int32_t thread, uint32_t before) {
  std::vector<CopyPiece>& pieces = tensor_copies_.pieces;
  for (std::size_t i = 0; i < pieces.size();) {
    const TensorCopy& copy = pieces[i].copy;
    if (copy.is_load || copy.thread != thread || copy.number >= before) {
      ++i;
      continue;
    }
    std::swap(pieces[i], pieces.back());
    const CopyPiece piece = pieces.back();
    pieces.pop_back();
    land(piece);
  }
}

// Bulk stores are tensor stores of a box whose rows are 16 bytes each; only their end differs. What
// they read stays on its way to global memory until their thread waits for more than the reading.

void Cta::store_bulk(void* destination, uint32_t source, uint32_t bytes, sim::Site site) {
  const auto address = reinterpret_cast<uintptr_t>(destination);
  const auto rows = static_cast<int32_t>(bytes / 16);
  if (address % 16 != 0 || bytes % 16 != 0 || bytes == 0) {
    report(site, fmt::format("copies {} bytes to an address that is {} past a multiple of 16, "
                             "wanted multiples of 16",
                             bytes, address % 16));
  }
  check_kernel_before(address, bytes, sim::Access::kWrite, site);
  if (!launch_->memory->is_writable(address, bytes)) {
    report(site, launch_->memory->explain(address, bytes, sim::Access::kWrite, global_actor()));
  }
  const SimTensorMap line{{.address = address,
                           .dims = {16, rows, 1, 1},
                           .strides = {16, 0, 0},
                           .box = {16, rows, 1, 1}}};
  TensorCopy copy = place_copy(line, source, 16, "copies", site);
  TensorStores& own = stores_of_thread();
  copy.is_load = false;
  copy.is_bulk = true;
  copy.number = own.started++;
  copy.group = own.committed;
  own.not_waited.push_back({copy.number, own.committed, site});
  const Stamp done = Ordering::agent_stamp(own.agent, copy.number);
  for (int32_t row = 0; row < rows; ++row) {
    const Conflict conflict =
        shared_.read_async(copy.chunk_offset(row, 0), actor(), done, site, Arrangement::kAny, true);
    if (conflict != Conflict::kNone) {
      report(site, describe(conflict, "copies", SharedMemory::kChunk));
    }
  }
  start_pieces(copy);
}

// Reads a row of shared memory.
void Cta::take_bulk_row(const TensorCopy& copy, int32_t row) {
  BulkRow taken{.address = row_of_box(copy.map, copy.at, row).source,
                .thread = copy.thread,
                .group = copy.group,
                .site = copy.site};
  std::memcpy(taken.bytes.data(), shared_.at(copy.chunk_offset(row, 0)), taken.bytes.size());
  tensor_copies_.bulk_rows.push_back(taken);
}

// Writes a row to global memory, as if its thread wrote it now. Returns what is wrong with the
// write.
std::optional<std::string> Cta::land_bulk_row(const BulkRow& row) {
  if (rank_ != nullptr && is_symmetric(row.address)) return land_symmetric_row(row);
  const GlobalActor writer{first_cta_, order_.actor(row.thread)};
  constexpr uint32_t kBytes = 16;
  if (!launch_->memory->access(row.address, kBytes, sim::Access::kWrite, writer)) {
    return launch_->memory->explain(row.address, kBytes, sim::Access::kWrite, writer);
  }
  std::memcpy(reinterpret_cast<void*>(row.address), row.bytes.data(), kBytes);
  return std::nullopt;
}

// Lands the stores of this thread except for its last groups; the stores have been read.
void Cta::land_bulk_stores(int32_t pending_groups) {
  std::vector<BulkRow>& rows = tensor_copies_.bulk_rows;
  const TensorStores* const own = tensor_copies_.find(thread());
  if (rows.empty() || own == nullptr) return;  // this thread has started none
  const int64_t before = own->committed - pending_groups;
  for (std::size_t i = 0; i < rows.size();) {
    if (rows[i].thread != thread() || rows[i].group >= before) {
      ++i;
      continue;
    }
    const BulkRow row = rows[i];
    rows[i] = rows.back();
    rows.pop_back();
    if (std::optional<std::string> trouble = land_bulk_row(row))
      report_of(thread(), row.site, *trouble);
  }
}

// Lands what nobody has waited for, at the end of the CTA.
std::optional<std::string> Cta::land_all_bulk_rows() {
  for (const BulkRow& row : tensor_copies_.bulk_rows) {
    if (std::optional<std::string> trouble = land_bulk_row(row)) {
      return sentence(row.thread, row.site, *trouble);
    }
  }
  return std::nullopt;
}

}  // namespace moejit::runtime
