// SPDX-License-Identifier: Apache-2.0
#include "compiler/kernels/tile_chain.h"

#include "compiler/call_dims.h"
#include "compiler/kernels/amax_columns.h"
#include "compiler/kernels/kernel_kind.h"
#include "compiler/support/integer.h"
#include "moejit_device/params/tile_chain_params.h"

#include <algorithm>
#include <array>
#include <fmt/core.h>

namespace moejit::compiler {

std::string to_string(const TileChainSpec& s) {
  return fmt::format(
      "tile_chain sections={} section_rows={} columns={} tiles_per_scale={} epsilon={:g} "
      "{}{}{}{}{}{}threads={}",
      s.sections, s.section_rows, s.columns, s.tiles_per_scale, s.epsilon,
      s.writes_rows ? "" : "writes_rows=false ", s.writes_colwise ? "writes_colwise=true " : "",
      s.is_interleaved ? "interleaved=true " : "", s.is_separate ? "separate=true " : "",
      s.has_expert_scale ? "expert_scale=true " : "",
      is_recorded(s.amax) ? fmt::format("amax={} ", to_string(s.amax)) : "", s.threads);
}

namespace {

using device::TileChainParams;
using enum Access;

constexpr std::array kTileChainPointers = {
    MOEJIT_POINTER(TileChainParams, input, kRead),
    MOEJIT_POINTER(TileChainParams, output, kWrite),
    MOEJIT_POINTER(TileChainParams, output_scale_inv, kWrite),
    MOEJIT_POINTER(TileChainParams, output_colwise, kWrite),
    MOEJIT_POINTER(TileChainParams, output_colwise_scale_inv, kWrite),
    MOEJIT_POINTER(TileChainParams, skip, kRead),
    MOEJIT_POINTER(TileChainParams, expert_scales, kRead),
    MOEJIT_POINTER(TileChainParams, amax, kReadWrite),
    MOEJIT_POINTER(TileChainParams, input_up, kRead),
};

constexpr std::array kTileChainNumbers = {MOEJIT_NUMBER(TileChainParams, matrices)};

constexpr ParamRecord kTileChainRecord{
    "tile_chain", sizeof(TileChainParams), kTileChainPointers, {}, kTileChainNumbers};
static_assert(is_complete(kTileChainRecord));

}  // namespace

template <>
LaunchShape KernelKind<TileChainSpec>::shape(const TileChainSpec& spec) {
  const int32_t warps = spec.threads / 32;
  constexpr int32_t kTileBytes = 128 * 128;  // bytes of a tile on its way from rows to columns
  return {.threads = spec.threads,
          .shared_bytes =
              spec.writes_colwise ? spec.tiles_per_scale * kTileBytes + 4 * warps : 8 * warps,
          .walking_threads_per_sm = spec.writes_colwise ? 1024 : 768};
}

template <>
int64_t KernelKind<TileChainSpec>::busy(const TileChainSpec& spec, const CallBounds& bounds,
                                        int64_t) {
  return busy_ctas(spec, bounds.groups);
}

template <>
std::vector<KernelNumber> KernelKind<TileChainSpec>::numbers(const TileChainSpec&,
                                                             const CallBounds& bounds) {
  return {{.role = "matrices", .dim = {}, .value = bounds.groups}};
}

template <>
Work KernelKind<TileChainSpec>::work(const TileChainSpec& spec, const CallBounds& bounds,
                                     const CallRows&) {
  const int64_t elements =
      int64_t{bounds.groups} * spec.sections * spec.section_rows * spec.columns;
  const int64_t scales = spec.has_expert_scale
                             ? 0
                             : int64_t{bounds.groups} * spec.sections *
                                   ceil_div(spec.section_rows, 128) * ceil_div(spec.columns, 128);
  // Copies of bytes and scales.
  const int64_t copies = (spec.writes_rows ? 1 : 0) + (spec.writes_colwise ? 1 : 0);
  return {.min_bytes = 2 * elements + copies * (elements + 4 * scales)};
}

template <>
const ParamRecord& KernelKind<TileChainSpec>::record(const TileChainSpec&) {
  return kTileChainRecord;
}

int64_t busy_ctas(const TileChainSpec& spec, int64_t matrices) {
  return matrices * spec.sections * ceil_div(spec.section_rows, 128) *
         ceil_div(spec.columns, 128 * spec.tiles_per_scale);
}

template <>
KernelText KernelKind<TileChainSpec>::text(const TileChainSpec& spec) {
  KernelText text{
      .types = "bf16_e4m3",
      .tile = "128x128",
      .summary = fmt::format("bf16 matrices [{}, {}] to e4m3, {}{}",
                             int64_t{spec.sections} * spec.section_rows, spec.columns,
                             spec.has_expert_scale
                                 ? "one known scale for each"
                                 : fmt::format("one power-of-two scale for each 128x{} tile",
                                               128 * spec.tiles_per_scale),
                             !spec.writes_rows     ? ", transposed"
                             : spec.writes_colwise ? ", and transposed"
                                                   : ""),
      .includes = {spec.writes_colwise ? "stage/colwise_tile_chain.cuh" : "stage/tile_chain.cuh"},
      .params = "TileChainParams",
      .constants =
          {
              integer_constant("kSections", spec.sections, "stacked parts, tiles restart at each"),
              integer_constant("kSectionRows", spec.section_rows, "rows of each"),
              integer_constant("kColumns", spec.columns, "of a matrix"),
              integer_constant("kTilesPerScale", spec.tiles_per_scale,
                               "neighbouring tiles that share a scale"),
              float_bits_constant("kEpsilonBits", spec.epsilon, "the smallest amax of a scale"),
              integer_constant("kThreads", spec.threads, "per CTA"),
          },
      .types_used = {{"Kernel",
                      spec.writes_colwise ? "ColwiseTileChain" : "TileChain",
                      {"kSections", "kSectionRows", "kColumns", "kTilesPerScale", "kEpsilonBits",
                       "kThreads"}}},
  };
  const bool needs_scale = spec.is_separate || !spec.writes_rows;
  if (spec.is_interleaved || spec.has_expert_scale || needs_scale) {
    text.constants.push_back(bool_constant("kInterleaved", spec.is_interleaved,
                                           "rows of the parts alternate in the input"));
    text.types_used.back().arguments.emplace_back("kInterleaved");
  }
  if (is_recorded(spec.amax)) {
    add_amax_columns(text, spec.amax);
    text.types_used.back().arguments.emplace_back("ScaleOfMatrixRecorded<kAmaxStride, kAmaxFirst>");
  } else if (spec.has_expert_scale) {
    text.types_used.back().arguments.emplace_back("ScaleOfMatrix");
  } else if (needs_scale) {
    text.types_used.back().arguments.emplace_back("ScaleOfTile<kEpsilonBits>");
  }
  if (needs_scale) {
    text.constants.push_back(bool_constant("kSeparate", spec.is_separate,
                                           "each of the two parts is an input of its own"));
    text.types_used.back().arguments.emplace_back("kSeparate");
  }
  if (!spec.writes_rows) {
    text.constants.push_back(bool_constant("kWritesRows", false, "only the transposes are wanted"));
    text.types_used.back().arguments.emplace_back("kWritesRows");
  }
  return text;
}

}  // namespace moejit::compiler
