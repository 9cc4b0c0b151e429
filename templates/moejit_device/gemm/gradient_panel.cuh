// SPDX-License-Identifier: Apache-2.0
#pragma once

// A panel of a weight gradient in shared memory: 64 rows of 128 bytes, swizzled as tensor copies
// do, 16 rows for each warp of a warpgroup. Sums come in the order of ptx::WgmmaSum.

#include "moejit_device/ptx/barrier.cuh"
#include "moejit_device/ptx/convert.cuh"
#include "moejit_device/ptx/matrix_store.cuh"
#include "moejit_device/ptx/warpgroup.cuh"

namespace moejit::device {

template <typename Element>
struct GradientPanelShape {
  static constexpr int32_t kColumns = 128 / static_cast<int32_t>(sizeof(Element));
  static constexpr int32_t kSums = kColumns / 2;  // of a thread
  static constexpr int32_t kBytes = 64 * 128;
  static constexpr int32_t kChunks = kBytes / 16;
};

template <typename Element>
struct GradientPanel;

template <>
struct GradientPanel<Bf16> : GradientPanelShape<Bf16> {
  MOEJIT_DEVICE static void write(ptx::SharedPtr<Bytes16> panel, const float* sums) {
    put<false>(panel, sums);
  }

  // The panel holds old values. Each sum is rounded once.
  MOEJIT_DEVICE static void add(ptx::SharedPtr<Bytes16> panel, const float* sums) {
    put<true>(panel, sums);
  }

 private:
  static constexpr int32_t kQuads = kColumns / 16;  // of matrices of 8x8, one beside the other

  // Returns where this lane's row of a quad lies.
  MOEJIT_DEVICE static ptx::SharedPtr<Bytes16> place(ptx::SharedPtr<Bytes16> panel, int32_t quad) {
    const int32_t lane = ptx::lane_index();
    return panel + (ptx::warp_index() % 4 * 16 + lane % 16) * 8 +
           ((2 * quad + lane / 16) ^ (lane % 8));
  }

  template <bool kAdds>
  MOEJIT_DEVICE static void put(ptx::SharedPtr<Bytes16> panel, const float* sums) {
    ptx::MatrixFragments f[kQuads] = {};
    if constexpr (kAdds) {
#pragma unroll
      for (int32_t i = 0; i < kQuads; ++i) f[i] = ptx::load_matrices(place(panel, i));
      ptx::sync_warp();  // a lane gets what others' rows hold
    }
#pragma unroll
    for (int32_t i = 0; i < kQuads; ++i) {
#pragma unroll
      for (int32_t k = 0; k < 4; ++k) {
        const float* x = sums + 8 * i + 2 * k;
        uint32_t& word = f[i].word[k];
        word = kAdds ? ptx::bf16_pair(ptx::add(ptx::float_from_bf16_low(word), x[0]),
                                      ptx::add(ptx::float_from_bf16_high(word), x[1]))
                     : ptx::bf16_pair(x[0], x[1]);
      }
      ptx::store_matrices(place(panel, i), f[i]);
    }
  }
};

template <>
struct GradientPanel<float> : GradientPanelShape<float> {
  MOEJIT_DEVICE static void write(ptx::SharedPtr<Bytes16> panel, const float* sums) {
    put<false>(panel, sums);
  }

  // The panel holds old values.
  MOEJIT_DEVICE static void add(ptx::SharedPtr<Bytes16> panel, const float* sums) {
    put<true>(panel, sums);
  }

 private:
  // 16-byte chunk c of row r lies at chunk c ^ (r % 8). Four rows store at once, two chunks each,
  // and neighboring rows would meet in the same banks: chunks 2j and 2j + 1 stay a pair under any
  // swizzle. So threads of odd rows take their columns in another order, 2j ^ 4.
  template <bool kAdds>
  MOEJIT_DEVICE static void put(ptx::SharedPtr<Bytes16> panel, const float* sums) {
    const int32_t lane = ptx::lane_index();
    const int32_t row = ptx::warp_index() % 4 * 16 + lane / 4;
    const bool is_odd = row % 2 != 0;
    const auto first = ptx::as<Bytes8>(panel + row * 8) + lane % 2;
    const int32_t swizzle = row % 8 ^ (is_odd ? 4 : 0);
#pragma unroll
    for (int32_t j = 0; j < 4; ++j) {
      const auto at = first + 2 * ((2 * j + lane % 4 / 2) ^ swizzle);
#pragma unroll
      for (int32_t half = 0; half < 2; ++half) {
        const float* even = sums + 4 * j + 2 * half;
        const float* odd = sums + 4 * (j ^ 2) + 2 * half;
        float x = is_odd ? odd[0] : even[0];
        float y = is_odd ? odd[1] : even[1];
        const auto place = at + half * (8 * 128 / 8);
        if constexpr (kAdds) {
          const Bytes8 old = ptx::load(place);
          x = ptx::add(ptx::float_from_bits(old.word[0]), x);
          y = ptx::add(ptx::float_from_bits(old.word[1]), y);
        }
        ptx::store(place, Bytes8{{ptx::bits_of(x), ptx::bits_of(y)}});
      }
    }
  }
};

}  // namespace moejit::device
