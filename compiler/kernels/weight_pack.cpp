// SPDX-License-Identifier: Apache-2.0
#include "compiler/kernels/weight_pack.h"

#include "compiler/kernels/kernel_kind.h"
#include "compiler/support/integer.h"
#include "moejit_device/params/packed_tile.h"
#include "moejit_device/params/weight_pack_params.h"

#include <array>
#include <fmt/core.h>

namespace moejit::compiler {

int64_t tiles_of(const WeightPackSpec& spec) {
  return spec.sections * ceil_div(int64_t{spec.section_rows}, int64_t{128}) *
         ceil_div(int64_t{spec.columns}, int64_t{128});
}

std::string to_string(const WeightPackSpec& s) {
  return fmt::format("weight_pack sections={} section_rows={} columns={}{}", s.sections,
                     s.section_rows, s.columns, s.is_interleaved ? " interleaved=true" : "");
}

namespace {

using device::WeightPackParams;
using enum Access;

constexpr std::array kWeightPackPointers = {
    MOEJIT_POINTER(WeightPackParams, input, kRead),
    MOEJIT_POINTER(WeightPackParams, input_scale_inv, kRead),
    MOEJIT_POINTER(WeightPackParams, output, kWrite),
    MOEJIT_POINTER(WeightPackParams, output_scale_inv, kWrite),
    MOEJIT_POINTER(WeightPackParams, status, kReadWrite),
};

constexpr ParamRecord kWeightPackRecord{
    "weight_pack", sizeof(WeightPackParams), kWeightPackPointers, {}, {}};
static_assert(is_complete(kWeightPackRecord));

constexpr int32_t kPackThreads = 256;

}  // namespace

template <>
LaunchShape KernelKind<WeightPackSpec>::shape(const WeightPackSpec&) {
  return {.threads = kPackThreads, .shared_bytes = 8 * (kPackThreads / 32)};
}

template <>
int64_t KernelKind<WeightPackSpec>::busy(const WeightPackSpec& spec, const CallBounds& bounds,
                                         int64_t) {
  return bounds.groups * tiles_of(spec);
}

template <>
std::vector<KernelNumber> KernelKind<WeightPackSpec>::numbers(const WeightPackSpec&,
                                                              const CallBounds&) {
  return {};
}

template <>
Work KernelKind<WeightPackSpec>::work(const WeightPackSpec& spec, const CallBounds& bounds,
                                      const CallRows&) {
  const int64_t groups = int64_t{spec.sections} * spec.section_rows * (spec.columns / 32);
  return {.min_bytes =
              bounds.groups * (17 * groups + (device::kPackedTileBytes + 4) * tiles_of(spec))};
}

template <>
const ParamRecord& KernelKind<WeightPackSpec>::record(const WeightPackSpec&) {
  return kWeightPackRecord;
}

template <>
KernelText KernelKind<WeightPackSpec>::text(const WeightPackSpec& spec) {
  return {
      .types = "mxfp4",
      .tile = "128x128",
      .summary = fmt::format("MXFP4 matrices [{}, {}] to packed tiles, a power-of-two scale each",
                             int64_t{spec.sections} * spec.section_rows, spec.columns),
      .includes = {"cast/weight_pack.cuh"},
      .params = "WeightPackParams",
      .constants = {integer_constant("kSections", spec.sections,
                                     "stacked parts, tiles restart at each"),
                    integer_constant("kSectionRows", spec.section_rows, "rows of each"),
                    integer_constant("kColumns", spec.columns, "of a matrix"),
                    bool_constant("kInterleaved", spec.is_interleaved,
                                  "rows of the parts alternate in the input")},
      .types_used = {{"Kernel",
                      "WeightPack",
                      {"kSections", "kSectionRows", "kColumns", "kInterleaved"}}},
  };
}

}  // namespace moejit::compiler
