// SPDX-License-Identifier: Apache-2.0
#include "compiler/kernels/state_scales.h"

#include "compiler/kernels/amax_columns.h"
#include "compiler/kernels/kernel_kind.h"
#include "compiler/support/integer.h"
#include "moejit_device/params/take_scales_params.h"
#include "moejit_device/params/update_scales_params.h"

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

std::string to_string(const UpdateScalesSpec& s) {
  return fmt::format(
      "update_scales columns={} history_length={} largest={:g} algorithm={} threads={}", s.columns,
      s.history_length, s.largest, to_string(s.algorithm), s.threads);
}

namespace {

using device::UpdateScalesParams;

constexpr std::array kUpdateScalesPointers = {
    MOEJIT_POINTER(UpdateScalesParams, fc1_amax_history, kReadWrite),
    MOEJIT_POINTER(UpdateScalesParams, fc1_scale, kReadWrite),
    MOEJIT_POINTER(UpdateScalesParams, fc2_amax_history, kReadWrite),
    MOEJIT_POINTER(UpdateScalesParams, fc2_scale, kReadWrite),
};

constexpr ParamRecord kUpdateScalesRecord{
    "update_scales", sizeof(UpdateScalesParams), kUpdateScalesPointers, {}, {}};
static_assert(is_complete(kUpdateScalesRecord));

}  // namespace

template <>
LaunchShape KernelKind<UpdateScalesSpec>::shape(const UpdateScalesSpec& spec) {
  return {.threads = spec.threads, .shared_bytes = 4 * spec.threads};
}

template <>
int64_t KernelKind<UpdateScalesSpec>::busy(const UpdateScalesSpec& spec, const CallBounds&,
                                           int64_t) {
  return 2 * ceil_div(spec.columns, 32);
}

template <>
std::vector<KernelNumber> KernelKind<UpdateScalesSpec>::numbers(const UpdateScalesSpec&,
                                                                const CallBounds&) {
  return {};
}

// A step in which all columns roll.
template <>
Work KernelKind<UpdateScalesSpec>::work(const UpdateScalesSpec& spec, const CallBounds&,
                                        const CallRows&) {
  return {.min_bytes = 2 * 4 * int64_t{spec.columns} * (2 * spec.history_length + 1)};
}

template <>
const ParamRecord& KernelKind<UpdateScalesSpec>::record(const UpdateScalesSpec&) {
  return kUpdateScalesRecord;
}

template <>
KernelText KernelKind<UpdateScalesSpec>::text(const UpdateScalesSpec& spec) {
  return {
      .types = "f32",
      .tile = fmt::format("{}x{}", spec.history_length, spec.columns),
      .summary = "histories of largest magnitudes on by a step, and the scales of the next one",
      .includes = {"cast/update_scales.cuh"},
      .params = "UpdateScalesParams",
      .constants = {integer_constant("kColumns", spec.columns, "of each state"),
                    integer_constant("kLength", spec.history_length, "steps of a history"),
                    float_bits_constant("kMaxBits", spec.largest,
                                        "the format's largest number, less the margin"),
                    bool_constant("kMostRecent", spec.algorithm == AmaxComputeAlgo::kMostRecent,
                                  "scales follow from this step alone"),
                    integer_constant("kThreads", spec.threads, "per CTA")},
      .types_used = {{"Kernel",
                      "UpdateScales",
                      {"kColumns", "kLength", "kMaxBits", "kMostRecent", "kThreads"}}},
  };
}

}  // namespace moejit::compiler
