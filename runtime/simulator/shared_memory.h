// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/simulator/ordering.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace moejit::runtime {

// The kinds of errors of an access.
enum class Conflict {
  kNone,
  kUninitialised,   // nothing has written these bytes, or a copy of such bytes
  kUnorderedWrite,  // somebody else wrote them, and nothing orders the two
  kUnorderedRead,   // somebody else read them, and nothing orders the two
  kPendingCopy,     // an asynchronous copy into them is not complete
  kMbarrier,        // they are an mbarrier
  kNotFenced,       // written by ordinary stores without a fence for the async proxy
  kNotSwizzled,     // copied in another arrangement than the reader expects
};
// The other access that takes part in a conflict.
struct OtherAccess {
  Stamp stamp = 0;
  sim::Site site{};
  uint32_t offset = 0;  // of the byte in question
};

// The arrangement of bytes that the async proxy wrote in their 1024 bytes. Ordinary stores can
// build any arrangement and count as right.
enum class Arrangement : uint8_t {
  kAny,
  kSwizzledRows,  // rows of 128 bytes with the 128-byte swizzle
  kOther,
};

// The dynamic shared memory of a CTA, with a record of who wrote and read each byte. Most accesses
// move 16 aligned bytes, so the record is per 16 bytes until a smaller access splits it. It is
// split into words, or by an access smaller than a word into bytes.
class SharedMemory {
 public:
  static constexpr uint32_t kChunk = 16;

  // Forgets everything; the contents are NaN in every format.
  void reset(uint32_t bytes);
  uint32_t bytes() const { return bytes_; }
  std::byte* at(uint32_t offset) { return data_.get() + offset; }
  const OtherAccess& other() const { return other_; }

  // Record accesses of threads. `offset` is aligned to `size`, a power of two up to 16, and inside.
  Conflict read(uint32_t offset, uint32_t size, const Actor& now, sim::Site site);
  // Reads what may never have been written.
  Conflict read_operand(uint32_t offset, uint32_t size, const Actor& now, sim::Site site);
  Conflict write(uint32_t offset, uint32_t size, const Actor& now, sim::Site site, bool is_atomic);
  // Begin and end an asynchronous copy of a thread. Nobody may touch its bytes in between.
  Conflict begin_copy(uint32_t offset, uint32_t size, const Actor& now, sim::Site site);
  void end_copy(uint32_t offset, uint32_t size, Stamp now);

  // Record accesses of the async proxy to a whole chunk, started by `now` and done by the agent of
  // `done`. Bytes that nothing wrote are the reader's error only if `wants_values`.
  Conflict read_async(uint32_t offset, const Actor& now, Stamp done, sim::Site site,
                      Arrangement wanted, bool wants_values);
  Conflict write_async(uint32_t offset, const Actor& now, Stamp done, sim::Site site,
                       Arrangement arrangement);
  // Marks bytes that were copied from bytes which nothing had written.
  void mark_uninitialised(uint32_t offset, uint32_t size);

  // Makes 8 aligned bytes an mbarrier, which only its own instructions may touch.
  void make_mbarrier(uint32_t offset);

 private:
  static constexpr std::size_t kReaders = 3;
  static constexpr uint32_t kWord = 4;

  // All zeros are bytes that nothing has touched.
  struct Cell {
    Stamp written;
    // Some readers since the write, of different warps or agents if there were such. Only this many
    // unordered readers are kept, so a race with another reader alone can be missed.
    Stamp read[kReaders];
    sim::Site write_site;
    sim::Site read_site[kReaders];  // of those in `read` that are not 0
    bool is_atomic;
    bool is_pending;  // whether an asynchronous copy that `written` started is not complete
    bool is_mbarrier;
    bool is_uninitialised;  // whether bytes without values were written
    Arrangement arrangement;
  };
  struct Chunk {
    Cell whole{};                  // used if it is the only one
    uint32_t cell_bytes = kChunk;  // or kWord or 1: what each of its cells records
  };

  Conflict find_foul(const Cell& cell, const Actor& now);
  Conflict read_cell(Cell& cell, const Actor& now, sim::Site site);
  Conflict check_write(const Cell& cell, const Actor& now, bool is_atomic);
  Conflict write_cell(Cell& cell, const Actor& now, sim::Site site, bool is_atomic);
  Conflict read_cell_async(Cell& cell, const Actor& now, Stamp done, sim::Site site,
                           Arrangement wanted, bool wants_values);
  Conflict write_cell_async(Cell& cell, const Actor& now);
  static void add_reader(Cell& cell, const Clock& clock, Stamp reader, sim::Site site);
  Conflict conflict(Conflict kind, Stamp stamp, sim::Site site);
  void split(uint32_t chunk_index, uint32_t cell_bytes);
  // Returns the first of a chunk's cells if each records so many bytes.
  Cell* cells_of(std::size_t chunk_index, uint32_t cell_bytes);

  // Calls access(cell) for the cells of these bytes until it returns a conflict.
  template <typename Access>
  Conflict for_cells(uint32_t offset, uint32_t size, Access access);

  uint32_t bytes_ = 0;
  std::size_t capacity_ = 0;
  std::unique_ptr<std::byte[]> data_;
  std::vector<Chunk> chunks_;
  // The cells of split chunks. Splitting sets them; until then they are only address space.
  std::unique_ptr<Cell[]> words_;
  std::unique_ptr<Cell[]> single_bytes_;
  OtherAccess other_;
  Stamp ordered_ = 0;  // a write that is known to be before the current access, or 0
};

}  // namespace moejit::runtime
