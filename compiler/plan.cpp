// SPDX-License-Identifier: Apache-2.0
#include "compiler/plan.h"

#include <algorithm>
#include <fmt/core.h>

namespace moejit::compiler {

bool touches(const KernelPlan& kernel, std::string_view tensor) {
  return std::ranges::count(kernel.arguments, tensor, &KernelArgument::tensor) > 0 ||
         std::ranges::count(kernel.tensor_maps, tensor, &TensorMapPlan::tensor) > 0;
}

bool is_used(const Plan& plan, const TensorPlan& tensor, Phase phase) {
  return std::ranges::any_of(plan.kernels, [&](const KernelPlan& kernel) {
    return kernel.phase == phase && touches(kernel, tensor.name);
  });
}

const TensorPlan* find_tensor(const Plan& plan, std::string_view name) {
  for (const TensorPlan& tensor : plan.tensors)
    if (tensor.name == name) return &tensor;
  return nullptr;
}

bool stores_bf16(const RowChainSpec& spec) {
  return spec.quantize == QuantizeStage::kNone ||
         (spec.quantize == QuantizeStage::kKeep && spec.load == LoadStage::kRows);
}

DType operands_of(const ContractionGroupedGemmSpec& spec) {
  return spec.scales == GradientScales::kNone ? DType::kBF16 : DType::kF8E4M3;
}

int32_t result_rows(const ContractionGroupedGemmSpec& spec) {
  return spec.sections > 1 ? spec.section_rows : spec.rows;
}

bool has_activation(const RowChainSpec& spec) {
  return spec.transform != TransformStage::kIdentity;
}

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

std::string_view to_string(TensorRole role) {
  switch (role) {
    case TensorRole::kInput: return "input";
    case TensorRole::kWeight: return "weight";
    case TensorRole::kQuantized: return "quantized";
    case TensorRole::kOutput: return "output";
    case TensorRole::kSaved: return "saved";
    case TensorRole::kWorkspace: return "workspace";
  }
  return "unknown";
}

std::string_view to_string(Layout layout) {
  switch (layout) {
    case Layout::kRowMajor: return "row_major";
    case Layout::kScalesCompact: return "compact";
    case Layout::kScalesTiles: return "tiles";
  }
  return "unknown";
}

std::string_view to_string(Phase phase) {
  switch (phase) {
    case Phase::kWeights: return "weights";
    case Phase::kForward: return "forward";
    case Phase::kBackward: return "backward";
  }
  return "unknown";
}

std::string_view to_string(GradientMode mode) {
  switch (mode) {
    case GradientMode::kOverwrite: return "overwrite";
    case GradientMode::kAdd: return "add";
  }
  return "unknown";
}

std::string_view to_string(LoadStage stage) {
  switch (stage) {
    case LoadStage::kRows: return "rows";
    case LoadStage::kQuantizedRows: return "quantized_rows";
    case LoadStage::kGatedRows: return "gated_rows";
    case LoadStage::kGatedGradientRows: return "gated_gradient_rows";
    case LoadStage::kUpRows: return "up_rows";
    case LoadStage::kUpGradientRows: return "up_gradient_rows";
    case LoadStage::kCombinedRows: return "combined_rows";
  }
  return "unknown";
}

std::string_view to_string(TransformStage stage) {
  switch (stage) {
    case TransformStage::kIdentity: return "identity";
    case TransformStage::kActivationProbability: return "activation_probability";
    case TransformStage::kActivationBackward: return "activation_backward";
  }
  return "unknown";
}

std::string_view to_string(QuantizeStage stage) {
  switch (stage) {
    case QuantizeStage::kNone: return "none";
    case QuantizeStage::kKeep: return "keep";
    case QuantizeStage::k1x128: return "1x128";
    case QuantizeStage::k1x128Pairs: return "1x128_pairs";
  }
  return "unknown";
}

std::string_view to_string(StoreStage stage) {
  switch (stage) {
    case StoreStage::kRows: return "rows";
    case StoreStage::kGroupedRows: return "grouped_rows";
    case StoreStage::kGroupedGatedRows: return "grouped_gated_rows";
    case StoreStage::kGroupedUpRows: return "grouped_up_rows";
    case StoreStage::kPermuted: return "permuted";
    case StoreStage::kRowsAndPermuted: return "rows_and_permuted";
    case StoreStage::kRowsAndProbs: return "rows_and_probs";
  }
  return "unknown";
}

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

std::string_view to_string(GradientScales scales) {
  switch (scales) {
    case GradientScales::kTile: return "tile";
    case GradientScales::kRow: return "row";
    case GradientScales::kNone: return "none";
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

std::string_view to_string(GradientOutput output) {
  switch (output) {
    case GradientOutput::kBf16: return "bf16";
    case GradientOutput::kF32: return "f32";
    case GradientOutput::kF32Add: return "f32_add";
  }
  return "unknown";
}

std::string_view to_string(RowSource source) {
  switch (source) {
    case RowSource::kInOrder: return "in_order";
    case RowSource::kGathered: return "gathered";
    case RowSource::kGatheredAll: return "gathered_all";
  }
  return "unknown";
}

std::string_view to_string(TransposeRule rule) {
  switch (rule) {
    case TransposeRule::kIdeal: return "ideal";
    case TransposeRule::kForkCompat: return "fork_compat";
  }
  return "unknown";
}

namespace {

std::string text_of(const RouteSpec& s) {
  return fmt::format("route local_experts={} top_k={} splits_alignment={}{} warps={}",
                     s.local_experts, s.top_k, s.splits_alignment,
                     s.has_colwise_offs ? " colwise_offs" : "", s.warps);
}

std::string_view tokens_text(const RowChainSpec& s) {
  if (!s.moves_probs) return " without_probs";
  return s.tells_tokens ? " tells_tokens" : "";
}

std::string text_of(const RowChainSpec& s) {
  const std::string dprobs = s.store == StoreStage::kRowsAndProbs
                                 ? fmt::format(" dprobs_columns={}", s.dprobs_columns)
                                 : std::string();
  const std::string pitch = s.pitch > 0 ? fmt::format(" pitch={}", s.pitch) : std::string();
  const std::string activation =
      has_activation(s) ? fmt::format("activation={} ", to_string(s.activation)) : std::string();
  return fmt::format(
      "row_chain load={} transform={} {}quantize={} store={} columns={} local_experts={} top_k={} "
      "epsilon={:g}{} threads={} segments_in_flight={}{}{}{}{}",
      to_string(s.load), to_string(s.transform), activation, to_string(s.quantize),
      to_string(s.store), s.columns, s.local_experts, s.top_k, s.epsilon, tokens_text(s), s.threads,
      s.segments_in_flight, dprobs, pitch, s.is_interleaved ? " interleaved" : "",
      s.adds_bias_dprobs ? " bias_dprobs" : "");
}

std::string text_of(const TileChainSpec& s) {
  return fmt::format(
      "tile_chain sections={} section_rows={} columns={} tiles_per_scale={} epsilon={:g} "
      "{}{}threads={}",
      s.sections, s.section_rows, s.columns, s.tiles_per_scale, s.epsilon,
      s.writes_colwise ? "writes_colwise=true " : "", s.is_interleaved ? "interleaved=true " : "",
      s.threads);
}

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

std::string text_of(const GroupedGemmSpec& s) {
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

std::string text_of(const ContractionGroupedGemmSpec& s) {
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

std::string text_of(const TransposeSpec& s) {
  return fmt::format(
      "transpose format={} rule={}{} local_experts={} columns={} counts_flushed={} "
      "threads={}",
      to_string(s.format), to_string(s.rule),
      s.source == RowSource::kInOrder ? std::string()
                                      : fmt::format(" source={}", to_string(s.source)),
      s.local_experts, s.columns, s.counts_flushed, s.threads);
}

std::string text_of(const GatedGradientSpec& s) {
  return fmt::format(
      "gated_gradient local_experts={} columns={} activation={} epsilon={:g} threads={}",
      s.local_experts, s.columns, to_string(s.activation), s.epsilon, s.threads);
}

std::string text_of(const ColumnSumsSpec& s) {
  return fmt::format(
      "column_sums input={} local_experts={} sections={} section_columns={} pitch={}{}{}{} "
      "threads={}",
      to_string(s.input), s.local_experts, s.sections, s.section_columns, s.pitch,
      s.is_interleaved ? " interleaved" : "", s.times_prob ? " times_prob" : "",
      s.adds ? " adds" : "", s.threads);
}

std::string text_of(const RowDotsSpec& s) {
  return fmt::format("row_dots input={} local_experts={} columns={} threads={}", to_string(s.input),
                     s.local_experts, s.columns, s.threads);
}

std::string text_of(const MultiCastTransposeSpec& s) {
  return fmt::format("multi_cast_transpose input={} output={} threads={}", to_string(s.input),
                     to_string(s.output), s.threads);
}

}  // namespace

std::string to_string(const KernelSpec& spec) {
  return std::visit([](const auto& s) { return text_of(s); }, spec);
}

}  // namespace moejit::compiler
