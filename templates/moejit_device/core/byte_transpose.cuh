// SPDX-License-Identifier: Apache-2.0
#pragma once

// Matrices of bytes from rows to columns: 4x4 bytes in registers, then 128x128 through shared
// memory, so that both sides of a transposition move whole 128-byte lines of global memory.

#include "moejit_device/ptx/bytes.cuh"
#include "moejit_device/ptx/memory.cuh"

namespace moejit::device {

// Transposes four rows of four bytes to four columns, lowest byte first.
MOEJIT_DEVICE void transpose_bytes(uint32_t (&word)[4]) {
  // Bytes 0 and 1, and bytes 2 and 3, of two rows each, interleaved.
  const uint32_t upper_left = ptx::permute_bytes<0x5140>(word[0], word[1]);
  const uint32_t upper_right = ptx::permute_bytes<0x7362>(word[0], word[1]);
  const uint32_t lower_left = ptx::permute_bytes<0x5140>(word[2], word[3]);
  const uint32_t lower_right = ptx::permute_bytes<0x7362>(word[2], word[3]);
  word[0] = ptx::permute_bytes<0x5410>(upper_left, lower_left);
  word[1] = ptx::permute_bytes<0x7632>(upper_left, lower_left);
  word[2] = ptx::permute_bytes<0x5410>(upper_right, lower_right);
  word[3] = ptx::permute_bytes<0x7632>(upper_right, lower_right);
}

// A tile of 128x128 bytes in shared memory, column after column: each is 128 bytes, in units of 16
// whose places are exchanged, unit u of column c for u xor (c / 16). Neither access meets a bank
// twice:
//   store_quad()  eight lanes hold the same rows of columns 16 apart, and four such eights follow
//                 each other by four rows. The columns begin in the same bank; what is exchanged
//                 takes them eight ways apart.
//   load_run()    eight lanes take the eight units of a column.
struct ByteTile {
  static constexpr int32_t kRows = 128;
  static constexpr int32_t kColumns = 128;
  static constexpr int32_t kBytes = kRows * kColumns;

  ptx::SharedPtr<uint32_t> words;

  // Stores rows 4 * quad to 4 * quad + 3 of a column, lowest byte first.
  MOEJIT_DEVICE void store_quad(int32_t column, int32_t quad, uint32_t bytes) const {
    ptx::store(words + (column * kColumnWords + (quad ^ (4 * exchange(column)))), bytes);
  }
  // Stores 16 columns, from `column` on, of the rows 4 * quad to 4 * quad + 3.
  MOEJIT_DEVICE void store_rows(int32_t column, int32_t quad, const Bytes16 (&row)[4]) const {
#pragma unroll
    for (int32_t w = 0; w < 4; ++w) {
      uint32_t word[4] = {row[0].word[w], row[1].word[w], row[2].word[w], row[3].word[w]};
      transpose_bytes(word);
#pragma unroll
      for (int32_t c = 0; c < 4; ++c) store_quad(column + 4 * w + c, quad, word[c]);
    }
  }
  // Loads rows 16 * run to 16 * run + 15 of a column.
  MOEJIT_DEVICE Bytes16 load_run(int32_t column, int32_t run) const {
    const auto units = ptx::as<Bytes16>(words);
    return ptx::load(units + (column * (kColumnWords / 4) + (run ^ exchange(column))));
  }

  // Loads one byte; lanes that follow each other down a column meet no bank twice.
  MOEJIT_DEVICE uint8_t load_byte(int32_t column, int32_t row) const {
    return ptx::load(ptx::as<uint8_t>(words) + (column * kRows + (row ^ (16 * exchange(column)))));
  }

 private:
  static constexpr int32_t kColumnWords = kRows / 4;

  MOEJIT_DEVICE static int32_t exchange(int32_t column) { return column / 16; }
};

}  // namespace moejit::device
