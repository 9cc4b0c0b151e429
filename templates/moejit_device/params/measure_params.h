// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "moejit_device/core/types.cuh"

namespace moejit::device {

// What the kernels of moejit_device/measure take, which make operands for what is measured and read
// the clock beside it.

// A warp of these kernels takes a row, a thread of RandomValues a run of so many numbers.
inline constexpr int32_t kMeasureThreads = 256;  // of a CTA; the clock probe has one
inline constexpr int32_t kRandomRun = 8;

struct ClockProbeParams {
  uint64_t* sample;  // [2]: SM clocks and nanoseconds between two ticks of the GPU's timer
};

// Bytes that change places. `columns` is a multiple of 128.
struct ColumnBlocksParams {
  const uint32_t* matrix;  // [rows, columns] bytes
  uint32_t* blocks;        // [columns / 128, rows, 128] bytes
  int64_t rows;
  int64_t columns;
};

// Words of two memories, and how many of them differ, which is added to.
struct CountDifferencesParams {
  const uint32_t* a;    // [words]
  const uint32_t* b;    // [words]
  uint64_t* differing;  // [1]
  int64_t words;
};

// Columns from a group's count to the next group's start become zeros.
struct PadColumnsParams {
  Bf16* matrix;           // [rows, offs[groups]]
  const int32_t* counts;  // [groups]
  const int32_t* offs;    // [groups + 1]
  int64_t rows;
  int64_t groups;
};

// Sums of products by the instructions of grouped GEMMs. A CTA, one warpgroup, takes one problem.
enum class ProductFormats : int32_t { kE4m3, kE5m2E4m3, kE4m3E5m2, kBf16 };  // of A and B
inline constexpr int32_t kSumThreads = 128;
inline constexpr int32_t kSumRows = 64, kSumColumns = 8;
inline constexpr int32_t kSumVectors = 8;  // of 16 bytes in a row of A or B
inline constexpr int32_t kSumRowBytes = kSumVectors * 16;
inline constexpr int32_t kSumSharedBytes = (kSumRows + kSumColumns) * kSumRowBytes;
struct TensorCoreSumsParams {
  const Bytes16* a;  // [problems, kSumRows, kSumVectors]
  const Bytes16* b;  // [problems, kSumColumns, kSumVectors]
  float* sums;       // [problems, kSumRows, kSumColumns]
  ProductFormats formats;
};

struct RandomValuesParams {
  void* values;  // [runs, kRandomRun] bf16, 16-byte aligned, or e4m3
  int64_t runs;
  uint64_t seed;
};

}  // namespace moejit::device
