// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/activation.h"
#include "compiler/dtype.h"
#include "compiler/kernel_spec.h"
#include "compiler/layer.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace moejit::compiler {

// Descriptions of single operations. Each operation is one step of a layer with a plan of its own,
// for programs that want only this step. docs/operations-api.md describes fields and tensors;
// parse_operation() guarantees the ranges stated there.

// Quantizes rows of tokens to e4m3, with one power-of-two scale for each row and 128 columns, or
// for each row with fp8_rowwise. With nvfp4 it quantizes to E2M1, below one scale of all rows.
struct QuantizeOperation {
  int64_t max_tokens = 0;
  int64_t columns = 0;
  Recipe recipe = Recipe::kFp8Flow;  // whose rows these are
  int64_t scale_sharing_k = 1;
  bool operator==(const QuantizeOperation&) const = default;
};

// Quantizes the matrices of all experts to e4m3, with one power-of-two scale for each 128x128 tile.
struct QuantizeWeightsOperation {
  int64_t local_experts = 0;
  int64_t sections = 1;  // equal parts of the rows; tiles restart at each part
  int64_t rows = 0;      // of all sections together
  int64_t columns = 0;
  int64_t scale_sharing_k = 1;
  GateUpLayout gate_up_layout = GateUpLayout::kConcat;  // of the rows, if sections is 2
  Recipe recipe = Recipe::kFp8Flow;                     // whose matrices these are
  bool colwise = false;  // whether the operand of dgrad is written too
  bool operator==(const QuantizeWeightsOperation&) const = default;
};

// Sizes that decide how a call's tokens are routed to this rank's experts.
struct RoutedTokens {
  int64_t max_tokens = 0;
  int64_t top_k = 0;
  int64_t local_experts = 0;
  int64_t splits_alignment = 128;
  int64_t max_permuted_rows = 0;  // 0: not known yet
  bool operator==(const RoutedTokens&) const = default;
};

// Turns top-k ids into counts, offsets and destination rows.
struct RouteOperation {
  RoutedTokens tokens;
  TopkIdsDtype topk_ids_dtype = TopkIdsDtype::kI32;
  ForeignExperts foreign_experts = ForeignExperts::kReport;
  bool colwise_offs = false;  // whether the starts of groups of columns are written too
  bool operator==(const RouteOperation&) const = default;
};

// Number formats of rows.
enum class RowFormat {
  kBf16,
  kFp8,  // e4m3 with a scale for each row and 128 columns
  kFp4,  // e2m1 with a scale for each row and 16 columns; of permuted rows alone
};

// Copies the rows of tokens, or the rows of a gradient, to expert order. A gradient has no
// probabilities to copy.
struct PermutePadOperation {
  RoutedTokens tokens;
  int64_t columns = 0;
  RowFormat format = RowFormat::kFp8;  // of the stored rows
  bool quantizes = false;              // whether bf16 input is quantized to fp8 output on the way
  bool is_gradient = false;
  int64_t experts = 0;               // of the whole model; affects speed only
  Recipe recipe = Recipe::kFp8Flow;  // of fp8 and fp4 rows: whose they are
  int64_t scale_sharing_k = 1;       // if it quantizes
  bool keeps_rows = false;  // if it quantizes: whether rows are also stored in the order of tokens
  bool row_tokens = false;  // whether the token of each row is written
  TopkProbsDtype topk_probs_dtype = TopkProbsDtype::kF32;
  bool operator==(const PermutePadOperation&) const = default;
};

// Sums the rows of each token back into one. For a gradient it also collects the gradients of the
// probabilities.
struct UnpermuteOperation {
  RoutedTokens tokens;
  int64_t columns = 0;
  bool is_gradient = false;
  int64_t dprobs_columns = 0;  // for a gradient: parts of the gradient of a row's probability
  bool bias_dprobs = false;    // for a gradient: whether biases add a part to it
  TopkProbsDtype topk_probs_dtype = TopkProbsDtype::kF32;
  bool operator==(const UnpermuteOperation&) const = default;
};

// Computes the activation of permuted rows times their probabilities, or its gradients.
struct ActivationOperation {
  int64_t local_experts = 0;
  int64_t max_permuted_rows = 0;
  int64_t intermediate = 0;
  RowFormat format = RowFormat::kFp8;  // of the stored rows
  bool is_gradient = false;
  Activation activation = {};
  Recipe recipe = Recipe::kFp8Flow;                     // of fp8 rows: whose they are
  int64_t scale_sharing_k = 1;                          // of fp8 rows, unless is_gradient
  GateUpLayout gate_up_layout = GateUpLayout::kConcat;  // order of the columns in bf16
  bool dprobs = true;  // for a gradient: whether parts of the probabilities' gradients are written
  bool operator==(const ActivationOperation&) const = default;
};

// Transposes quantized rows into an operand of wgrad, with one scale for each 128x128 tile.
struct TransposeOperation {
  int64_t local_experts = 0;
  int64_t max_permuted_rows = 0;
  int64_t columns = 0;
  DType dtype = DType::kF8E4M3;  // or kF8E5M2
  TransposeRule rule = TransposeRule::kIdeal;
  bool counts_flushed = false;
  bool operator==(const TransposeOperation&) const = default;
};

// Finds the largest magnitudes of bf16 rows, of 512 columns each.
struct AmaxRowsOperation {
  int64_t local_experts = 0;
  int64_t max_permuted_rows = 0;
  int64_t columns = 0;
  bool operator==(const AmaxRowsOperation&) const = default;
};

// Finds the largest magnitudes of the experts' bf16 matrices, of each in pieces.
struct AmaxWeightsOperation {
  int64_t local_experts = 0;
  int64_t rows = 0;
  int64_t columns = 0;
  bool operator==(const AmaxWeightsOperation&) const = default;
};

// Finds one scale for each expert, from the largest magnitudes of its rows or of its matrix.
struct ScaleExpertsOperation {
  int64_t local_experts = 0;
  int64_t max_permuted_rows = 0;   // 0: an expert has a matrix
  int64_t magnitudes = 0;          // of a row, or of a matrix
  DType dtype = DType::kF4E2M1x2;  // or kF8E4M3, kF8E5M2: what is cast with the scales
  bool operator==(const ScaleExpertsOperation&) const = default;
};

// Finds the power-of-two scales of columns of bf16 rows, one for all of an expert's rows.
struct ScaleColumnsOperation {
  int64_t local_experts = 0;
  int64_t max_permuted_rows = 0;
  int64_t columns = 0;
  bool operator==(const ScaleColumnsOperation&) const = default;
};

// Quantizes bf16 rows to an operand of wgrad, with one power-of-two scale for 128 or 32 tokens of
// each column. With fp8_rowwise it takes the scales that ScaleColumnsOperation finds. With nvfp4
// there is an E4M3 scale for 16 tokens, below the scales that ScaleExpertsOperation finds.
struct QuantizeColumnsOperation {
  int64_t local_experts = 0;
  int64_t max_permuted_rows = 0;
  int64_t columns = 0;
  Recipe recipe = Recipe::kFp8Blockwise;  // whose operand this is
  // mxfp8, nvfp4: whether the rows are quantized by rows too, from the same read
  bool rowwise = false;
  bool operator==(const QuantizeColumnsOperation&) const = default;
};

// Puts scales of mxfp8 or nvfp4 in the order in which Blackwell's GEMMs read them, expert by
// expert.
struct SwizzleScalesOperation {
  int64_t local_experts = 0;
  int64_t max_permuted_rows = 0;
  int64_t columns = 0;             // of the rows that were cast
  bool of_columns = false;         // whether a scale belongs to tokens of a column
  Recipe recipe = Recipe::kMxfp8;  // whose scales these are
  bool operator==(const SwizzleScalesOperation&) const = default;
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
  int64_t n = 0;  // of all sections together
  int64_t k = 0;
  GemmScales scales = GemmScales::kRowBlock;
  GemmAccumulation accumulation = GemmAccumulation::kFp32;
  int64_t scale_sharing_k = 1;
  Major b_major = Major::kK;
  GemmBias bias = GemmBias::kNone;
  DType a_dtype = DType::kF8E4M3;  // or kF8E5M2; of FP8 operands, B is e4m3. tensor: or kBF16, as B
  bool operator==(const GroupedGemmOperation&) const = default;
};

// Multiplies over the tokens of each group, which gives the gradient of its expert's matrix.
struct ContractionGroupedGemmOperation {
  int64_t local_experts = 0;
  int64_t max_columns = 0;  // C: columns of tokens, with the pad columns that fill groups up
  int64_t rows = 0;
  int64_t n = 0;
  GradientScales scales = GradientScales::kTile;
  GradientOutput output = GradientOutput::kF32;
  GemmAccumulation accumulation = GemmAccumulation::kFp32;
  DType a_dtype = DType::kF8E4M3;  // or kF8E5M2; of FP8 operands, B is e4m3. tensor: or kBF16, as B
  bool operator==(const ContractionGroupedGemmOperation&) const = default;
};

using OperationDescription =
    std::variant<QuantizeOperation, QuantizeWeightsOperation, RouteOperation, PermutePadOperation,
                 UnpermuteOperation, ActivationOperation, TransposeOperation, ScaleColumnsOperation,
                 QuantizeColumnsOperation, SwizzleScalesOperation, MultiCastTransposeOperation,
                 GroupedGemmOperation, ContractionGroupedGemmOperation, AmaxRowsOperation,
                 AmaxWeightsOperation, ScaleExpertsOperation>;

// Returns the value of the description's "operation": "quantize", "permute_pad_grad", ...
std::string_view operation_name(const OperationDescription& operation);

// Returns whether a text is meant as the description of an operation: an object with "operation".
// False for text that is not JSON.
bool describes_operation(std::string_view json);

// Reads the description of an operation (docs/operations-api.md), with the errors of parse_layer().
Result<OperationDescription> parse_operation(std::string_view json, std::string_view source_name);

// Returns the description as JSON that parse_operation() reads back to an equal record. It has all
// fields in a stable order and ends with a newline.
std::string to_json(const OperationDescription& operation);

}  // namespace moejit::compiler
