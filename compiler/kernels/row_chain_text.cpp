// SPDX-License-Identifier: Apache-2.0
#include "compiler/emitter/emitter.h"
#include "compiler/kernels/amax_columns.h"
#include "compiler/kernels/kernel_kind.h"
#include "compiler/kernels/row_chain.h"

#include <fmt/format.h>

namespace moejit::compiler {
namespace {

bool is_1x32(QuantizeStage stage) {
  return stage == QuantizeStage::k1x32 || stage == QuantizeStage::k1x32Values;
}

std::string load_type(const RowChainSpec& spec) {
  switch (spec.load) {
    case LoadStage::kRows:
      return spec.quantize == QuantizeStage::kKeep || is_1x32(spec.quantize)
                 ? "LoadUnchangedRows<kColumns>"
                 : "LoadRows<kColumns>";
    case LoadStage::kQuantizedRows: return "LoadQuantizedRows<kColumns>";
    case LoadStage::kTwoLevelRows: return "LoadTwoLevelRows<kColumns>";
    case LoadStage::kMatrixRows:
      return spec.is_interleaved ? "LoadMatrixRows<kColumns, kSections, kSectionRows, kInterleaved>"
                                 : "LoadMatrixRows<kColumns, kSections, kSectionRows>";
    case LoadStage::kGatedRows:
      return spec.is_interleaved ? "LoadGatedRows<kColumns, kInterleaved>"
                                 : "LoadGatedRows<kColumns>";
    case LoadStage::kGatedGradientRows:
      return spec.is_interleaved ? "LoadGatedGradientRows<kColumns, kInterleaved>"
                                 : "LoadGatedGradientRows<kColumns>";
    case LoadStage::kUpRows: return "LoadUpRows<kColumns>";
    case LoadStage::kUpGradientRows: return "LoadUpGradientRows<kColumns>";
    case LoadStage::kCombinedRows: return "LoadCombinedRows<kColumns, kTopK>";
  }
  return {};
}

std::string transform_type(TransformStage stage) {
  switch (stage) {
    case TransformStage::kIdentity: return "TransformIdentity";
    case TransformStage::kActivationProbability:
      return "TransformActivationProbability<Activation>";
    case TransformStage::kActivationBackward: return "TransformActivationBackward<Activation>";
  }
  return {};
}

std::string quantize_type(QuantizeStage stage) {
  switch (stage) {
    case QuantizeStage::kNone: return "QuantizeNone";
    case QuantizeStage::kKeep: return "QuantizeKeep";
    case QuantizeStage::k1x128: return "Quantize1x128<kEpsilonBits>";
    case QuantizeStage::k1x128Pairs: return "Quantize1x128Pairs<kEpsilonBits>";
    case QuantizeStage::k1x128Rounded: return "Quantize1x128Rounded<kEpsilonBits>";
    case QuantizeStage::kExpert: return "QuantizeNone";  // the store stage casts
    case QuantizeStage::kAmax: return "RoundSetsOfSegments";
    case QuantizeStage::k1x32: return "Quantize1x32";
    case QuantizeStage::k1x32Values: return "Recover1x32";
    case QuantizeStage::kRow: return "kEpsilonBits";  // the skeleton quantizes
  }
  return {};
}

// Returns the FP8 format that a store stage casts to with scales of experts.
std::string_view cast_format(const RowChainSpec& spec) {
  return spec.format == DType::kF8E5M2 ? "E5m2" : "E4m3";
}

bool is_gated(StoreStage stage) { return stage == StoreStage::kGroupedGatedRows; }

// Returns whether the store stage casts with scales of experts, or finds their magnitudes.
bool has_expert_stage(const RowChainSpec& spec) {
  return spec.quantize == QuantizeStage::kExpert || spec.quantize == QuantizeStage::kAmax;
}

// Return whether the optional arguments of a store stage are written out, for their own sake or for
// later arguments. They say whether it writes tokens, the element of permuted rows, and the
// gradients of biases.
bool names_tokens(const RowChainSpec& spec) {
  return !has_expert_stage(spec) && (spec.tells_tokens || has_bf16_probs(spec));
}

bool names_element(const RowChainSpec& spec) {
  return names_tokens(spec) || stores_bf16(spec) || spec.load == LoadStage::kTwoLevelRows;
}

// Returns the type of the elements of permuted rows.
std::string_view element_type(const RowChainSpec& spec) {
  if (spec.load == LoadStage::kTwoLevelRows) return "E2m1x2";
  return stores_bf16(spec) ? "Bf16" : "E4m3";
}

bool names_bias_dprobs(const RowChainSpec& spec) {
  return spec.adds_bias_dprobs || (spec.store == StoreStage::kRowsAndProbs && has_bf16_probs(spec));
}

// Returns the stage that stores magnitudes.
ComposedType amax_stage(const RowChainSpec& spec) {
  if (!is_permuted(spec.store)) return {"Store", "StoreGroupedAmax", {"kColumns", "kLocalExperts"}};
  ComposedType store{"Store", "StorePermutedAmax", {"kColumns", "kTopK", "kMovesProbs"}};
  if (has_bf16_probs(spec)) store.arguments.emplace_back("Bf16");
  return store;
}

// Returns the stage that casts permuted rows for each of their destinations.
ComposedType permuted_cast_stage(const RowChainSpec& spec) {
  ComposedType store{
      "Store", "StorePermutedCast", {"kColumns", "kTopK", "kLocalExperts", "kMovesProbs"}};
  store.arguments.emplace_back(cast_format(spec));
  const bool names_amax = is_recorded(spec.amax) || spec.tells_tokens;
  if (names_amax || has_bf16_probs(spec))
    store.arguments.emplace_back(has_bf16_probs(spec) ? "Bf16" : "float");
  if (names_amax) store.arguments.emplace_back(is_recorded(spec.amax) ? "Amax" : "AmaxIsDropped");
  if (spec.tells_tokens) store.arguments.emplace_back("kTellsTokens");
  return store;
}

// Returns the store stage of permuted rows that have one scale each.
ComposedType permuted_scaled_rows(const RowChainSpec& spec) {
  ComposedType store{
      "Store", "StorePermutedScaledRows", {"kColumns", "kTopK", "kLocalExperts", "kKeeps"}};
  if (names_tokens(spec) || !spec.moves_probs) store.arguments.emplace_back("kMovesProbs");
  if (names_tokens(spec)) store.arguments.emplace_back("kTellsTokens");
  if (has_bf16_probs(spec)) store.arguments.emplace_back("Bf16");
  return store;
}

// Returns the store stage with its arguments.
ComposedType store_stage(const RowChainSpec& spec) {
  if (spec.quantize == QuantizeStage::kAmax) return amax_stage(spec);
  if (spec.quantize == QuantizeStage::kExpert && is_permuted(spec.store))
    return permuted_cast_stage(spec);
  if (has_row_scale(spec) && is_permuted(spec.store)) return permuted_scaled_rows(spec);
  ComposedType store{"Store", "", {"kColumns"}};
  const auto take = [&](std::string type, std::initializer_list<const char*> arguments) {
    store.template_name = std::move(type);
    store.arguments.insert(store.arguments.end(), arguments.begin(), arguments.end());
  };
  switch (spec.store) {
    case StoreStage::kRows: take("StoreRows", {}); break;
    case StoreStage::kGroupedRows: take("StoreGroupedRows", {"kLocalExperts"}); break;
    case StoreStage::kGroupedGatedRows: take("StoreGroupedGatedRows", {"kLocalExperts"}); break;
    case StoreStage::kGroupedUpRows: take("StoreGroupedUpRows", {"kLocalExperts"}); break;
    case StoreStage::kGroupedDprobs: take("StoreGroupedDprobs", {"kLocalExperts"}); break;
    case StoreStage::kPermuted: take("StorePermuted", {"kTopK", "kLocalExperts"}); break;
    case StoreStage::kRowsAndPermuted:
      take("StoreRowsAndPermuted", {"kTopK", "kLocalExperts"});
      break;
    case StoreStage::kRowsAndProbs: take("StoreRowsAndProbs", {"kTopK", "kDprobsColumns"}); break;
  }
  if (names_bias_dprobs(spec)) store.arguments.emplace_back("kAddsBiasDprobs");
  if (spec.store == StoreStage::kRowsAndProbs && has_bf16_probs(spec))
    store.arguments.emplace_back("Bf16");
  if (spec.pitch > 0) store.arguments.emplace_back("kPitch");
  // The next arguments come after optional ones, which must be given then.
  if (is_gated(spec.store) && (spec.is_interleaved || !spec.tells_dprobs)) {
    if (spec.pitch == 0) store.arguments.emplace_back("kColumns");
    store.arguments.emplace_back("kInterleaved");
  }
  if (!spec.tells_dprobs) store.arguments.emplace_back("kTellsDprobs");
  if (!is_permuted(spec.store)) return store;
  if (names_element(spec) || !spec.moves_probs) store.arguments.emplace_back("kMovesProbs");
  if (names_element(spec)) store.arguments.emplace_back(element_type(spec));
  if (names_tokens(spec)) store.arguments.emplace_back("kTellsTokens");
  if (has_bf16_probs(spec)) store.arguments.emplace_back("Bf16");
  return store;
}

std::string inline_text(const ComposedType& type) {
  return fmt::format("{}<{}>", type.template_name, fmt::join(type.arguments, ", "));
}

// Returns the store stage as the kernel's argument: by its name, or written out.
std::string store_text(const RowChainSpec& spec, const ComposedType& store, bool is_named) {
  const std::string text = is_named ? store.name : inline_text(store);
  return has_row_scale(spec) && !is_permuted(spec.store) ? fmt::format("StoreScaledRows<{}>", text)
                                                         : text;
}

std::string_view stored_type(const RowChainSpec& spec) {
  if (spec.store == StoreStage::kGroupedDprobs || spec.quantize == QuantizeStage::kAmax)
    return "f32";
  if (spec.quantize == QuantizeStage::kExpert)
    return spec.format == DType::kF8E5M2 ? "e5m2" : "e4m3";
  if (spec.load == LoadStage::kTwoLevelRows) return "e2m1";
  return stores_bf16(spec) ? "bf16" : "e4m3";
}

std::string_view loaded_type(const RowChainSpec& spec) {
  if (spec.load == LoadStage::kTwoLevelRows) return "e2m1";
  return spec.load == LoadStage::kQuantizedRows ? "e4m3" : "bf16";
}

// Returns whether the kernel finds scales, of blocks or rows.
bool has_new_scales(QuantizeStage stage) {
  return stage == QuantizeStage::k1x128 || stage == QuantizeStage::k1x128Pairs ||
         stage == QuantizeStage::k1x128Rounded || stage == QuantizeStage::kRow;
}

std::vector<std::string> includes_of(const RowChainSpec& spec) {
  if (has_row_scale(spec)) return {"stage/whole_row_chain.cuh"};
  std::vector<std::string> includes;
  if (spec.quantize == QuantizeStage::k1x128Rounded)
    includes.emplace_back("stage/quantize_rounded.cuh");
  if (is_1x32(spec.quantize)) includes.emplace_back("stage/quantize_1x32.cuh");
  includes.emplace_back("stage/row_chain.cuh");
  return includes;
}

bool is_grouped(StoreStage stage) {
  return stage == StoreStage::kGroupedRows || stage == StoreStage::kGroupedGatedRows ||
         stage == StoreStage::kGroupedUpRows || stage == StoreStage::kGroupedDprobs;
}

std::string activation_type(const RowChainSpec& spec) {
  switch (spec.transform) {
    case TransformStage::kIdentity: return "";
    case TransformStage::kActivationProbability: return value_type_text(spec.activation);
    case TransformStage::kActivationBackward: return gradients_type_text(spec.activation);
  }
  return {};
}

}  // namespace

template <>
KernelText KernelKind<RowChainSpec>::text(const RowChainSpec& spec) {
  const ComposedType store = store_stage(spec);
  // With all its arguments the store stage does not fit into a line, so it gets a name.
  const bool is_named = has_expert_stage(spec) || names_tokens(spec) ||
                        (has_row_scale(spec) && is_permuted(spec.store)) || spec.adds_bias_dprobs ||
                        !spec.tells_dprobs || (spec.is_interleaved && is_gated(spec.store));
  KernelText text{
      .types = fmt::format("{}{}_{}", has_activation(spec) ? spec.activation.preset + "_" : "",
                           loaded_type(spec), stored_type(spec)),
      .tile = has_row_scale(spec) ? fmt::format("1x{}", spec.columns) : "1x128",
      .summary = summary_of(spec),
      .includes = includes_of(spec),
      .params = "RowChainParams",
      .constants = {integer_constant("kColumns", spec.columns,
                                     is_gated(spec.store) ? "of each half of a row that is stored"
                                                          : "of a row that is stored")},
      .own_type = activation_type(spec),
      .types_used = {{"Kernel",
                      has_row_scale(spec) ? "WholeRowChain" : "RowChain",
                      {load_type(spec), transform_type(spec.transform),
                       quantize_type(spec.quantize), store_text(spec, store, is_named), "kThreads",
                       "kSegmentsInFlight"}}},
  };
  if (is_named) text.types_used.insert(text.types_used.begin(), store);
  if (spec.quantize == QuantizeStage::kExpert && !is_permuted(spec.store)) {
    text.types_used.insert(
        text.types_used.begin() + 1,
        {"Cast", "StoreCast", {std::string(cast_format(spec)), "kLocalExperts", store.name}});
    if (is_recorded(spec.amax)) text.types_used[1].arguments.emplace_back("Amax");
    text.types_used.back().arguments[3] = "Cast";
  }
  if (is_recorded(spec.amax)) {
    text.types_used.insert(text.types_used.begin(), recorded_amax());
    add_amax_columns(text, spec.amax);
  }
  // Adds only constants that a stage uses.
  const bool has_dprobs = spec.store == StoreStage::kRowsAndProbs;
  if (is_permuted(spec.store) || spec.load == LoadStage::kCombinedRows || has_dprobs) {
    text.constants.push_back(
        integer_constant("kTopK", spec.top_k, "experts that a token is routed to"));
  }
  const bool has_groups = spec.quantize != QuantizeStage::kAmax || !is_permuted(spec.store);
  if (has_groups && (is_permuted(spec.store) || is_grouped(spec.store))) {
    text.constants.push_back(
        integer_constant("kLocalExperts", spec.local_experts, "groups of rows"));
  }
  if (spec.load == LoadStage::kMatrixRows) {
    text.constants.push_back(
        integer_constant("kSections", spec.sections, "equal parts of a matrix's rows"));
    text.constants.push_back(integer_constant("kSectionRows", spec.section_rows, "rows of each"));
  }
  if (spec.pitch > 0) {
    text.constants.push_back(
        integer_constant("kPitch", spec.pitch, "columns of a half with the zeros behind it"));
  }
  if (spec.is_interleaved) {
    text.constants.push_back(bool_constant("kInterleaved", true,
                                           spec.load == LoadStage::kMatrixRows
                                               ? "rows of the parts alternate in the input"
                                               : "gate and up alternate in a row"));
  } else if (is_gated(spec.store) && !spec.tells_dprobs) {
    text.constants.push_back(bool_constant("kInterleaved", false, "all of gate, then all of up"));
  }
  if (!spec.tells_dprobs) {
    text.constants.push_back(
        bool_constant("kTellsDprobs", false, "nobody asks for the probabilities' gradients"));
  }
  if (has_dprobs) {
    text.constants.push_back(
        integer_constant("kDprobsColumns", spec.dprobs_columns, "blocks of a row's dprobs"));
  }
  if (names_bias_dprobs(spec)) {
    text.constants.push_back(bool_constant("kAddsBiasDprobs", spec.adds_bias_dprobs,
                                           "what the bias adds, behind the blocks"));
  }
  if (has_row_scale(spec) && is_permuted(spec.store)) {
    text.constants.push_back(bool_constant("kKeeps", spec.store == StoreStage::kRowsAndPermuted,
                                           "whether rows are stored in their order too"));
  }
  if (!spec.moves_probs) {
    text.constants.push_back(
        bool_constant("kMovesProbs", false, "probabilities stay, and zero no rows"));
  } else if (is_permuted(spec.store) && (names_element(spec) || has_expert_stage(spec))) {
    text.constants.push_back(
        bool_constant("kMovesProbs", true, "beside the rows; 0 zeros the row"));
  }
  if (is_permuted(spec.store) && (names_tokens(spec) || spec.tells_tokens)) {
    text.constants.push_back(
        bool_constant("kTellsTokens", spec.tells_tokens, "whose row each permuted one is"));
  }
  if (has_new_scales(spec.quantize)) {
    text.constants.push_back(
        float_bits_constant("kEpsilonBits", spec.epsilon, "the smallest amax of a scale"));
  }
  text.constants.push_back(integer_constant("kThreads", spec.threads, "per CTA"));
  text.constants.push_back(integer_constant("kSegmentsInFlight", spec.segments_in_flight,
                                            "segments loaded before one is used"));
  if (spec.rows_per_burst > 0) {
    text.constants.push_back(
        integer_constant("kRowsPerBurst", spec.rows_per_burst, "that L2 is asked for at once"));
    text.types_used.back().arguments.emplace_back("kRowsPerBurst");
  }
  set_threads_per_sm(text, spec.threads_per_sm);
  if (spec.overlaps) make_overlap(text);
  return text;
}

}  // namespace moejit::compiler
