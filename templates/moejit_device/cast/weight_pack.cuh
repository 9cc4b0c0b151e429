// SPDX-License-Identifier: Apache-2.0
#pragma once

// MXFP4 weights of checkpoints to packed tiles (gemm/mxfp4_mainloop.cuh): codes change their
// places, and no value changes. A CTA makes a tile of 128 rows by 128 columns, a thread two groups
// of 32 codes in a row. Lanes 4r to 4r + 3 have the four groups of a row.
//
// An E2M1 value times 2^k is an e4m3 number for k from -8 to 6. With E the E8M0 scale of a group,
// over all groups of a tile that have another code than 0:
//
//   base = max(max E - 6, 1), or 127 if there is no such group
//   k = E - base, or 0 in groups of zeros
//   scale_inv = 2^(base - 127)
//
// If a k is below -8, or a scale NaN (255), no e4m3 codes have the tile's values. Then scale_inv is
// NaN, and status gets a bit.
//
// Emitted kernels look like this:
//
//   #include "moejit_device/cast/weight_pack.cuh"
//
//   using namespace moejit::device;
//
//   constexpr int32_t kSections = 2;
//   constexpr int32_t kSectionRows = 2880;
//   constexpr int32_t kColumns = 2880;
//   constexpr bool kInterleaved = true;
//
//   using Kernel = WeightPack<kSections, kSectionRows, kColumns, kInterleaved>;
//
//   MOEJIT_KERNEL(Kernel::kThreads, Kernel::kCtasPerSm, moejit_pack_..., WeightPackParams) {
//     Kernel::run(params);
//   }

#include "moejit_device/core/integer.cuh"
#include "moejit_device/params/packed_tile.h"
#include "moejit_device/params/status_bits.h"
#include "moejit_device/params/weight_pack_params.h"
#include "moejit_device/ptx/bytes.cuh"
#include "moejit_device/stage/max_of_cta.cuh"

namespace moejit::device {

// Returns bits 0, 4, 8 and 12 of `value` as bits 0, 8, 16 and 24.
MOEJIT_DEVICE uint32_t spread_nibbles(uint32_t value) {
  value &= 0x1111u;
  value = (value | value << 8) & 0x00110011u;
  return (value | value << 4) & 0x01010101u;
}

// Returns eight codes, the first one in the lowest four bits, as words of packed tiles have them.
MOEJIT_DEVICE uint32_t packed_word(uint32_t codes) {
  const uint32_t signs = codes >> 3;
  return (codes & 0x77777777u) | spread_nibbles(signs) << 7 | spread_nibbles(signs >> 16) << 3;
}

// Word i of lane l becomes word l of lane i, among four lanes.
MOEJIT_DEVICE void transpose_in_quad(uint32_t (&words)[4]) {
#pragma unroll
  for (int32_t mask = 2; mask > 0; mask /= 2) {
    const bool is_upper = (ptx::lane_index() & mask) != 0;
#pragma unroll
    for (int32_t i = 0; i < 4; ++i) {
      if ((i & mask) != 0) continue;
      const uint32_t got = ptx::shuffle_xor(is_upper ? words[i] : words[i | mask], mask);
      words[i] = is_upper ? got : words[i];
      words[i | mask] = is_upper ? words[i | mask] : got;
    }
  }
}

template <int32_t kSections, int32_t kSectionRows, int32_t kColumns, bool kInterleaved>
struct WeightPack {
  static_assert(kColumns % 32 == 0, "rows are whole groups");
  static_assert(kSections == 2 || !kInterleaved, "rows alternate between two sections");

  static constexpr int32_t kThreads = 256;
  static constexpr int32_t kWarps = kThreads / 32;
  static constexpr int32_t kCtasPerSm = 4;
  static constexpr int32_t kSharedBytes = 8 * kWarps;

  // A CTA for each tile.
  MOEJIT_DEVICE static void run(const WeightPackParams& params) {
    const int32_t row = 16 * ptx::warp_index() + ptx::lane_index() / 4;
    Group groups[2];  // of rows that are 8 apart
    float largest = -1.0f;
#pragma unroll
    for (int32_t i = 0; i < 2; ++i) {
      groups[i] = fetch(params, row + 8 * i);
      if (groups[i].counts) largest = ptx::max_number(largest, static_cast<float>(groups[i].scale));
    }
    const auto slots = ptx::shared<float>(0);
    largest = max_of_cta<kWarps>(slots, largest);
    const int32_t base =
        largest < 0.0f ? 127 : larger(static_cast<int32_t>(largest) - kMostShift, int32_t{1});
    bool is_bad = false;
#pragma unroll
    for (int32_t i = 0; i < 2; ++i) {
      const int32_t shift = groups[i].scale - base - kLeastShift;  // k + 8
      is_bad |= groups[i].scale == kNanScale || (groups[i].counts && shift < 0);
      if (groups[i].is_there) groups[i].shift = groups[i].counts ? larger(shift, int32_t{0}) : 8;
    }
    is_bad = max_of_cta<kWarps>(slots + kWarps, is_bad ? 1.0f : 0.0f) > 0.0f;
    if (ptx::thread_index() == 0) store_scale(params, base, is_bad);
    store(params, row, groups);
  }

 private:
  static constexpr int32_t kLeastShift = -8, kMostShift = 6, kNanScale = 255;
  static constexpr int32_t kRowGroups = kColumns / 32;
  static constexpr int32_t kTileColumns = ceil_div(kColumns, int32_t{128});
  static constexpr int32_t kSectionTiles = ceil_div(kSectionRows, int32_t{128});
  static constexpr int32_t kMatrixTiles = kSections * kSectionTiles * kTileColumns;

  struct Group {
    uint32_t words[4];  // as in the tile, but the words of the next four lanes
    int32_t scale;
    int32_t shift;  // the byte of the tile
    bool is_there;  // within the matrix
    bool counts;    // has another code than 0
  };

  // Returns a group of the CTA's tile in the lane's column; zeros beyond the matrix.
  MOEJIT_DEVICE static Group fetch(const WeightPackParams& params, int32_t row) {
    const int32_t matrix = ptx::cta_index() / kMatrixTiles;
    const int32_t tile = ptx::cta_index() % kMatrixTiles;
    const int32_t section = tile / kTileColumns / kSectionTiles;
    const int32_t section_row = tile / kTileColumns % kSectionTiles * 128 + row;
    const int32_t column = tile % kTileColumns * 4 + ptx::lane_index() % 4;
    Group group{};
    group.is_there = section_row < kSectionRows && column < kRowGroups;
    if (!group.is_there) return group;
    const int32_t matrix_row =
        kInterleaved ? 2 * section_row + section : section * kSectionRows + section_row;
    const int64_t place =
        (int64_t{matrix} * (kSections * kSectionRows) + matrix_row) * kRowGroups + column;
    const auto input = ptx::as<const Bytes16>(ptx::global(params.input));
    const Bytes16 codes = ptx::load_streaming(input + place);
    group.scale = ptx::load(ptx::global(params.input_scale_inv) + place);
    group.counts =
        ((codes.word[0] | codes.word[1] | codes.word[2] | codes.word[3]) & 0x77777777u) != 0;
    // A word has four codes of the first 16 columns and four of the last.
    group.words[0] = packed_word(ptx::permute_bytes<0x5410>(codes.word[0], codes.word[2]));
    group.words[1] = packed_word(ptx::permute_bytes<0x7632>(codes.word[0], codes.word[2]));
    group.words[2] = packed_word(ptx::permute_bytes<0x5410>(codes.word[1], codes.word[3]));
    group.words[3] = packed_word(ptx::permute_bytes<0x7632>(codes.word[1], codes.word[3]));
    return group;
  }

  MOEJIT_DEVICE static void store_scale(const WeightPackParams& params, int32_t base, bool is_bad) {
    const uint32_t bits = is_bad ? 0x7fc00000u : static_cast<uint32_t>(base) << 23;
    ptx::store(ptx::global(params.output_scale_inv) + ptx::cta_index(), ptx::float_from_bits(bits));
    if (is_bad) ptx::atomic_or(ptx::global(params.status), kStatusBadScale);
  }

  MOEJIT_DEVICE static void store(const WeightPackParams& params, int32_t row, Group (&groups)[2]) {
    const auto tile =
        ptx::global(params.output) + int64_t{ptx::cta_index()} * int64_t{kPackedTileBytes};
    const auto words = ptx::as<Bytes16>(tile) + (row / 64 * 256 + ptx::thread_index() % 128);
#pragma unroll
    for (int32_t i = 0; i < 2; ++i) {
      transpose_in_quad(groups[i].words);
      Bytes16 four;
#pragma unroll
      for (int32_t g = 0; g < 4; ++g) four.word[g] = groups[i].words[g];
      ptx::store_streaming(words + 128 * i, four);
      const int32_t place = kPackedCodeBytes + (row + 8 * i) * 4 + ptx::lane_index() % 4;
      ptx::store(tile + place, static_cast<uint8_t>(groups[i].shift));
    }
  }
};

}  // namespace moejit::device
