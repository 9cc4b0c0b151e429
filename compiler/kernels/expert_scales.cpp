// SPDX-License-Identifier: Apache-2.0
#include "compiler/kernels/expert_scales.h"

#include "compiler/call_dims.h"
#include "compiler/kernels/kernel_kind.h"
#include "compiler/support/integer.h"
#include "moejit_device/params/expert_scales_params.h"
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

std::string to_string(const ExpertScalesSpec& s) {
  return fmt::format("expert_scales format={} magnitudes={} of={} {}threads={}",
                     to_string(s.format), s.magnitudes, s.has_rows ? "rows" : "matrices",
                     s.is_power_of_two ? "power_of_two=true " : "", s.threads);
}

namespace {

using device::ExpertScalesParams;

constexpr std::array kExpertScalesPointers = {
    MOEJIT_POINTER(ExpertScalesParams, amax, kRead),
    MOEJIT_POINTER(ExpertScalesParams, counts, kRead),
    MOEJIT_POINTER(ExpertScalesParams, offs, kRead),
    MOEJIT_POINTER(ExpertScalesParams, scale, kWrite),
    MOEJIT_POINTER(ExpertScalesParams, scale_inv, kWrite),
    MOEJIT_POINTER(ExpertScalesParams, skip, kRead),
    MOEJIT_CALL_POINTERS(ExpertScalesParams),
};

constexpr std::array kExpertScalesNumbers = {MOEJIT_NUMBER(ExpertScalesParams, rows),
                                             MOEJIT_NUMBER(ExpertScalesParams, call.tokens)};

constexpr ParamRecord kExpertScalesRecord{
    "expert_scales", sizeof(ExpertScalesParams), kExpertScalesPointers, {}, kExpertScalesNumbers};
static_assert(is_complete(kExpertScalesRecord));

// Returns the largest number of the format; for E2M1 times the largest scale of a block.
float largest_number(DType format) {
  if (format == DType::kF4E2M1x2) return 6.0f * 448.0f;
  return format == DType::kF8E5M2 ? 57344.0f : 448.0f;
}

std::string_view format_text(DType format) {
  if (format == DType::kF4E2M1x2) return "e2m1";
  return format == DType::kF8E5M2 ? "e5m2" : "e4m3";
}

}  // namespace

template <>
LaunchShape KernelKind<ExpertScalesSpec>::shape(const ExpertScalesSpec& spec) {
  return {.threads = spec.threads, .shared_bytes = 4 * (spec.threads / 32)};
}

template <>
int64_t KernelKind<ExpertScalesSpec>::busy(const ExpertScalesSpec&, const CallBounds& bounds,
                                           int64_t) {
  return bounds.groups;
}

template <>
std::vector<KernelNumber> KernelKind<ExpertScalesSpec>::numbers(const ExpertScalesSpec& spec,
                                                                const CallBounds&) {
  if (!spec.has_rows) return {{.role = "rows", .dim = {}}, {.role = "call.tokens", .dim = {}}};
  return {{.role = "rows", .dim = CallDim::kRows}, kCallTokens};
}

template <>
Work KernelKind<ExpertScalesSpec>::work(const ExpertScalesSpec& spec, const CallBounds& bounds,
                                        const CallRows& rows) {
  const int64_t read = (spec.has_rows ? rows.routed : bounds.groups) * spec.magnitudes;
  return {.min_bytes = 4 * (read + 2 * int64_t{bounds.groups})};
}

template <>
const ParamRecord& KernelKind<ExpertScalesSpec>::record(const ExpertScalesSpec&) {
  return kExpertScalesRecord;
}

template <>
KernelText KernelKind<ExpertScalesSpec>::text(const ExpertScalesSpec& spec) {
  return {
      .types = std::string(format_text(spec.format)),
      .tile = fmt::format("m{}", spec.magnitudes),
      .summary = fmt::format("largest magnitudes of {} to one scale for each expert, {}",
                             spec.has_rows ? "rows" : "matrices",
                             spec.is_power_of_two ? "a power of two" : "a quotient"),
      .includes = {"cast/expert_scales.cuh"},
      .params = "ExpertScalesParams",
      .constants =
          {
              integer_constant("kMagnitudes", static_cast<int32_t>(spec.magnitudes),
                               spec.has_rows ? "of a row" : "of a matrix"),
              float_bits_constant("kMaxBits", largest_number(spec.format),
                                  spec.format == DType::kF4E2M1x2
                                      ? "the largest number times the largest of E4M3"
                                      : "the largest number of the format"),
              bool_constant("kPowerOfTwo", spec.is_power_of_two,
                            "scales are rounded down to powers of two"),
              integer_constant("kThreads", spec.threads, "per CTA"),
          },
      .types_used = {{"Kernel",
                      "ExpertScales",
                      {spec.has_rows ? "MagnitudesOfRows<kMagnitudes>"
                                     : "MagnitudesOfMatrices<kMagnitudes>",
                       "kMaxBits", "kPowerOfTwo", "kThreads"}}},
  };
}

}  // namespace moejit::compiler
