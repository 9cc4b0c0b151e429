// SPDX-License-Identifier: Apache-2.0
#include "compiler/compiler.h"
#include "compiler/planner/fusions.h"
#include "compiler/planner/grouped_gemm.h"

#include <algorithm>
#include <fmt/core.h>

namespace moejit::compiler {
namespace {

// Returns how many functions of the CUDA math library an activation calls. An epilogue with 2 calls
// compiles in 1.9 s, with 4 in 3.7 s, with 10 in 28 s. (Calls are tanh and erf in turn, NVRTC
// 13.0.)
int library_functions(const Activation& activation) {
  using enum Operator;
  constexpr Operator kSlowOperators[] = {kTanh, kExp, kLog, kErf, kDivide, kSqrt};
  int count = 0;
  for (const Assignment& assignment : straight_line({&activation.formula, 1}).assignments)
    count += static_cast<int>(std::ranges::count(kSlowOperators, assignment.op));
  return count;
}

constexpr int kMostLibraryFunctions = 2;

// Returns why gemm_fc1 and the activation stay apart, or an empty string.
std::string activation_apart_reason(const Layer& layer) {
  if (layer.recipe.activations.is_recovered)
    return "gemm_fc1 and activation_quantize stay apart: the epilogue that activates stores codes, "
           "and gemm_fc2 multiplies their values";
  if (!has_scales(layer.recipe.activations))
    return "gemm_fc1 and activation stay apart: the epilogue that activates quantizes too";
  const std::string apart = "gemm_fc1 and activation_quantize stay apart: ";
  if (layer.recipe.has_history) return apart + "no epilogue casts with the scale of a row's expert";
  if (has_expert_scale(layer.recipe.activations))
    return apart + "the scale of an expert's rows is known only after all of them are activated";
  if (!layer.fuse_activation) return apart + "\"fuse_activation\" is false";
  if (layer.recipe.activations.rounds_to_bf16)
    return apart + "act is rounded to bf16 before it is quantized, which the epilogue does not do";
  if (!has_gate(layer.activation))
    return apart + "tiles that are activated in registers have gate and up, and there is no gate";
  if (is_packed(layer.recipe.weights)) return apart + "the weights are packed, and tiles swapped";
  if (layer.biases) return apart + "sums of gate and up leave no registers for b1";
  if (layer.scale_sharing_k > 1)
    return fmt::format(
        "{0}{1} neighboring blocks of act share a scale, and the tiles that compute them belong "
        "to {1} CTAs",
        apart, layer.scale_sharing_k);
  if (const int count = library_functions(layer.activation); count > kMostLibraryFunctions)
    return fmt::format(
        "{}the activation calls {} functions that are no instructions, and an epilogue has them "
        "for each of a thread's 64 columns, which takes the assembler seconds, with many of them "
        "minutes",
        apart, count);
  const int64_t rows = group_rows(call_bounds(layer)).mean;
  if (rows > kMostSwappedRows) return {};
  return fmt::format(
      "{}an expert has {} rows in the mean, for which tiles are swapped, and swapped tiles have "
      "the columns of a scale in two warpgroups",
      apart, rows);
}

Operation join_activation(const Operation& gemm, const Operation& activate) {
  Operation joined = gemm;
  joined.name = "gemm_fc1_activation_quantize";
  GroupedGemmSpec problem = kind_of<GroupedGemm>(gemm)->problem;
  problem.epsilon = kind_of<Activate>(activate)->format.epsilon;
  problem.activation = kind_of<Activate>(activate)->activation;
  joined.kind = GroupedGemmActivation{problem};
  joined.reads.push_back(read_of(activate, "probs"));
  joined.writes.front().is_optional = joined.writes.front().is_intermediate = true;
  Port q = write_of(activate, "output");
  q.role = "q";
  joined.writes.push_back(std::move(q));
  return joined;
}

}  // namespace

void fuse_activation(Graph& graph, const Layer& layer, const PlanOptions& options,
                     std::vector<std::string>& reasons) {
  if (std::string apart = activation_apart_reason(layer); !apart.empty()) {
    reasons.push_back(std::move(apart));
    return;
  }
  const bool is_written = options.keep_intermediates || is_saved(graph, "h1");
  reasons.push_back(fmt::format(
      "gemm_fc1 and activation_quantize are one kernel: gate and up are activated in registers, "
      "and h1 [P, {}] is {}, which saves {} bytes a row",
      2 * layer.intermediate,
      options.keep_intermediates ? "written because intermediates are kept, but not read"
      : is_written               ? "written because backward reads it, but not read"
                                 : "neither written nor read",
      (is_written ? 4 : 8) * layer.intermediate));
  std::vector<Operation>& operations = graph.operations;
  for (auto gemm = operations.begin(); gemm != operations.end(); ++gemm) {
    // Backward may compute act again in bf16, to cast it otherwise.
    const auto activates = [&](const Operation& operation) {
      const Activate* const activate = kind_of<Activate>(operation);
      return operation.phase == gemm->phase && activate != nullptr &&
             has_scales(activate->format) &&
             read_of(operation, "input").tensor == write_of(*gemm, "d").tensor;
    };
    if (kind_of<GroupedGemm>(*gemm) == nullptr) continue;
    const auto activate = std::find_if(gemm, operations.end(), activates);
    if (activate == operations.end()) continue;
    *gemm = join_activation(*gemm, *activate);
    operations.erase(activate);
  }
}

namespace {

struct FusedKernel {
  std::string_view entry;  // the beginning of the entry
  std::string_view field;
};
constexpr FusedKernel kFusedKernels[] = {
    {"moejit_gemm_fc1_activation_quantize_", "fuse_activation"},
    {"moejit_permute_transpose_x_", "fuse_transpose"},
    {"moejit_permute_transpose_grad_", "fuse_transpose"},
    {"moejit_quantize_permute_transpose_grad_", "fuse_transpose"},
    {"moejit_permute_quantize_columns_x_", "fuse_transpose"},
    {"moejit_permute_quantize_columns_grad_", "fuse_transpose"},
    {"moejit_permute_scale_columns_x_", "fuse_transpose"},
    {"moejit_permute_scale_columns_grad_", "fuse_transpose"},
    {"moejit_activation_backward_quantize_transpose_", "fuse_activation_transpose"},
    {"moejit_activation_backward_amax_", "fuse_activation_transpose"},
    {"moejit_activation_backward_quantize_both_", "fuse_activation_transpose"},
};

}  // namespace

std::string_view field_that_fuses(std::string_view entry) {
  for (const FusedKernel& kernel : kFusedKernels)
    if (entry.starts_with(kernel.entry)) return kernel.field;
  return {};
}

}  // namespace moejit::compiler
