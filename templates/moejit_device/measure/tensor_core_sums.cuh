// SPDX-License-Identifier: Apache-2.0
#pragma once

// What tensor cores add up from 128 bytes of rows of A and B, beginning with 0, by the instructions
// that grouped GEMMs of this target use.

#include "moejit_device/params/measure_params.h"
#include "moejit_device/ptx/barrier.cuh"
#include "moejit_device/ptx/tensor_copy.cuh"
#include "moejit_device/ptx/wgmma.cuh"

namespace moejit::device {

// Copies rows to where tensor copies with the 128-byte swizzle would bring them.
MOEJIT_DEVICE void place_rows(ptx::SharedPtr<Bytes16> to, ptx::GlobalPtr<const Bytes16> rows,
                              int32_t count) {
  for (int32_t i = ptx::thread_index(); i < count * kSumVectors; i += kSumThreads) {
    const int32_t row = i / kSumVectors, vector = i % kSumVectors;
    ptx::store(to + (row * kSumVectors + (vector ^ row % 8)), ptx::load(rows + i));
  }
}

MOEJIT_DEVICE void multiply(ptx::WgmmaSum<kSumColumns>& sum, ProductFormats formats,
                            ptx::MatrixDescriptor a, ptx::MatrixDescriptor b) {
  switch (formats) {
    case ProductFormats::kE4m3: return ptx::wgmma_rows_e4m3(sum, a, b, false);
    case ProductFormats::kE5m2E4m3: return ptx::wgmma_rows_e5m2_e4m3(sum, a, b, false);
    case ProductFormats::kE4m3E5m2: return ptx::wgmma_rows_e4m3_e5m2(sum, a, b, false);
    case ProductFormats::kBf16:
      return ptx::wgmma_steps_bf16<ptx::Major::kK, ptx::Major::kK>(sum, a, b, false);
  }
}

MOEJIT_KERNEL(kSumThreads, 1, moejit_tensor_core_sums, TensorCoreSumsParams) {
  const int64_t problem = ptx::cta_index();
  const auto a = ptx::shared<Bytes16>(0);
  const auto b = a + kSumRows * kSumVectors;
  place_rows(a, ptx::global(params.a) + problem * kSumRows * kSumVectors, kSumRows);
  place_rows(b, ptx::global(params.b) + problem * kSumColumns * kSumVectors, kSumColumns);
  ptx::fence_proxy_async();
  ptx::sync_cta();
  ptx::WgmmaSum<kSumColumns> sum;
  ptx::wgmma_fence(sum);
  multiply(sum, params.formats, ptx::matrix_descriptor(a), ptx::matrix_descriptor(b));
  ptx::wgmma_commit();
  ptx::wgmma_wait<0>(sum);
  const int32_t row = ptx::warp_index() * 16 + ptx::lane_index() / 4;
  const int32_t column = ptx::lane_index() % 4 * 2;
  const auto sums = ptx::global(params.sums) + problem * kSumRows * kSumColumns;
  for (int32_t i = 0; i < 4; ++i) {
    ptx::store(sums + ((row + i / 2 * 8) * kSumColumns + column + i % 2), sum(i));
  }
}

}  // namespace moejit::device
