// SPDX-License-Identifier: Apache-2.0
#include "compiler/kernels/contraction_grouped_gemm.h"

#include "compiler/call_dims.h"
#include "compiler/kernels/kernel_kind.h"
#include "compiler/kernels/threads_per_sm.h"
#include "compiler/support/integer.h"
#include "moejit_device/params/contraction_grouped_gemm_params.h"
#include "moejit_device/params/separate_gradients_params.h"

#include <algorithm>
#include <array>
#include <fmt/core.h>

namespace moejit::compiler {

DType operands_of(const ContractionGroupedGemmSpec& spec) {
  const bool is_bf16 = spec.scales == GradientScales::kNone || spec.has_bf16_operands;
  return is_bf16 ? DType::kBF16 : DType::kF8E4M3;
}

DType a_format(const ContractionGroupedGemmSpec& spec) {
  return spec.is_a_e5m2 ? DType::kF8E5M2 : operands_of(spec);
}

bool has_bf16_end_scales(const ContractionGroupedGemmSpec& spec) {
  return has_end_scales(spec) && operands_of(spec) == DType::kBF16;
}

bool has_end_scales(const ContractionGroupedGemmSpec& spec) {
  return spec.scales == GradientScales::kTensor || spec.scales == GradientScales::kRowColumn;
}

int32_t result_rows(const ContractionGroupedGemmSpec& spec) {
  return spec.sections > 1 ? spec.section_rows : spec.rows;
}

bool may_be_clustered(const ContractionGroupedGemmSpec& spec) { return spec.rows > kGemmTileRows; }

std::string_view to_string(GradientScales scales) {
  switch (scales) {
    case GradientScales::kTile: return "tile";
    case GradientScales::kRow: return "row";
    case GradientScales::kTensor: return "tensor";
    case GradientScales::kRowColumn: return "row_column";
    case GradientScales::kNone: return "none";
  }
  return "unknown";
}

bool adds(GradientOutput output) {
  return output == GradientOutput::kF32Add || output == GradientOutput::kBf16Add;
}

DType dtype_of(GradientOutput output) {
  const bool is_bf16 = output == GradientOutput::kBf16 || output == GradientOutput::kBf16Add;
  return is_bf16 ? DType::kBF16 : DType::kF32;
}

std::string_view to_string(GradientOutput output) {
  switch (output) {
    case GradientOutput::kBf16: return "bf16";
    case GradientOutput::kBf16Add: return "bf16_add";
    case GradientOutput::kF32: return "f32";
    case GradientOutput::kF32Add: return "f32_add";
  }
  return "unknown";
}

std::string to_string(const ContractionGroupedGemmSpec& s) {
  const std::string sections =
      s.sections > 1 ? fmt::format("sections={} section_rows={} {}", s.sections, s.section_rows,
                                   s.is_interleaved ? "interleaved=true "
                                   : s.is_separate  ? "separate=true "
                                                    : "")
                     : std::string();
  return fmt::format(
      "contraction_grouped_gemm {}scales={} {}output={} local_experts={} rows={} {}n={} "
      "column_tiles={}x{}+{}x{}{} stages={} panels_staged={} panels_loaded={}{}{}{}{}",
      s.is_a_e5m2              ? "a=F8_E5M2 "
      : has_bf16_end_scales(s) ? "operands=BF16 "
                               : "",
      to_string(s.scales),
      has_end_scales(s) ? fmt::format("accumulation={} ", to_string(s.accumulation))
                        : std::string(),
      to_string(s.output), s.local_experts, s.rows, sections, s.n, s.wide_tiles, s.wide_columns,
      s.narrow_tiles, s.narrow_columns, s.has_column_halves ? " column_halves" : "", s.stages,
      s.panels_staged, s.panels_loaded,
      s.band_tiles == kUsualBandTiles ? "" : fmt::format(" band_tiles={}", s.band_tiles),
      s.cluster_ctas == 1 ? "" : fmt::format(" cluster_ctas={}", s.cluster_ctas),
      s.start_times == 1 ? "" : fmt::format(" start_times={}", s.start_times),
      s.ends_groups ? " ends_groups" : "");
}

namespace {

using device::ContractionGroupedGemmParams;
using enum Access;

constexpr std::array kContractionGroupedGemmPointers = {
    MOEJIT_POINTER(ContractionGroupedGemmParams, a_scale_inv, kRead),
    MOEJIT_POINTER(ContractionGroupedGemmParams, b_scale_inv, kRead),
    MOEJIT_POINTER(ContractionGroupedGemmParams, counts, kRead),
    MOEJIT_POINTER(ContractionGroupedGemmParams, offs, kRead),
    MOEJIT_POINTER(ContractionGroupedGemmParams, elapsed, kWrite),
    MOEJIT_CALL_POINTERS(ContractionGroupedGemmParams),
};

constexpr std::array kContractionGroupedGemmMaps = {
    MOEJIT_POINTER(ContractionGroupedGemmParams, a_map, kRead),
    MOEJIT_POINTER(ContractionGroupedGemmParams, b_map, kRead),
    MOEJIT_POINTER(ContractionGroupedGemmParams, d_map, kWrite),
};

constexpr std::array kContractionGroupedGemmNumbers = {
    MOEJIT_NUMBER(ContractionGroupedGemmParams, columns),
    MOEJIT_NUMBER(ContractionGroupedGemmParams, call.tokens)};

// A result that is added to is also read.
constexpr std::array kAddingMaps = {
    kContractionGroupedGemmMaps[0], kContractionGroupedGemmMaps[1],
    MOEJIT_POINTER(ContractionGroupedGemmParams, d_map, kReadWrite)};

constexpr ParamRecord kContractionGroupedGemmRecord{
    "contraction_grouped_gemm", sizeof(ContractionGroupedGemmParams),
    kContractionGroupedGemmPointers, kContractionGroupedGemmMaps, kContractionGroupedGemmNumbers};
static_assert(is_complete(kContractionGroupedGemmRecord));
constexpr ParamRecord kAddingRecord{
    kContractionGroupedGemmRecord.name, kContractionGroupedGemmRecord.bytes,
    kContractionGroupedGemmPointers, kAddingMaps, kContractionGroupedGemmNumbers};

using device::SeparateGradientsParams;

constexpr std::array kSeparatePointers = {
    MOEJIT_POINTER(SeparateGradientsParams, a_scale_inv, kRead),
    MOEJIT_POINTER(SeparateGradientsParams, b_scale_inv, kRead),
    MOEJIT_POINTER(SeparateGradientsParams, counts, kRead),
    MOEJIT_POINTER(SeparateGradientsParams, offs, kRead),
    MOEJIT_POINTER(SeparateGradientsParams, elapsed, kWrite),
    MOEJIT_CALL_POINTERS(SeparateGradientsParams),
};

constexpr std::array kSeparateNumbers = {MOEJIT_NUMBER(SeparateGradientsParams, columns),
                                         MOEJIT_NUMBER(SeparateGradientsParams, call.tokens)};

template <Access kAccess>
constexpr std::array kSeparateMaps = {
    MOEJIT_POINTER(SeparateGradientsParams, a_map, kRead),
    MOEJIT_POINTER(SeparateGradientsParams, b_map, kRead),
    RecordTensor{"d_map", offsetof(SeparateGradientsParams, d_map.gate), kAccess},
    RecordTensor{"d_up_map", offsetof(SeparateGradientsParams, d_map.up), kAccess},
};

template <Access kAccess>
constexpr ParamRecord kSeparateRecord{"separate_gradients", sizeof(SeparateGradientsParams),
                                      kSeparatePointers, kSeparateMaps<kAccess>, kSeparateNumbers};
static_assert(is_complete(kSeparateRecord<kWrite>));

}  // namespace

template <>
LaunchShape KernelKind<ContractionGroupedGemmSpec>::shape(const ContractionGroupedGemmSpec& spec) {
  constexpr int32_t kMathWarpgroups = 2, kPanelBytes = 64 * 128;
  const int32_t columns = spec.wide_tiles > 0 ? spec.wide_columns : spec.narrow_columns;
  const int32_t staging =
      align_up(spec.panels_staged * kPanelBytes + 2 * kBarrierBytes, kSwizzleBytes);
  // A stage has two scales for the tile, or one for each row of A and B.
  const int32_t factors = spec.scales == GradientScales::kRow    ? (kGemmTileRows + columns) * 4
                          : spec.scales == GradientScales::kTile ? 16
                                                                 : 0;
  LaunchShape shape =
      gemm_shape(spec.stages, kGemmTileRows, columns, factors, kMathWarpgroups * staging);
  shape.cluster_ctas = spec.cluster_ctas;
  return shape;
}

template <>
int64_t KernelKind<ContractionGroupedGemmSpec>::busy(const ContractionGroupedGemmSpec& spec,
                                                     const CallBounds&, int64_t) {
  return busy_ctas(spec);
}

template <>
std::vector<KernelNumber> KernelKind<ContractionGroupedGemmSpec>::numbers(
    const ContractionGroupedGemmSpec&, const CallBounds&) {
  return {{.role = "columns", .dim = CallDim::kColumns}, kCallTokens};
}

namespace {

// Returns how many scales both operands have over so many columns.
int64_t scale_count(const ContractionGroupedGemmSpec& spec, int64_t columns) {
  switch (spec.scales) {
    case GradientScales::kTile:
      return (ceil_div(spec.rows, 128) + ceil_div(spec.n, 128)) * ceil_div(columns, 128);
    case GradientScales::kRow: return (int64_t{spec.rows} + spec.n) * ceil_div(columns, 128);
    case GradientScales::kTensor: return 2 * int64_t{spec.local_experts};
    case GradientScales::kRowColumn:
      return int64_t{spec.local_experts} * (int64_t{spec.rows} + spec.n);
    case GradientScales::kNone: break;
  }
  return 0;
}

}  // namespace

// Counts operands and their scales once, and D once, or twice where something is added to it. An
// expert without columns adds nothing.
template <>
Work KernelKind<ContractionGroupedGemmSpec>::work(const ContractionGroupedGemmSpec& spec,
                                                  const CallBounds&, const CallRows& rows) {
  const int64_t elements = int64_t{spec.sections} * result_rows(spec) * spec.n;
  const int64_t passes = adds(spec.output) ? 2 : 1;
  const int64_t experts =
      adds(spec.output)
          ? rows.routed_experts.value_or(std::min<int64_t>(spec.local_experts, rows.routed))
          : spec.local_experts;
  return {.min_bytes = rows.routed * (spec.rows + spec.n) * size_bytes(operands_of(spec)) +
                       4 * scale_count(spec, rows.routed) +
                       experts * elements * size_bytes(dtype_of(spec.output)) * passes,
          .multiply_adds = products_of(rows.routed, elements)};
}

template <>
const ParamRecord& KernelKind<ContractionGroupedGemmSpec>::record(
    const ContractionGroupedGemmSpec& spec) {
  if (spec.is_separate)
    return adds(spec.output) ? kSeparateRecord<kReadWrite> : kSeparateRecord<kWrite>;
  return adds(spec.output) ? kAddingRecord : kContractionGroupedGemmRecord;
}

int64_t busy_ctas(const ContractionGroupedGemmSpec& spec) {
  const int64_t row_tiles =
      ceil_div(spec.rows, spec.cluster_ctas * kGemmTileRows) * spec.cluster_ctas;
  return spec.local_experts * row_tiles * (spec.wide_tiles + spec.narrow_tiles);
}

}  // namespace moejit::compiler
