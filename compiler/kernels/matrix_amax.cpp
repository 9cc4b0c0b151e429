// SPDX-License-Identifier: Apache-2.0
#include "compiler/kernels/matrix_amax.h"

#include "compiler/call_dims.h"
#include "compiler/kernels/kernel_kind.h"
#include "compiler/kernels/record_fields.h"
#include "compiler/support/integer.h"
#include "moejit_device/params/matrix_amax_params.h"

#include <array>
#include <fmt/core.h>

namespace moejit::compiler {

namespace {

int64_t elements_of(const MatrixAmaxSpec& spec) { return int64_t{spec.rows} * spec.columns; }

}  // namespace

int64_t pieces_of(const MatrixAmaxSpec& spec) {
  constexpr int64_t kThreadElements = 64;
  return ceil_div(elements_of(spec), kThreadElements * spec.threads);
}

std::string to_string(const MatrixAmaxSpec& s) {
  return fmt::format("matrix_amax rows={} columns={} threads={}", s.rows, s.columns, s.threads);
}

namespace {

using device::MatrixAmaxParams;
using enum Access;

constexpr std::array kMatrixAmaxPointers = {
    MOEJIT_POINTER(MatrixAmaxParams, input, kRead),
    MOEJIT_POINTER(MatrixAmaxParams, output, kWrite),
    MOEJIT_POINTER(MatrixAmaxParams, skip, kRead),
};

constexpr std::array kMatrixAmaxNumbers = {MOEJIT_NUMBER(MatrixAmaxParams, matrices)};

constexpr ParamRecord kMatrixAmaxRecord{
    "matrix_amax", sizeof(MatrixAmaxParams), kMatrixAmaxPointers, {}, kMatrixAmaxNumbers};
static_assert(is_complete(kMatrixAmaxRecord));

}  // namespace

template <>
LaunchShape KernelKind<MatrixAmaxSpec>::shape(const MatrixAmaxSpec& spec) {
  return {.threads = spec.threads,
          .shared_bytes = 2 * 4 * (spec.threads / 32),
          .walking_threads_per_sm = 1024};
}

template <>
int64_t KernelKind<MatrixAmaxSpec>::busy(const MatrixAmaxSpec& spec, const CallBounds& bounds,
                                         int64_t) {
  return bounds.groups * pieces_of(spec);
}

template <>
std::vector<KernelNumber> KernelKind<MatrixAmaxSpec>::numbers(const MatrixAmaxSpec&,
                                                              const CallBounds& bounds) {
  return {{.role = "matrices", .dim = {}, .value = bounds.groups}};
}

template <>
Work KernelKind<MatrixAmaxSpec>::work(const MatrixAmaxSpec& spec, const CallBounds& bounds,
                                      const CallRows&) {
  return {.min_bytes = bounds.groups * (2 * elements_of(spec) + 4 * pieces_of(spec))};
}

template <>
const ParamRecord& KernelKind<MatrixAmaxSpec>::record(const MatrixAmaxSpec&) {
  return kMatrixAmaxRecord;
}

template <>
KernelText KernelKind<MatrixAmaxSpec>::text(const MatrixAmaxSpec& spec) {
  return {
      .types = "bf16_f32",
      .tile = fmt::format("{}", spec.threads * 64),
      .summary = fmt::format("the largest magnitudes of bf16 matrices [{}, {}], in pieces",
                             spec.rows, spec.columns),
      .includes = {"cast/matrix_amax.cuh"},
      .params = "MatrixAmaxParams",
      .constants = {integer_constant("kRows", spec.rows, "of a matrix"),
                    integer_constant("kColumns", spec.columns, "of a matrix"),
                    integer_constant("kThreads", spec.threads, "per CTA")},
      .types_used = {{"Kernel", "MatrixAmax", {"kRows", "kColumns", "kThreads"}}},
  };
}

}  // namespace moejit::compiler
