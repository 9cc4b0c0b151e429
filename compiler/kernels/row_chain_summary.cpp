// SPDX-License-Identifier: Apache-2.0
#include "compiler/kernels/row_chain.h"

#include <fmt/format.h>

namespace moejit::compiler {
namespace {

std::string load_words(LoadStage stage) {
  switch (stage) {
    case LoadStage::kRows: return "bf16 rows";
    case LoadStage::kQuantizedRows: return "e4m3 rows with their scales";
    case LoadStage::kTwoLevelRows: return "e2m1 rows with their scales";
    case LoadStage::kMatrixRows: return "bf16 rows of matrices";
    case LoadStage::kGatedRows: return "bf16 rows of gate and up";
    case LoadStage::kGatedGradientRows:
      return "bf16 rows of gate, up and the activation's gradient";
    case LoadStage::kUpRows: return "bf16 rows of up";
    case LoadStage::kUpGradientRows: return "bf16 rows of up and the activation's gradient";
    case LoadStage::kCombinedRows: return "the sum of each token's bf16 rows";
  }
  return {};
}

std::string transform_words(const RowChainSpec& spec) {
  switch (spec.transform) {
    case TransformStage::kIdentity: return "";
    case TransformStage::kActivationProbability:
      return fmt::format("{} * probability, ", spec.activation.preset);
    case TransformStage::kActivationBackward:
      return fmt::format("gradients of {} and probability, ",
                         has_gate(spec.activation) ? "gate, up" : "up");
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
    case QuantizeStage::k1x128Rounded:
      return "rounded to bf16, to e4m3, one power-of-two scale for 128 columns of a row";
    case QuantizeStage::kExpert: return "rounded to bf16 and cast with the scale of its expert";
    case QuantizeStage::kAmax: return "the largest magnitude of 512 columns of a row";
    case QuantizeStage::k1x32: return "to e4m3, one E8M0 scale for 32 columns of a row";
    case QuantizeStage::k1x32Values:
      return "rounded to values of e4m3, one E8M0 scale for 32 columns of a row";
    case QuantizeStage::kRow: return "rounded to bf16, to e4m3, one power-of-two scale for a row";
  }
  return {};
}

std::string store_words(const RowChainSpec& spec) {
  switch (spec.store) {
    case StoreStage::kRows: return "in their order";
    case StoreStage::kGroupedRows: return "in their order, pad rows as zeros";
    case StoreStage::kGroupedGatedRows:
    case StoreStage::kGroupedUpRows:
      return fmt::format("in their order, pad rows as zeros{}",
                         spec.tells_dprobs ? ", beside a partial sum of each segment" : "");
    case StoreStage::kGroupedDprobs: return "as a partial sum of each segment, pad rows as zeros";
    case StoreStage::kPermuted: return "to every destination of the row, and pad rows";
    case StoreStage::kRowsAndPermuted:
      return "in their order and to every destination of the row, and pad rows";
    case StoreStage::kRowsAndProbs:
      return "in their order, and the gradients of their probabilities";
  }
  return {};
}

}  // namespace

std::string summary_of(const RowChainSpec& spec) {
  if (spec.store == StoreStage::kGroupedDprobs)
    return fmt::format("{}, the gradient of the probability, stored {}", load_words(spec.load),
                       store_words(spec));
  if (spec.quantize == QuantizeStage::kAmax)
    return fmt::format("{}, {}{}{}", load_words(spec.load), transform_words(spec),
                       quantize_words(spec.quantize),
                       is_permuted(spec.store) ? ", to every destination of the row" : "");
  return fmt::format("{}, {}{}, stored {}", load_words(spec.load), transform_words(spec),
                     quantize_words(spec.quantize), store_words(spec));
}

}  // namespace moejit::compiler
