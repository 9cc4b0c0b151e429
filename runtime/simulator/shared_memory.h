// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/simulator/ordering.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace moejit::runtime {

// What is wrong with an access, and who else took part.
enum class Conflict {
  kNone,
  kUninitialised,   // nothing has written these bytes
  kUnorderedWrite,  // another thread wrote them, with no barrier since
  kUnorderedRead,   // another thread read them, with no barrier before this write
  kPendingCopy,     // an asynchronous copy into them is not complete
};
struct OtherAccess {
  int32_t thread = 0;
  sim::Site site{};
  uint32_t offset = 0;  // of the byte in question
};

// The dynamic shared memory of a CTA, with a record of who wrote and read each byte. Most accesses
// move 16 aligned bytes, so the record is per 16 bytes until a smaller access splits it.
class SharedMemory {
 public:
  // Forgets everything; the contents are undefined.
  void reset(uint32_t bytes);
  uint32_t bytes() const { return bytes_; }
  std::byte* at(uint32_t offset) { return data_.get() + offset; }

  // `offset` is aligned to `size`, a power of two up to 16, and inside.
  Conflict read(uint32_t offset, uint32_t size, Stamp now, sim::Site site, const Ordering& order);
  Conflict write(uint32_t offset, uint32_t size, Stamp now, sim::Site site, bool is_atomic,
                 const Ordering& order);
  // An asynchronous copy: nobody may touch its bytes between begin and end.
  Conflict begin_copy(uint32_t offset, uint32_t size, Stamp now, sim::Site site,
                      const Ordering& order);
  void end_copy(uint32_t offset, uint32_t size, Stamp now);

  const OtherAccess& other() const { return other_; }

 private:
  static constexpr uint32_t kChunk = 16;

  struct Cell {
    Stamp written = 0;
    bool is_atomic = false;
    bool is_pending = false;  // an asynchronous copy that `written` started has not completed
    // Two of the threads that read since; of different warps where such were seen. More than two
    // unordered readers are not kept, so a race with the third alone can be missed.
    Stamp read[2] = {0, 0};
    sim::Site write_site{};
    sim::Site read_site[2]{};
  };
  struct Chunk {
    Cell whole;  // where not split
    bool is_split = false;
  };

  Conflict read_cell(Cell& cell, Stamp now, sim::Site site, const Ordering& order);
  Conflict write_cell(Cell& cell, Stamp now, sim::Site site, bool is_atomic, const Ordering& order);
  Conflict conflict(Conflict kind, Stamp stamp, sim::Site site);
  Cell* split(uint32_t chunk_index);

  template <typename Change>
  void for_cells(uint32_t offset, uint32_t size, Change change) {
    Chunk& chunk = chunks_[offset / kChunk];
    if (!chunk.is_split) return change(chunk.whole);
    for (uint32_t i = 0; i < size; ++i) change(cells_[offset + i]);
  }

  uint32_t bytes_ = 0;
  std::size_t capacity_ = 0;
  std::unique_ptr<std::byte[]> data_;
  std::vector<Chunk> chunks_;
  std::vector<Cell> cells_;  // of the bytes of split chunks
  OtherAccess other_;
};

}  // namespace moejit::runtime
