// SPDX-License-Identifier: Apache-2.0
#include "runtime/simulator/shared_memory.h"

namespace moejit::runtime {

void SharedMemory::reset(uint32_t bytes) {
  const std::size_t chunks = (static_cast<std::size_t>(bytes) + kChunk - 1) / kChunk;
  if (chunks > capacity_) {
    data_.reset(new std::byte[chunks * kChunk]);
    cells_.resize(chunks * kChunk);
    capacity_ = chunks;
  }
  bytes_ = bytes;
  chunks_.assign(chunks, Chunk{});
}

Conflict SharedMemory::conflict(Conflict kind, Stamp stamp, sim::Site site) {
  other_.thread = thread_of(stamp);
  other_.site = site;
  return kind;
}

Conflict SharedMemory::read_cell(Cell& cell, Stamp now, sim::Site site, const Ordering& order) {
  if (cell.written == 0) return Conflict::kUninitialised;
  if (cell.is_pending) return conflict(Conflict::kPendingCopy, cell.written, cell.write_site);
  if (!order.ordered(cell.written, now)) {
    return conflict(Conflict::kUnorderedWrite, cell.written, cell.write_site);
  }
  // A reader that is ordered before this one need not be kept: what is ordered after this one is
  // ordered after both.
  if (cell.read[0] == 0 || order.ordered(cell.read[0], now)) {
    cell.read[0] = now;
    cell.read_site[0] = site;
    return Conflict::kNone;
  }
  const bool same_warp_pair = thread_of(cell.read[0]) / 32 == thread_of(cell.read[1]) / 32;
  if (cell.read[1] == 0 || order.ordered(cell.read[1], now) || same_warp_pair) {
    cell.read[1] = now;
    cell.read_site[1] = site;
  }
  return Conflict::kNone;
}

Conflict SharedMemory::write_cell(Cell& cell, Stamp now, sim::Site site, bool is_atomic,
                                  const Ordering& order) {
  if (is_atomic && cell.written == 0) return Conflict::kUninitialised;
  if (cell.is_pending) return conflict(Conflict::kPendingCopy, cell.written, cell.write_site);
  const bool both_atomic = is_atomic && cell.is_atomic;
  if (cell.written != 0 && !both_atomic && !order.ordered(cell.written, now)) {
    return conflict(Conflict::kUnorderedWrite, cell.written, cell.write_site);
  }
  for (int i = 0; i < 2; ++i) {
    if (cell.read[i] != 0 && !order.ordered(cell.read[i], now)) {
      return conflict(Conflict::kUnorderedRead, cell.read[i], cell.read_site[i]);
    }
  }
  cell = Cell{.written = now, .is_atomic = is_atomic, .write_site = site};
  return Conflict::kNone;
}

SharedMemory::Cell* SharedMemory::split(uint32_t chunk_index) {
  Chunk& chunk = chunks_[chunk_index];
  Cell* cells = &cells_[static_cast<std::size_t>(chunk_index) * kChunk];
  if (!chunk.is_split) {
    for (uint32_t i = 0; i < kChunk; ++i) cells[i] = chunk.whole;
    chunk.is_split = true;
  }
  return cells;
}

Conflict SharedMemory::read(uint32_t offset, uint32_t size, Stamp now, sim::Site site,
                            const Ordering& order) {
  const uint32_t index = offset / kChunk;
  Chunk& chunk = chunks_[index];
  other_.offset = offset;
  if (!chunk.is_split && size == kChunk) return read_cell(chunk.whole, now, site, order);
  Cell* cells = split(index) + offset % kChunk;
  for (uint32_t i = 0; i < size; ++i) {
    other_.offset = offset + i;
    const Conflict found = read_cell(cells[i], now, site, order);
    if (found != Conflict::kNone) return found;
  }
  return Conflict::kNone;
}

Conflict SharedMemory::write(uint32_t offset, uint32_t size, Stamp now, sim::Site site,
                             bool is_atomic, const Ordering& order) {
  const uint32_t index = offset / kChunk;
  Chunk& chunk = chunks_[index];
  other_.offset = offset;
  if (!chunk.is_split && size == kChunk) {
    return write_cell(chunk.whole, now, site, is_atomic, order);
  }
  Cell* cells = split(index) + offset % kChunk;
  for (uint32_t i = 0; i < size; ++i) {
    other_.offset = offset + i;
    const Conflict found = write_cell(cells[i], now, site, is_atomic, order);
    if (found != Conflict::kNone) return found;
  }
  if (size == kChunk) {
    chunk.whole = cells[0];
    chunk.is_split = false;
  }
  return Conflict::kNone;
}

Conflict SharedMemory::begin_copy(uint32_t offset, uint32_t size, Stamp now, sim::Site site,
                                  const Ordering& order) {
  const Conflict found = write(offset, size, now, site, false, order);
  if (found == Conflict::kNone) {
    for_cells(offset, size, [](Cell& cell) { cell.is_pending = true; });
  }
  return found;
}

void SharedMemory::end_copy(uint32_t offset, uint32_t size, Stamp now) {
  for_cells(offset, size, [now](Cell& cell) {
    cell.is_pending = false;
    cell.written = now;
  });
}

}  // namespace moejit::runtime
