// SPDX-License-Identifier: Apache-2.0
#include "compiler/kernels/weight_pack.h"

#include "compiler/kernels/kernel_kind.h"
#include "compiler/support/integer.h"
#include "moejit_device/params/packed_bf16_tile.h"
#include "moejit_device/params/packed_tile.h"
#include "moejit_device/params/weight_pack_bf16_params.h"
#include "moejit_device/params/weight_pack_params.h"

#include <array>
#include <fmt/core.h>

namespace moejit::compiler {

int64_t tiles_of(const WeightPackSpec& spec) {
  return spec.sections * ceil_div(int64_t{spec.section_rows}, int64_t{128}) *
         ceil_div(int64_t{spec.columns}, int64_t{packed_tile(spec.format).columns});
}

std::string to_string(const WeightPackSpec& s) {
  return fmt::format(
      "weight_pack sections={} section_rows={} columns={}{}{}", s.sections, s.section_rows,
      s.columns, s.is_interleaved ? " interleaved=true" : "",
      s.format == PackedFormat::kMxfp4 ? "" : fmt::format(" format={}", to_string(s.format)));
}

namespace {

using device::WeightPackBf16Params;
using device::WeightPackParams;
using enum Access;

// The kernels' headers have these numbers, too.
static_assert(packed_tile(PackedFormat::kMxfp4).bytes == device::kPackedTileBytes);
static_assert(packed_tile(PackedFormat::kNvfp4).bytes == device::kPackedBf16TileBytes);
static_assert(packed_tile(PackedFormat::kNvfp4).code_factor == device::kNvfp4CodeFactor);
static_assert(packed_tile(PackedFormat::kInt4).bytes == device::kPackedBf16TileBytes);

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

constexpr std::array kWeightPackBf16Pointers = {
    MOEJIT_POINTER(WeightPackBf16Params, input, kRead),
    MOEJIT_POINTER(WeightPackBf16Params, input_scale_inv, kRead),
    MOEJIT_POINTER(WeightPackBf16Params, input_zero, kRead),
    MOEJIT_POINTER(WeightPackBf16Params, output, kWrite),
    MOEJIT_POINTER(WeightPackBf16Params, status, kReadWrite),
};

constexpr ParamRecord kWeightPackBf16Record{
    "weight_pack_bf16", sizeof(WeightPackBf16Params), kWeightPackBf16Pointers, {}, {}};
static_assert(is_complete(kWeightPackBf16Record));

constexpr int32_t kPackThreads = 256;

// Returns the bytes of scales and zero points that checkpoints have for a group.
int64_t group_bytes(PackedFormat format) { return format == PackedFormat::kInt4 ? 5 : 1; }

}  // namespace

template <>
LaunchShape KernelKind<WeightPackSpec>::shape(const WeightPackSpec& spec) {
  const PackedTile& tile = packed_tile(spec.format);
  return {.threads = kPackThreads,
          .shared_bytes = tile.packer.empty() ? 8 * (kPackThreads / 32) : tile.bytes};
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
  const PackedTile& tile = packed_tile(spec.format);
  const int64_t groups = int64_t{spec.sections} * spec.section_rows * (spec.columns / tile.group);
  const int64_t tile_bytes = tile.bytes + (tile.has_block_scale ? 4 : 0);
  return {.min_bytes = bounds.groups * ((tile.group / 2 + group_bytes(spec.format)) * groups +
                                        tile_bytes * tiles_of(spec))};
}

template <>
const ParamRecord& KernelKind<WeightPackSpec>::record(const WeightPackSpec& spec) {
  return packed_tile(spec.format).packer.empty() ? kWeightPackRecord : kWeightPackBf16Record;
}

template <>
KernelText KernelKind<WeightPackSpec>::text(const WeightPackSpec& spec) {
  const PackedTile& tile = packed_tile(spec.format);
  const bool is_bf16 = !tile.packer.empty();
  std::vector<std::string> arguments = {"kSections", "kSectionRows", "kColumns", "kInterleaved"};
  if (is_bf16) arguments.emplace(arguments.begin(), tile.packer);
  return {
      .types = std::string(tile.name),
      .tile = fmt::format("128x{}", tile.columns),
      .summary = fmt::format("{} matrices [{}, {}] to packed tiles{}", tile.title,
                             int64_t{spec.sections} * spec.section_rows, spec.columns,
                             tile.has_block_scale ? ", a power-of-two scale each" : ""),
      .includes = {is_bf16 ? std::string(tile.packer_include) : "cast/weight_pack.cuh"},
      .params = is_bf16 ? "WeightPackBf16Params" : "WeightPackParams",
      .constants = {integer_constant("kSections", spec.sections,
                                     "stacked parts, tiles restart at each"),
                    integer_constant("kSectionRows", spec.section_rows, "rows of each"),
                    integer_constant("kColumns", spec.columns, "of a matrix"),
                    bool_constant("kInterleaved", spec.is_interleaved,
                                  "rows of the parts alternate in the input")},
      .types_used = {{"Kernel", is_bf16 ? "WeightPackBf16" : "WeightPack", std::move(arguments)}},
  };
}

}  // namespace moejit::compiler
