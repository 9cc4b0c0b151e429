// SPDX-License-Identifier: Apache-2.0
#include "compiler/spec/grouped_gemm_spec.h"

#include <fmt/core.h>

namespace moejit::compiler {

bool is_one_chain(const GroupedGemmSpec& spec) {
  return spec.operands == DType::kBF16 || spec.accumulation == GemmAccumulation::kFast;
}

bool stores_result(const GroupedGemmSpec& spec) {
  return spec.epilogue != GemmEpilogue::kActivationQuantize;
}

bool stores_activation(const GroupedGemmSpec& spec) {
  return spec.epilogue != GemmEpilogue::kStoreBf16;
}

int32_t tile_sections(const GroupedGemmSpec& spec) { return stores_activation(spec) ? 2 : 1; }

std::string_view to_string(GemmScales scales) {
  switch (scales) {
    case GemmScales::kRowBlock: return "row_block";
    case GemmScales::kTensor: return "tensor";
    case GemmScales::kRowColumn: return "row_column";
    case GemmScales::kNone: return "none";
  }
  return "unknown";
}

std::string_view to_string(GemmAccumulation accumulation) {
  switch (accumulation) {
    case GemmAccumulation::kFp32: return "fp32";
    case GemmAccumulation::kFast: return "fast";
  }
  return "unknown";
}

std::string_view to_string(GemmEpilogue epilogue) {
  switch (epilogue) {
    case GemmEpilogue::kStoreBf16: return "store_bf16";
    case GemmEpilogue::kActivationQuantize: return "activation_quantize";
    case GemmEpilogue::kStoreAndActivationQuantize: return "store_and_activation_quantize";
  }
  return "unknown";
}

std::string_view to_string(GemmBias bias) {
  switch (bias) {
    case GemmBias::kNone: return "none";
    case GemmBias::kColumns: return "columns";
    case GemmBias::kColumnsTimesProb: return "columns_times_prob";
  }
  return "unknown";
}

std::string_view to_string(Major major) {
  switch (major) {
    case Major::kK: return "k";
    case Major::kMn: return "mn";
  }
  return "unknown";
}

namespace {

std::string tiles_text(const GroupedGemmSpec& s) {
  if (s.is_swapped)
    return fmt::format("column_tiles={}x{} swapped_rows={}", s.narrow_tiles, s.narrow_columns,
                       s.tile_rows);
  if (tile_sections(s) > 1)
    return fmt::format("column_tiles={}x{} tile_sections={}", s.narrow_tiles, s.narrow_columns,
                       tile_sections(s));
  return fmt::format("column_tiles={}x{}+{}x{}", s.wide_tiles, s.wide_columns, s.narrow_tiles,
                     s.narrow_columns);
}

std::string accumulation_text(const GroupedGemmSpec& s) {
  if (is_one_chain(s)) return fmt::format("accumulation={}", to_string(s.accumulation));
  return fmt::format("blocks_per_promotion={}", s.blocks_per_promotion);
}

std::string bias_text(const GroupedGemmSpec& s) {
  if (s.bias == GemmBias::kNone) return {};
  return fmt::format("bias={} {}", to_string(s.bias),
                     s.has_interleaved_bias ? "interleaved_bias=true " : "");
}

}  // namespace

std::string to_string(const GroupedGemmSpec& s) {
  const std::string activation =
      stores_activation(s)
          ? fmt::format("activation={} epsilon={:g} ", to_string(s.activation), s.epsilon)
          : std::string();
  return fmt::format(
      "grouped_gemm operands={} scales={} epilogue={} {}{}local_experts={} sections={} "
      "section_n={} k={} {} {}stages={} {}",
      to_string(s.operands), to_string(s.scales), to_string(s.epilogue), bias_text(s),
      s.b_major == Major::kMn ? "b_major=mn " : "", s.local_experts, s.sections, s.section_n, s.k,
      tiles_text(s), activation, s.stages, accumulation_text(s));
}

}  // namespace moejit::compiler
