// SPDX-License-Identifier: Apache-2.0
#include "compiler/emitter/kernel_text.h"

#include <fmt/core.h>

namespace moejit::compiler {
namespace {

std::string load_type(const RowChainSpec& spec) {
  switch (spec.load) {
    case LoadStage::kRows:
      return spec.quantize == QuantizeStage::kKeep ? "LoadUnchangedRows<kColumns>"
                                                   : "LoadRows<kColumns>";
    case LoadStage::kQuantizedRows: return "LoadQuantizedRows<kColumns>";
    case LoadStage::kGatedRows: return "LoadGatedRows<kColumns>";
    case LoadStage::kGatedGradientRows: return "LoadGatedGradientRows<kColumns>";
    case LoadStage::kCombinedRows: return "LoadCombinedRows<kColumns, kTopK>";
  }
  return {};
}

std::string transform_type(TransformStage stage) {
  switch (stage) {
    case TransformStage::kIdentity: return "TransformIdentity";
    case TransformStage::kActivationProbability: return "TransformActivationProbability";
    case TransformStage::kActivationBackward: return "TransformActivationBackward";
  }
  return {};
}

std::string quantize_type(QuantizeStage stage) {
  switch (stage) {
    case QuantizeStage::kNone: return "QuantizeNone";
    case QuantizeStage::kKeep: return "QuantizeKeep";
    case QuantizeStage::k1x128: return "Quantize1x128<kEpsilonBits>";
    case QuantizeStage::k1x128Pairs: return "Quantize1x128Pairs<kEpsilonBits>";
  }
  return {};
}

std::string store_type(const RowChainSpec& spec) {
  const char* const moves_probs = spec.tells_tokens   ? ", kMovesProbs, E4m3, kTellsTokens"
                                  : stores_bf16(spec) ? ", kMovesProbs, Bf16"
                                  : spec.moves_probs  ? ""
                                                      : ", kMovesProbs";
  switch (spec.store) {
    case StoreStage::kRows: return "StoreRows<kColumns>";
    case StoreStage::kGroupedRows: return "StoreGroupedRows<kColumns, kLocalExperts>";
    case StoreStage::kGroupedGatedRows:
      return spec.pitch > 0 ? "StoreGroupedGatedRows<kColumns, kLocalExperts, kPitch>"
                            : "StoreGroupedGatedRows<kColumns, kLocalExperts>";
    case StoreStage::kPermuted:
      return fmt::format("StorePermuted<kColumns, kTopK, kLocalExperts{}>", moves_probs);
    case StoreStage::kRowsAndPermuted:
      return fmt::format("StoreRowsAndPermuted<kColumns, kTopK, kLocalExperts{}>", moves_probs);
    case StoreStage::kRowsAndProbs: return "StoreRowsAndProbs<kColumns, kTopK, kDprobsColumns>";
  }
  return {};
}

std::string load_words(LoadStage stage) {
  switch (stage) {
    case LoadStage::kRows: return "bf16 rows";
    case LoadStage::kQuantizedRows: return "e4m3 rows with their scales";
    case LoadStage::kGatedRows: return "bf16 rows of gate and up";
    case LoadStage::kGatedGradientRows:
      return "bf16 rows of gate, up and the activation's gradient";
    case LoadStage::kCombinedRows: return "the sum of each token's bf16 rows";
  }
  return {};
}

std::string transform_words(TransformStage stage) {
  switch (stage) {
    case TransformStage::kIdentity: return "";
    case TransformStage::kActivationProbability: return "silu(gate) * up * probability, ";
    case TransformStage::kActivationBackward: return "gradients of gate, up and probability, ";
  }
  return {};
}

std::string quantize_words(QuantizeStage stage) {
  switch (stage) {
    case QuantizeStage::kNone: return "rounded to bf16";
    case QuantizeStage::kKeep: return "unchanged";
    case QuantizeStage::k1x128: return "to e4m3, one power-of-two scale for 128 columns of a row";
    case QuantizeStage::k1x128Pairs:
      return "to e4m3, one power-of-two scale for 256 columns of a row";
  }
  return {};
}

std::string store_words(StoreStage stage) {
  switch (stage) {
    case StoreStage::kRows: return "in their order";
    case StoreStage::kGroupedRows: return "in their order, pad rows as zeros";
    case StoreStage::kGroupedGatedRows:
      return "in their order, pad rows as zeros, beside a partial sum of each segment";
    case StoreStage::kPermuted: return "to every destination of the row, and pad rows";
    case StoreStage::kRowsAndPermuted:
      return "in their order and to every destination of the row, and pad rows";
    case StoreStage::kRowsAndProbs:
      return "in their order, and the gradients of their probabilities";
  }
  return {};
}

std::string summary_of(const RowChainSpec& spec) {
  return fmt::format("{}, {}{}, stored {}", load_words(spec.load), transform_words(spec.transform),
                     quantize_words(spec.quantize), store_words(spec.store));
}

bool has_new_scales(QuantizeStage stage) {
  return stage == QuantizeStage::k1x128 || stage == QuantizeStage::k1x128Pairs;
}

bool is_permuted(StoreStage stage) {
  return stage == StoreStage::kPermuted || stage == StoreStage::kRowsAndPermuted;
}

bool is_grouped(StoreStage stage) {
  return stage == StoreStage::kGroupedRows || stage == StoreStage::kGroupedGatedRows;
}

bool is_gated(StoreStage stage) { return stage == StoreStage::kGroupedGatedRows; }

// Gives the store stage a name of its own: with all its arguments it does not fit into a line.
void name_store(KernelText& text) {
  std::string& store = text.types_used.front().arguments[3];
  const size_t open = store.find('<');
  ComposedType named{"Store", store.substr(0, open), {}};
  for (size_t at = open + 1; at < store.size(); at = store.find_first_of(",>", at) + 2)
    named.arguments.push_back(store.substr(at, store.find_first_of(",>", at) - at));
  store = "Store";
  text.types_used.insert(text.types_used.begin(), named);
}

}  // namespace

KernelText describe(const RowChainSpec& spec) {
  KernelText text{
      .types = fmt::format("{}_{}", spec.load == LoadStage::kQuantizedRows ? "e4m3" : "bf16",
                           stores_bf16(spec) ? "bf16" : "e4m3"),
      .tile = "1x128",
      .summary = summary_of(spec),
      .includes = {"stage/row_chain.cuh"},
      .params = "RowChainParams",
      .constants = {integer_constant("kColumns", spec.columns,
                                     is_gated(spec.store) ? "of each half of a row that is stored"
                                                          : "of a row that is stored")},
      .types_used = {{"Kernel",
                      "RowChain",
                      {load_type(spec), transform_type(spec.transform),
                       quantize_type(spec.quantize), store_type(spec), "kThreads",
                       "kSegmentsInFlight"}}},
  };
  if (spec.tells_tokens) name_store(text);
  // Only constants that a stage uses.
  const bool has_dprobs = spec.store == StoreStage::kRowsAndProbs;
  if (is_permuted(spec.store) || spec.load == LoadStage::kCombinedRows || has_dprobs) {
    text.constants.push_back(
        integer_constant("kTopK", spec.top_k, "experts that a token is routed to"));
  }
  if (is_permuted(spec.store) || is_grouped(spec.store)) {
    text.constants.push_back(
        integer_constant("kLocalExperts", spec.local_experts, "groups of rows"));
  }
  if (spec.pitch > 0) {
    text.constants.push_back(
        integer_constant("kPitch", spec.pitch, "columns of a half with the zeros behind it"));
  }
  if (has_dprobs) {
    text.constants.push_back(
        integer_constant("kDprobsColumns", spec.dprobs_columns, "blocks of a row's dprobs"));
  }
  if (!spec.moves_probs) {
    text.constants.push_back(
        {"bool", "kMovesProbs", "false", "probabilities stay, and zero no rows"});
  } else if (is_permuted(spec.store) && (stores_bf16(spec) || spec.tells_tokens)) {
    text.constants.push_back({"bool", "kMovesProbs", "true", "beside the rows; 0 zeros the row"});
  }
  if (spec.tells_tokens)
    text.constants.push_back({"bool", "kTellsTokens", "true", "whose row each permuted one is"});
  if (has_new_scales(spec.quantize)) {
    text.constants.push_back(
        float_bits_constant("kEpsilonBits", spec.epsilon, "the smallest amax of a scale"));
  }
  text.constants.push_back(integer_constant("kThreads", spec.threads, "per CTA"));
  text.constants.push_back(integer_constant("kSegmentsInFlight", spec.segments_in_flight,
                                            "segments loaded before one is used"));
  return text;
}

}  // namespace moejit::compiler
