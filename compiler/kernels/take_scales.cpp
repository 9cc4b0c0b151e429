// SPDX-License-Identifier: Apache-2.0
#include "compiler/kernels/take_scales.h"

#include "compiler/kernels/amax_columns_text.h"
#include "compiler/kernels/kernel_kind.h"
#include "compiler/kernels/record_fields.h"
#include "compiler/support/integer.h"
#include "moejit_device/params/take_scales_params.h"

#include <array>
#include <fmt/core.h>

namespace moejit::compiler {

std::string to_string(const TakeScalesSpec& s) {
  return fmt::format("take_scales experts={} columns={} threads={}", s.experts,
                     to_string(s.columns), s.threads);
}

namespace {

using device::TakeScalesParams;
using enum Access;

constexpr std::array kTakeScalesPointers = {
    MOEJIT_POINTER(TakeScalesParams, fc1_stored, kRead),
    MOEJIT_POINTER(TakeScalesParams, fc2_stored, kRead),
    MOEJIT_POINTER(TakeScalesParams, fc1_scale, kWrite),
    MOEJIT_POINTER(TakeScalesParams, fc1_scale_inv, kWrite),
    MOEJIT_POINTER(TakeScalesParams, fc2_scale, kWrite),
    MOEJIT_POINTER(TakeScalesParams, fc2_scale_inv, kWrite),
    MOEJIT_POINTER(TakeScalesParams, skip, kRead),
    MOEJIT_CALL_POINTERS(TakeScalesParams),
};

constexpr std::array kTakeScalesNumbers = {MOEJIT_NUMBER(TakeScalesParams, call.tokens)};

constexpr ParamRecord kTakeScalesRecord{
    "take_scales", sizeof(TakeScalesParams), kTakeScalesPointers, {}, kTakeScalesNumbers};
static_assert(is_complete(kTakeScalesRecord));

}  // namespace

template <>
LaunchShape KernelKind<TakeScalesSpec>::shape(const TakeScalesSpec& spec) {
  return {.threads = spec.threads};
}

template <>
int64_t KernelKind<TakeScalesSpec>::busy(const TakeScalesSpec& spec, const CallBounds&, int64_t) {
  return ceil_div(spec.experts, spec.threads);
}

template <>
std::vector<KernelNumber> KernelKind<TakeScalesSpec>::numbers(const TakeScalesSpec&,
                                                              const CallBounds&) {
  return {kCallTokens};
}

template <>
Work KernelKind<TakeScalesSpec>::work(const TakeScalesSpec& spec, const CallBounds&,
                                      const CallRows&) {
  return {.min_bytes = 4 * 6 * int64_t{spec.experts}};
}

template <>
const ParamRecord& KernelKind<TakeScalesSpec>::record(const TakeScalesSpec&) {
  return kTakeScalesRecord;
}

template <>
KernelText KernelKind<TakeScalesSpec>::text(const TakeScalesSpec& spec) {
  return {
      .types = "f32",
      .tile = fmt::format("e{}", spec.experts),
      .summary = "the experts' scales of an operand of fc1 and of one of fc2, and their inverses",
      .includes = {"cast/take_scales.cuh"},
      .params = "TakeScalesParams",
      .constants = {integer_constant("kExperts", spec.experts, "with a scale each"),
                    integer_constant("kStride", spec.columns.stride,
                                     "columns of a state for each expert"),
                    integer_constant("kFirst", spec.columns.first,
                                     "which of them is the operand's"),
                    integer_constant("kThreads", spec.threads, "per CTA")},
      .types_used = {{"Kernel", "TakeScales", {"kExperts", "kStride", "kFirst", "kThreads"}}},
  };
}

}  // namespace moejit::compiler
