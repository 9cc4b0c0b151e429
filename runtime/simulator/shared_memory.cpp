// SPDX-License-Identifier: Apache-2.0
#include "runtime/simulator/shared_memory.h"

#include <cstring>

namespace moejit::runtime {

void SharedMemory::reset(uint32_t bytes) {
  const std::size_t chunks = (static_cast<std::size_t>(bytes) + kChunk - 1) / kChunk;
  if (chunks > capacity_) {
    data_.reset(new std::byte[chunks * kChunk]);
    words_ = std::make_unique_for_overwrite<Cell[]>(chunks * (kChunk / kWord));
    single_bytes_ = std::make_unique_for_overwrite<Cell[]>(chunks * kChunk);
    capacity_ = chunks;
  }
  bytes_ = bytes;
  chunks_.assign(chunks, Chunk{});
  std::memset(data_.get(), 0xff, chunks * kChunk);
}

Conflict SharedMemory::conflict(Conflict kind, Stamp stamp, sim::Site site) {
  other_.stamp = stamp;
  other_.site = site;
  return kind;
}

SharedMemory::Cell* SharedMemory::cells_of(std::size_t chunk_index, uint32_t cell_bytes) {
  if (cell_bytes == kChunk) return &chunks_[chunk_index].whole;
  return cell_bytes == kWord ? &words_[chunk_index * (kChunk / kWord)]
                             : &single_bytes_[chunk_index * kChunk];
}

// Splits a chunk into cells of a word or a byte, fewer bytes than now.
void SharedMemory::split(uint32_t chunk_index, uint32_t cell_bytes) {
  Chunk& chunk = chunks_[chunk_index];
  const Cell* from = cells_of(chunk_index, chunk.cell_bytes);
  Cell* to = cells_of(chunk_index, cell_bytes);
  for (uint32_t first = 0; first < kChunk; first += cell_bytes)
    to[first / cell_bytes] = from[first / chunk.cell_bytes];
  chunk.cell_bytes = cell_bytes;
}

template <typename Access>
Conflict SharedMemory::for_cells(uint32_t offset, uint32_t size, Access access) {
  const uint32_t index = offset / kChunk;
  other_.offset = offset;
  ordered_ = 0;
  Chunk& chunk = chunks_[index];
  if (chunk.cell_bytes > size) split(index, size < kWord ? 1 : kWord);
  if (chunk.cell_bytes == kChunk) return access(chunk.whole);
  Cell* cells = cells_of(index, chunk.cell_bytes) + offset % kChunk / chunk.cell_bytes;
  for (uint32_t i = 0; i < size; i += chunk.cell_bytes) {
    other_.offset = offset + i;
    const Conflict found = access(*cells++);
    if (found != Conflict::kNone) return found;
  }
  return Conflict::kNone;
}

// Returns the conflict of a cell that no access may touch.
Conflict SharedMemory::find_foul(const Cell& cell, const Actor& now) {
  if (cell.is_mbarrier) return conflict(Conflict::kMbarrier, cell.written, cell.write_site);
  if (cell.is_pending) return conflict(Conflict::kPendingCopy, cell.written, cell.write_site);
  if (cell.written != ordered_ && cell.written != 0) {
    if (!now.is_after(cell.written)) {
      return conflict(Conflict::kUnorderedWrite, cell.written, cell.write_site);
    }
    ordered_ = cell.written;
  }
  return Conflict::kNone;
}

void SharedMemory::add_reader(Cell& cell, const Clock& clock, Stamp reader, sim::Site site) {
  // A reader that is ordered before this one need not be kept: what is ordered after this one is
  // ordered after both. Otherwise a reader of the same warp makes room.
  const auto group = [](Stamp stamp) {
    const int32_t actor = actor_of(stamp);
    return actor < kFirstAgent ? actor / sim::kWarpLanes : actor;
  };
  const auto is_replaceable = [&](Stamp other) {
    return other == 0 || same_actor(other, reader) || clock.covers(other);
  };
  const auto is_of_group = [&](Stamp other) { return group(other) == group(reader); };
  std::size_t place = 0;
  while (place < kReaders && !is_replaceable(cell.read[place])) ++place;
  if (place == kReaders) {
    place = 0;
    while (place < kReaders - 1 && !is_of_group(cell.read[place])) ++place;
  }
  cell.read[place] = reader;
  cell.read_site[place] = site;
}

Conflict SharedMemory::read_cell(Cell& cell, const Actor& now, sim::Site site) {
  if (cell.written == 0) return Conflict::kUninitialised;
  const Conflict found = find_foul(cell, now);
  if (found != Conflict::kNone) return found;
  if (cell.is_uninitialised) return Conflict::kUninitialised;
  add_reader(cell, *now.clock, now.stamp, site);
  return Conflict::kNone;
}

Conflict SharedMemory::check_write(const Cell& cell, const Actor& now, bool is_atomic) {
  const bool both_atomic = is_atomic && cell.is_atomic;
  if (!both_atomic) {
    const Conflict found = find_foul(cell, now);
    if (found != Conflict::kNone) return found;
  }
  for (std::size_t i = 0; i < kReaders; ++i) {
    if (cell.read[i] != 0 && !now.is_after(cell.read[i])) {
      return conflict(Conflict::kUnorderedRead, cell.read[i], cell.read_site[i]);
    }
  }
  return Conflict::kNone;
}

Conflict SharedMemory::write_cell(Cell& cell, const Actor& now, sim::Site site, bool is_atomic) {
  if (is_atomic && (cell.written == 0 || cell.is_uninitialised)) return Conflict::kUninitialised;
  const Conflict found = check_write(cell, now, is_atomic);
  if (found == Conflict::kNone) {
    cell = Cell{.written = now.stamp, .write_site = site, .is_atomic = is_atomic};
  }
  return found;
}

Conflict SharedMemory::read(uint32_t offset, uint32_t size, const Actor& now, sim::Site site) {
  return for_cells(offset, size, [&](Cell& cell) { return read_cell(cell, now, site); });
}

Conflict SharedMemory::read_operand(uint32_t offset, uint32_t size, const Actor& now,
                                    sim::Site site) {
  return for_cells(offset, size, [&](Cell& cell) {
    const Conflict found = find_foul(cell, now);
    if (found == Conflict::kNone) add_reader(cell, *now.clock, now.stamp, site);
    return found;
  });
}

Conflict SharedMemory::write(uint32_t offset, uint32_t size, const Actor& now, sim::Site site,
                             bool is_atomic) {
  const Conflict found =
      for_cells(offset, size, [&](Cell& cell) { return write_cell(cell, now, site, is_atomic); });
  Chunk& chunk = chunks_[offset / kChunk];
  if (found == Conflict::kNone && size == kChunk && chunk.cell_bytes < kChunk) {
    chunk.whole = *cells_of(offset / kChunk, chunk.cell_bytes);
    chunk.cell_bytes = kChunk;
  }
  return found;
}

Conflict SharedMemory::begin_copy(uint32_t offset, uint32_t size, const Actor& now,
                                  sim::Site site) {
  const Conflict found = write(offset, size, now, site, false);
  if (found != Conflict::kNone) return found;
  return for_cells(offset, size, [](Cell& cell) {
    cell.is_pending = true;
    return Conflict::kNone;
  });
}

void SharedMemory::end_copy(uint32_t offset, uint32_t size, Stamp now) {
  for_cells(offset, size, [now](Cell& cell) {
    cell.is_pending = false;
    cell.written = now;
    return Conflict::kNone;
  });
}

Conflict SharedMemory::read_cell_async(Cell& cell, const Actor& now, Stamp done, sim::Site site,
                                       Arrangement wanted, bool wants_values) {
  const Conflict found = find_foul(cell, now);
  if (found != Conflict::kNone) return found;
  if (wants_values && (cell.written == 0 || cell.is_uninitialised)) {
    return Conflict::kUninitialised;
  }
  if (cell.written != 0 && !now.clock->covers_fenced(cell.written)) {
    return conflict(Conflict::kNotFenced, cell.written, cell.write_site);
  }
  if (wanted != Arrangement::kAny && cell.arrangement != Arrangement::kAny &&
      cell.arrangement != wanted) {
    return conflict(Conflict::kNotSwizzled, cell.written, cell.write_site);
  }
  add_reader(cell, *now.clock, done, site);
  return Conflict::kNone;
}

Conflict SharedMemory::read_async(uint32_t offset, const Actor& now, Stamp done, sim::Site site,
                                  Arrangement wanted, bool wants_values) {
  return for_cells(offset, kChunk, [&](Cell& cell) {
    return read_cell_async(cell, now, done, site, wanted, wants_values);
  });
}

Conflict SharedMemory::write_cell_async(Cell& cell, const Actor& now) {
  const Conflict found = check_write(cell, now, false);
  if (found != Conflict::kNone) return found;
  if (cell.written != 0 && !now.clock->covers_fenced(cell.written)) {
    return conflict(Conflict::kNotFenced, cell.written, cell.write_site);
  }
  return Conflict::kNone;
}

Conflict SharedMemory::write_async(uint32_t offset, const Actor& now, Stamp done, sim::Site site,
                                   Arrangement arrangement) {
  const Conflict found =
      for_cells(offset, kChunk, [&](Cell& cell) { return write_cell_async(cell, now); });
  if (found != Conflict::kNone) return found;
  chunks_[offset / kChunk] =
      Chunk{.whole = Cell{.written = done, .write_site = site, .arrangement = arrangement}};
  return Conflict::kNone;
}

void SharedMemory::mark_uninitialised(uint32_t offset, uint32_t size) {
  for_cells(offset, size, [](Cell& cell) {
    cell.is_uninitialised = true;
    return Conflict::kNone;
  });
}

void SharedMemory::make_mbarrier(uint32_t offset) {
  for_cells(offset, 8, [](Cell& cell) {
    cell.is_mbarrier = true;
    return Conflict::kNone;
  });
}

}  // namespace moejit::runtime
