// SPDX-License-Identifier: Apache-2.0
#include "compiler/spec/contraction_grouped_gemm_spec.h"

#include <fmt/core.h>

namespace moejit::compiler {

DType operands_of(const ContractionGroupedGemmSpec& spec) {
  return spec.scales == GradientScales::kNone ? DType::kBF16 : DType::kF8E4M3;
}

int32_t result_rows(const ContractionGroupedGemmSpec& spec) {
  return spec.sections > 1 ? spec.section_rows : spec.rows;
}

std::string_view to_string(GradientScales scales) {
  switch (scales) {
    case GradientScales::kTile: return "tile";
    case GradientScales::kRow: return "row";
    case GradientScales::kNone: return "none";
  }
  return "unknown";
}

std::string_view to_string(GradientOutput output) {
  switch (output) {
    case GradientOutput::kBf16: return "bf16";
    case GradientOutput::kF32: return "f32";
    case GradientOutput::kF32Add: return "f32_add";
  }
  return "unknown";
}

std::string to_string(const ContractionGroupedGemmSpec& s) {
  const std::string sections =
      s.sections > 1 ? fmt::format("sections={} section_rows={} {}", s.sections, s.section_rows,
                                   s.is_interleaved ? "interleaved=true " : "")
                     : std::string();
  return fmt::format(
      "contraction_grouped_gemm scales={} output={} local_experts={} rows={} {}n={} "
      "column_tiles={}x{}+{}x{} stages={} panels_staged={} panels_loaded={}",
      to_string(s.scales), to_string(s.output), s.local_experts, s.rows, sections, s.n,
      s.wide_tiles, s.wide_columns, s.narrow_tiles, s.narrow_columns, s.stages, s.panels_staged,
      s.panels_loaded);
}

}  // namespace moejit::compiler
