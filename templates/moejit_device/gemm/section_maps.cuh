// SPDX-License-Identifier: Apache-2.0
#pragma once

// Copies of boxes of two tensors that are numbered as one. They overload the functions for one
// tensor, so that EpilogueStoreGradient takes either; a kernel includes this file before that.

#include "moejit_device/params/separate_gradients_params.h"
#include "moejit_device/ptx/tensor_copy.cuh"

namespace moejit::device::ptx {

MOEJIT_DEVICE const TensorMap& map_of(const SectionMaps& maps, int32_t matrix) {
  return matrix % 2 == 0 ? maps.gate : maps.up;
}

template <typename T>
MOEJIT_DEVICE void load_tensor_3d(SharedPtr<T> destination, const SectionMaps& maps,
                                  Mbarrier barrier, int32_t x, int32_t y, int32_t matrix) {
  load_tensor_3d(destination, map_of(maps, matrix), barrier, x, y, matrix / 2);
}

template <CachePolicy kPolicy, typename T>
MOEJIT_DEVICE void store_tensor_3d(const SectionMaps& maps, SharedPtr<T> source, int32_t x,
                                   int32_t y, int32_t matrix) {
  store_tensor_3d<kPolicy>(map_of(maps, matrix), source, x, y, matrix / 2);
}

template <typename T>
MOEJIT_DEVICE void add_tensor_3d(const SectionMaps& maps, SharedPtr<T> source, int32_t x, int32_t y,
                                 int32_t matrix) {
  add_tensor_3d(map_of(maps, matrix), source, x, y, matrix / 2);
}

}  // namespace moejit::device::ptx
