// SPDX-License-Identifier: Apache-2.0
#pragma once

// Copies of boxes of gate's and up's weights, which are numbered as one tensor. They overload the
// functions for one tensor, so that Pipeline takes either; a kernel includes this file before that.
// A box lies in one of the two: tiles and steps of the contraction end with a section.

#include "moejit_device/params/separate_weights.h"
#include "moejit_device/ptx/tensor_copy.cuh"

namespace moejit::device::ptx {

template <int32_t kRows, int32_t kGated>
MOEJIT_DEVICE void prefetch_tensor_map(const SeparateWeights<kRows, kGated>& maps) {
  prefetch_tensor_map(maps.gate);
  prefetch_tensor_map(maps.up);
}

// A row of gate, or of up, in its own tensor.
struct SectionRow {
  const TensorMap& map;
  int32_t row;
};

template <int32_t kRows, int32_t kGated>
MOEJIT_DEVICE SectionRow row_of(const SeparateWeights<kRows, kGated>& maps, int32_t row) {
  const int32_t matrix = row / (2 * kRows);
  const bool is_up = row - 2 * kRows * matrix >= kRows;
  return {is_up ? maps.up : maps.gate, row - kRows * (is_up ? matrix + 1 : matrix)};
}

template <CachePolicy kPolicy = CachePolicy::kNormal, typename T, int32_t kRows, int32_t kGated>
MOEJIT_DEVICE void load_tensor_2d(SharedPtr<T> destination,
                                  const SeparateWeights<kRows, kGated>& maps, Mbarrier barrier,
                                  int32_t x, int32_t row) {
  const SectionRow at = row_of(maps, row);
  load_tensor_2d<kPolicy>(destination, at.map, barrier, x, at.row);
}

template <typename T, int32_t kRows, int32_t kGated>
MOEJIT_DEVICE void multicast_tensor_2d(SharedPtr<T> destination,
                                       const SeparateWeights<kRows, kGated>& maps, Mbarrier barrier,
                                       int32_t x, int32_t row, uint32_t ctas) {
  const SectionRow at = row_of(maps, row);
  multicast_tensor_2d(destination, at.map, barrier, x, at.row, ctas);
}

// Loads from a matrix that is MN-major: `k` counts the contraction over both.
template <typename T, int32_t kRows, int32_t kGated>
MOEJIT_DEVICE void load_tensor_3d(SharedPtr<T> destination,
                                  const SeparateWeights<kRows, kGated>& maps, Mbarrier barrier,
                                  int32_t x, int32_t k, int32_t matrix) {
  const bool is_up = k >= kRows;
  load_tensor_3d(destination, is_up ? maps.up : maps.gate, barrier, x, is_up ? k - kRows : k,
                 matrix);
}

// 8 rows of gate, the same of up, the next 8 of gate, ..., from row 8 * `rows` of gate on. No box
// has rows of two tensors, so each 8 rows are a copy.
template <CachePolicy kPolicy = CachePolicy::kNormal, int32_t kRows, int32_t kGated>
MOEJIT_DEVICE void load_tensor_4d(SharedPtr<Bytes16> destination,
                                  const SeparateWeights<kRows, kGated>& maps, Mbarrier barrier,
                                  int32_t x, int32_t, int32_t, int32_t rows) {
  constexpr int32_t kBoxChunks = 8 * 128 / 16;
  const int32_t first = row_of(maps, 8 * rows).row;
#pragma unroll 1  // few registers
  for (int32_t i = 0; i < kGated / 8; ++i) {
    const SharedPtr<Bytes16> box = destination + 2 * i * kBoxChunks;
    load_tensor_2d<kPolicy>(box, maps.gate, barrier, x, first + 8 * i);
    load_tensor_2d<kPolicy>(box + kBoxChunks, maps.up, barrier, x, first + 8 * i);
  }
}

}  // namespace moejit::device::ptx
