// SPDX-License-Identifier: Apache-2.0
#include "compiler/spec/row_chain_spec.h"

#include <fmt/core.h>

namespace moejit::compiler {

bool stores_bf16(const RowChainSpec& spec) {
  return spec.quantize == QuantizeStage::kNone ||
         (spec.quantize == QuantizeStage::kKeep && spec.load == LoadStage::kRows);
}

bool has_activation(const RowChainSpec& spec) {
  return spec.transform != TransformStage::kIdentity;
}

bool has_bf16_probs(const RowChainSpec& spec) { return spec.probs == DType::kBF16; }

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
    case StoreStage::kGroupedDprobs: return "grouped_dprobs";
    case StoreStage::kPermuted: return "permuted";
    case StoreStage::kRowsAndPermuted: return "rows_and_permuted";
    case StoreStage::kRowsAndProbs: return "rows_and_probs";
  }
  return "unknown";
}

namespace {

std::string_view tokens_text(const RowChainSpec& s) {
  if (!s.moves_probs) return " without_probs";
  return s.tells_tokens ? " tells_tokens" : "";
}

}  // namespace

std::string to_string(const RowChainSpec& s) {
  const std::string dprobs = s.store == StoreStage::kRowsAndProbs
                                 ? fmt::format(" dprobs_columns={}", s.dprobs_columns)
                                 : std::string();
  const std::string burst =
      s.rows_per_burst > 0 ? fmt::format(" rows_per_burst={}", s.rows_per_burst) : std::string();
  const std::string pitch = s.pitch > 0 ? fmt::format(" pitch={}", s.pitch) : std::string();
  const std::string activation =
      has_activation(s) ? fmt::format("activation={} ", to_string(s.activation)) : std::string();
  return fmt::format(
      "row_chain load={} transform={} {}quantize={} store={} columns={} local_experts={} top_k={} "
      "epsilon={:g}{} threads={} segments_in_flight={}{}{}{}{}{}{}{}",
      to_string(s.load), to_string(s.transform), activation, to_string(s.quantize),
      to_string(s.store), s.columns, s.local_experts, s.top_k, s.epsilon, tokens_text(s), s.threads,
      s.segments_in_flight, burst, dprobs, pitch, s.is_interleaved ? " interleaved" : "",
      s.tells_dprobs ? "" : " without_dprobs", s.adds_bias_dprobs ? " bias_dprobs" : "",
      has_bf16_probs(s) ? " bf16_probs" : "");
}

}  // namespace moejit::compiler
