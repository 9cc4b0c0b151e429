// SPDX-License-Identifier: Apache-2.0
#include "compiler/planner/kernel_parts.h"

#include <fmt/core.h>

namespace moejit::compiler {
namespace {

// Returns what a store stage takes that permutes.
std::vector<KernelArgument> permuted_store_arguments(const Layer& layer, const TokenRows& rows) {
  std::vector<KernelArgument> arguments = {
      {"row_map", "row_map"},
      {"counts", "counts"},
      {"offs", "offs"},
      {"output", data_of(layer, rows.permuted)},
  };
  if (is_quantized(layer))
    arguments.push_back({"output_scale_inv", scales_of(layer, rows.permuted)});
  if (rows.moves_probs) {
    arguments.insert(arguments.begin(), {"probs", "topk_probs"});
    arguments.push_back({"output_probs", "permuted_probs"});
  }
  if (rows.tells_tokens) arguments.push_back({"row_tokens", "row_tokens"});
  return arguments;
}

// Where no probabilities move, the kernel is the same for both types.
DType moved_probs_dtype(const Layer& layer, const TokenRows& rows) {
  return rows.moves_probs ? topk_probs_dtype(layer) : DType::kF32;
}

// How many rows L2 is asked for at once where they are permuted as they are, 0: none. Measured: it
// pays where a token has 8 rows here, not where it has one, nor where rows are quantised on the
// way, with twice as many bytes to read. Bursts of 2 to 4 MiB are better than smaller and larger
// ones.
int32_t rows_per_burst(const Layer& layer) {
  constexpr int64_t kBytes = int64_t{3} << 20, kWholeSteps = 16, kLeastRowsOfToken = 6;
  const int64_t row_bytes = int64_t{layer.hidden} * (is_quantized(layer) ? 1 : 2);
  const int64_t rows = kBytes / row_bytes / kWholeSteps * kWholeSteps;
  const bool pays = layer.top_k * layer.local_experts >= kLeastRowsOfToken * layer.experts &&
                    layer.max_tokens > 2 * rows;
  return pays ? static_cast<int32_t>(rows) : 0;
}

}  // namespace

TokenRows rows_of_x(const Layer& layer, const Dataflow& flow) {
  return {.name = "x",
          .permuted = "permuted",
          .quantize = quantize_stage(layer),
          .tells_tokens = flow.reads("row_tokens"),
          .keeps_rows = flow.reads("x"),
          .cast = "the first of the two explicit casts of the layer"};
}

// Of the GEMMs that read gradients the contraction runs along rows of weights, whose scale blocks
// share no scale. Unpermute is a plain sum: its gradient knows no probability.
TokenRows rows_of_dy(const Dataflow& flow) {
  return {.name = "dy",
          .permuted = "grad_permuted",
          .moves_probs = false,
          .keeps_rows = flow.reads("dy"),
          .cast = "the second of the two explicit casts of the layer"};
}

KernelPlan quantize(const Layer& layer, const TokenRows& rows) {
  return {
      .spec =
          RowChainSpec{
              .quantize = rows.quantize, .columns = layer.hidden, .epsilon = kActivationEpsilon},
      .arguments = {{"input", std::string(rows.name)},
                    {"output", data_of(layer, rows.name)},
                    {"output_scale_inv", scales_of(layer, rows.name)}},
      .reasons = {std::string(rows.cast)},
  };
}

KernelPlan permute_pad(const Layer& layer, const TokenRows& rows) {
  KernelPlan kernel{
      .spec =
          RowChainSpec{.load = is_quantized(layer) ? LoadStage::kQuantizedRows : LoadStage::kRows,
                       .quantize = QuantizeStage::kKeep,
                       .store = StoreStage::kPermuted,
                       .columns = layer.hidden,
                       .local_experts = layer.local_experts,
                       .top_k = layer.top_k,
                       .moves_probs = rows.moves_probs,
                       .tells_tokens = rows.tells_tokens,
                       .rows_per_burst = rows_per_burst(layer),
                       .probs = moved_probs_dtype(layer, rows)},
      .arguments = permuted_store_arguments(layer, rows),
      .reasons = {"rows are read once in token order and written to their destinations; pad rows "
                  "are written by the same launch"},
  };
  kernel.arguments.push_back({"input", data_of(layer, rows.name)});
  if (is_quantized(layer))
    kernel.arguments.push_back({"input_scale_inv", scales_of(layer, rows.name)});
  if (const int32_t burst = std::get<RowChainSpec>(kernel.spec).rows_per_burst; burst > 0) {
    kernel.reasons.push_back(fmt::format(
        "L2 is asked for {} rows at once: memory turns less often from writing to reading", burst));
  }
  return kernel;
}

KernelPlan quantize_permute_pad(const Layer& layer, const TokenRows& rows,
                                const PlanOptions& options) {
  const bool keeps_rows = options.keep_intermediates || rows.keeps_rows;
  KernelPlan kernel{
      .spec =
          RowChainSpec{.quantize = rows.quantize,
                       .store = keeps_rows ? StoreStage::kRowsAndPermuted : StoreStage::kPermuted,
                       .columns = layer.hidden,
                       .local_experts = layer.local_experts,
                       .top_k = layer.top_k,
                       .epsilon = kActivationEpsilon,
                       .moves_probs = rows.moves_probs,
                       .tells_tokens = rows.tells_tokens,
                       .probs = moved_probs_dtype(layer, rows)},
      .arguments = permuted_store_arguments(layer, rows),
      .reasons = {"a row is quantised in registers and written to its destinations"},
  };
  kernel.arguments.push_back({"input", std::string(rows.name)});
  if (keeps_rows) {
    kernel.arguments.push_back({"kept_output", data_of(layer, rows.name)});
    kernel.arguments.push_back({"kept_scale_inv", scales_of(layer, rows.name)});
    kernel.reasons.push_back(
        fmt::format("{} is written too because {}", data_of(layer, rows.name),
                    rows.keeps_rows ? "backward transposes its rows" : "intermediates are kept"));
  }
  return kernel;
}

}  // namespace moejit::compiler
