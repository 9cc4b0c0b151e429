// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/activation.h"
#include "compiler/launch.h"
#include "compiler/layer.h"
#include "compiler/plan.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace moejit::compiler {

// Descriptions of single operations, each of which is a plan of its own: what a layer does step by
// step, for programs that want one of the steps. docs/operations-api.md describes fields and
// tensors; parse_operation() guarantees the ranges that are stated there.

// Quantises rows of tokens: e4m3, one power-of-two scale for each row and 128 columns.
struct QuantizeOperation {
  int64_t max_tokens = 0;
  int64_t columns = 0;
  int64_t scale_sharing_k = 1;
  bool operator==(const QuantizeOperation&) const = default;
};

// Quantises the matrices of all experts: e4m3, one power-of-two scale for each 128x128 tile.
struct QuantizeWeightsOperation {
  int64_t local_experts = 0;
  int64_t sections = 1;  // equal parts of the rows, at each of which tiles restart
  int64_t rows = 0;      // of all sections
  int64_t columns = 0;
  int64_t scale_sharing_k = 1;
  GateUpLayout gate_up_layout = GateUpLayout::kConcat;  // of two sections
  bool colwise = false;                                 // writes the transposed matrices too
  bool operator==(const QuantizeWeightsOperation&) const = default;
};

// What routing a call's tokens to this rank's experts depends on.
struct RoutedTokens {
  int64_t max_tokens = 0;
  int64_t top_k = 0;
  int64_t local_experts = 0;
  int64_t splits_alignment = 128;
  int64_t max_permuted_rows = 0;  // 0 while it is not known
  bool operator==(const RoutedTokens&) const = default;
};

// Turns top-k ids into counts, offsets and destination rows.
struct RouteOperation {
  RoutedTokens tokens;
  TopkIdsDtype topk_ids_dtype = TopkIdsDtype::kI32;
  ForeignExperts foreign_experts = ForeignExperts::kReport;
  bool colwise_offs = false;  // tells where groups of columns start, too
  bool operator==(const RouteOperation&) const = default;
};

// Number formats of rows.
enum class RowFormat {
  kBf16,
  kFp8,  // e4m3 with a scale for each row and 128 columns
};

// Copies the rows of tokens to expert order, or those of a gradient, which take no probabilities
// along.
struct PermutePadOperation {
  RoutedTokens tokens;
  int64_t columns = 0;
  RowFormat format = RowFormat::kFp8;  // of what is stored
  bool quantizes = false;              // on the way, where the input is bf16 and the output fp8
  bool is_gradient = false;
  int64_t experts = 0;          // of the whole model, which decides about speed alone
  int64_t scale_sharing_k = 1;  // where it quantises
  bool keeps_rows = false;      // where it quantises: stores them in the order of tokens too
  bool row_tokens = false;      // tells whose row each one is
  TopkProbsDtype topk_probs_dtype = TopkProbsDtype::kF32;
  bool operator==(const PermutePadOperation&) const = default;
};

// Sums the rows of each token back into one; of a gradient, collects those of probabilities too.
struct UnpermuteOperation {
  RoutedTokens tokens;
  int64_t columns = 0;
  bool is_gradient = false;
  int64_t dprobs_columns = 0;  // of a gradient: parts of a row's gradient of its probability
  bool bias_dprobs = false;    // and what biases add to it
  TopkProbsDtype topk_probs_dtype = TopkProbsDtype::kF32;
  bool operator==(const UnpermuteOperation&) const = default;
};

// Makes the activation of permuted rows times their probabilities, or its gradients.
struct ActivationOperation {
  int64_t local_experts = 0;
  int64_t max_permuted_rows = 0;
  int64_t intermediate = 0;
  RowFormat format = RowFormat::kFp8;  // of what is stored
  bool is_gradient = false;
  Activation activation = {};
  int64_t scale_sharing_k = 1;                          // of fp8 that is no gradient
  GateUpLayout gate_up_layout = GateUpLayout::kConcat;  // of columns in bf16
  bool dprobs = true;  // of a gradient: tells parts of those of the probabilities
  bool operator==(const ActivationOperation&) const = default;
};

// Transposes quantised rows into an operand of wgrad, with one scale for each 128x128 tile.
struct TransposeOperation {
  int64_t local_experts = 0;
  int64_t max_permuted_rows = 0;
  int64_t columns = 0;
  DType dtype = DType::kF8E4M3;  // or kF8E5M2
  TransposeRule rule = TransposeRule::kIdeal;
  bool counts_flushed = false;
  bool operator==(const TransposeOperation&) const = default;
};

// Casts a list of tensors with known scales to FP8, in both orientations.
struct MultiCastTransposeOperation {
  DType input_dtype = DType::kBF16;     // or kF32
  DType output_dtype = DType::kF8E4M3;  // or kF8E5M2
  std::vector<MatrixSize> sizes;
  bool operator==(const MultiCastTransposeOperation&) const = default;
};

// Multiplies the rows of each group with the matrix of its expert.
struct GroupedGemmOperation {
  int64_t local_experts = 0;
  int64_t max_permuted_rows = 0;
  int64_t sections = 1;
  int64_t n = 0;  // of all sections
  int64_t k = 0;
  GemmScales scales = GemmScales::kRowBlock;
  GemmAccumulation accumulation = GemmAccumulation::kFp32;
  int64_t scale_sharing_k = 1;
  Major b_major = Major::kK;
  GemmBias bias = GemmBias::kNone;
  bool operator==(const GroupedGemmOperation&) const = default;
};

// Multiplies over the tokens of each group: the gradient of its expert's matrix.
struct ContractionGroupedGemmOperation {
  int64_t local_experts = 0;
  int64_t max_columns = 0;  // C: tokens, those among them that fill groups up
  int64_t rows = 0;
  int64_t n = 0;
  GradientScales scales = GradientScales::kTile;
  GradientOutput output = GradientOutput::kF32;
  bool operator==(const ContractionGroupedGemmOperation&) const = default;
};

using OperationDescription =
    std::variant<QuantizeOperation, QuantizeWeightsOperation, RouteOperation, PermutePadOperation,
                 UnpermuteOperation, ActivationOperation, TransposeOperation,
                 MultiCastTransposeOperation, GroupedGemmOperation,
                 ContractionGroupedGemmOperation>;

// A plan that was made for an operation.
struct OperationPlan : Plan {
  OperationDescription operation;
  bool operator==(const OperationPlan&) const = default;
};

// Returns the value of the description's "operation": "quantize", "permute_pad_grad", ...
std::string_view operation_name(const OperationDescription& operation);

// Tells whether a text is meant as the description of an operation: an object with "operation".
// False for what is no JSON.
bool describes_operation(std::string_view json);

// Reads the description of an operation (docs/operations-api.md), with the errors of parse_layer().
Result<OperationDescription> parse_operation(std::string_view json, std::string_view source_name);

// Returns the description as JSON that parse_operation() reads back to an equal record, all fields
// written, in stable order, with a newline at the end.
std::string to_json(const OperationDescription& operation);

// Plans an operation: its kernel, as a layer gets it for the same problem, and the caller's
// tensors. Pure. Errors: parts of the problem that do not go together (kUnsupported).
Result<OperationPlan> plan_operation(const OperationDescription& operation, const Target& target);

// Return the same of such a plan as of a layer's (compiler/compiler.h).
std::string print_plan(const OperationPlan& plan, bool explain, int32_t width = 0);
std::string plan_to_json(const OperationPlan& plan);
std::string plan_digest(const OperationPlan& plan);

}  // namespace moejit::compiler
