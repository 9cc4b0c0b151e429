// SPDX-License-Identifier: Apache-2.0
#include "compiler/kernels/multi_cast_transpose.h"

#include "compiler/call_dims.h"
#include "compiler/kernels/kernel_kind.h"
#include "compiler/kernels/record_fields.h"
#include "compiler/support/integer.h"
#include "moejit_device/params/multi_cast_transpose_params.h"

#include <algorithm>
#include <array>
#include <fmt/core.h>

namespace moejit::compiler {

std::string to_string(const MultiCastTransposeSpec& s) {
  return fmt::format("multi_cast_transpose input={} output={} threads={}", to_string(s.input),
                     to_string(s.output), s.threads);
}

namespace {

using device::MultiCastTransposeParams;
using enum Access;

constexpr std::array kMultiCastTransposePointers = {
    MOEJIT_POINTER(MultiCastTransposeParams, tensors, kRead),
    MOEJIT_POINTER(MultiCastTransposeParams, tile_ends, kRead),
    MOEJIT_POINTER(MultiCastTransposeParams, skip, kRead),
};

constexpr std::array kMultiCastTransposeNumbers = {MOEJIT_NUMBER(MultiCastTransposeParams, count)};

constexpr ParamRecord kMultiCastTransposeRecord{"multi_cast_transpose",
                                                sizeof(MultiCastTransposeParams),
                                                kMultiCastTransposePointers,
                                                {},
                                                kMultiCastTransposeNumbers};
static_assert(is_complete(kMultiCastTransposeRecord));

}  // namespace

template <>
LaunchShape KernelKind<MultiCastTransposeSpec>::shape(const MultiCastTransposeSpec& spec) {
  constexpr int32_t kTileBytes = 128 * 128;  // bytes of a tile on its way from rows to columns
  return {.threads = spec.threads, .shared_bytes = kTileBytes + 4 * (spec.threads / 32)};
}

template <>
int64_t KernelKind<MultiCastTransposeSpec>::busy(const MultiCastTransposeSpec&,
                                                 const CallBounds& bounds, int64_t) {
  return bounds.list_tiles;
}

template <>
std::vector<KernelNumber> KernelKind<MultiCastTransposeSpec>::numbers(const MultiCastTransposeSpec&,
                                                                      const CallBounds& bounds) {
  return {{.role = "count", .dim = {}, .value = bounds.list_length}};
}

// Counts every element once, and its output byte in both orientations.
template <>
Work KernelKind<MultiCastTransposeSpec>::work(const MultiCastTransposeSpec& spec,
                                              const CallBounds& bounds, const CallRows&) {
  return {.min_bytes = bounds.list_elements * (size_bytes(spec.input) + 2)};
}

template <>
const ParamRecord& KernelKind<MultiCastTransposeSpec>::record(const MultiCastTransposeSpec&) {
  return kMultiCastTransposeRecord;
}

std::vector<int64_t> cast_transpose_tile_ends(std::span<const MatrixSize> sizes) {
  std::vector<int64_t> ends;
  int64_t tiles = 0;
  for (const MatrixSize& size : sizes) {
    tiles += ceil_div(size.rows, 128) * ceil_div(size.columns, 128);
    ends.push_back(tiles);
  }
  return ends;
}

template <>
KernelText KernelKind<MultiCastTransposeSpec>::text(const MultiCastTransposeSpec& spec) {
  const bool is_f32 = spec.input == DType::kF32;
  const bool is_e5m2 = spec.output == DType::kF8E5M2;
  const std::string_view input = is_f32 ? "f32" : "bf16";
  const std::string_view output = is_e5m2 ? "e5m2" : "e4m3";
  return {
      .types = fmt::format("{}_{}", input, output),
      .tile = "128x128",
      .summary =
          fmt::format("a list of {} tensors, each with a scale, to {} and its transpose, and "
                      "the largest magnitude of each",
                      input, output),
      .includes = {"cast/multi_cast_transpose.cuh"},
      .params = "MultiCastTransposeParams",
      .constants = {integer_constant("kThreads", spec.threads, "per CTA, which holds a tile")},
      .types_used = {{"Kernel",
                      "MultiCastTranspose",
                      {is_f32 ? "F32Input" : "Bf16Input", is_e5m2 ? "E5m2" : "E4m3", "kThreads"}}},
  };
}

}  // namespace moejit::compiler
