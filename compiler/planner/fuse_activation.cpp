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

// Most mean rows of an expert for swapped tiles that quantize act. With more of them, and skewed
// routing, two kernels take 3 % less time (docs/performance/tried.md).
constexpr int64_t kMostFusedRows = 16;

constexpr std::string_view kPackedTileReason =
    "a tile multiplies one packed tile of weights, which has rows of gate or of up";

// Returns what keeps any epilogue from activating, or an empty string.
std::string any_epilogue_reason(const Layer& layer, const Target& target) {
  if (!target.features.has_wgmma)
    return "epilogues that activate are for WGMMA, and the target has none";
  if (!layer.fuse_activation) return "\"fuse_activation\" is false";
  if (!has_gate(layer.activation))
    return "tiles that are activated in registers have gate and up, and there is no gate";
  if (const int count = library_functions(layer.activation); count > kMostLibraryFunctions)
    return fmt::format(
        "the activation calls {} functions that are no instructions, and an epilogue has them for "
        "each of a thread's 64 columns, which takes the assembler seconds, with many of them "
        "minutes",
        count);
  return {};
}

// Returns why gemm_fc1 and an activation in bf16 stay apart, or an empty string.
std::string bf16_apart_reason(const Layer& layer, const Target& target) {
  const std::string apart = "gemm_fc1 and activation stay apart: ";
  if (std::string any = any_epilogue_reason(layer, target); !any.empty()) return apart + any;
  if (is_packed(layer.recipe.weights)) return apart + std::string(kPackedTileReason);
  if (has_backward(layer))
    return apart + "backward reads h1, and the epilogue that activates stores act alone";
  const int64_t rows = group_rows(call_bounds(layer)).mean;
  if (rows <= kMostSwappedRows) return {};
  return fmt::format(
      "{}an expert has {} rows in the mean, more than {}, and only the epilogue of swapped tiles "
      "activates and stores bf16",
      apart, rows, kMostSwappedRows);
}

// Returns why gemm_fc1 and the activation stay apart, or an empty string.
std::string activation_apart_reason(const Layer& layer, const Target& target) {
  if (layer.recipe.activations.is_recovered)
    return "gemm_fc1 and activation_quantize stay apart: the epilogue that activates stores codes, "
           "and gemm_fc2 multiplies their values";
  if (!has_scales(layer.recipe.activations)) return bf16_apart_reason(layer, target);
  const std::string apart = "gemm_fc1 and activation_quantize stay apart: ";
  if (layer.recipe.has_history) return apart + "no epilogue casts with the scale of a row's expert";
  if (has_expert_scale(layer.recipe.activations))
    return apart + "the scale of an expert's rows is known only after all of them are activated";
  if (std::string any = any_epilogue_reason(layer, target); !any.empty()) return apart + any;
  if (is_packed(layer.recipe.weights)) return apart + std::string(kPackedTileReason);
  if (has_row_scale(layer.recipe.activations))
    return apart + "the scale of a row follows from all of its columns, which many CTAs compute";
  if (layer.scale_sharing_k > 1)
    return fmt::format(
        "{0}{1} neighboring blocks of act share a scale, and the tiles that compute them belong "
        "to {1} CTAs",
        apart, layer.scale_sharing_k);
  const int64_t rows = group_rows(call_bounds(layer)).mean;
  if (rows > kMostSwappedRows && layer.recipe.activations.rounds_to_bf16)
    return apart +
           "act is rounded to bf16 before it is quantized, which the epilogue of tiles of 128 rows "
           "does not do";
  if (rows > kMostSwappedRows)
    return layer.biases ? apart + "sums of gate and up leave no registers for b1" : "";
  if (has_backward(layer))
    return fmt::format(
        "{}an expert has {} rows in the mean, for which tiles are swapped, whose epilogue stores "
        "act alone, and backward reads h1",
        apart, rows);
  if (rows <= kMostFusedRows) return {};
  return fmt::format(
      "{}an expert has {} rows in the mean, and groups of more than 96 rows would read their "
      "weights twice: swapped tiles that quantize have no more",
      apart, rows);
}

Operation join_activation(const Operation& gemm, const Operation& activate) {
  Operation joined = gemm;
  joined.name = fmt::format("gemm_fc1_{}", activate.name);
  GroupedGemmSpec problem = kind_of<GroupedGemm>(gemm)->problem;
  problem.epsilon = kind_of<Activate>(activate)->format.epsilon;
  problem.activation = kind_of<Activate>(activate)->activation;
  problem.rounds_activation = has_scales(kind_of<Activate>(activate)->format) &&
                              kind_of<Activate>(activate)->format.rounds_to_bf16;
  problem.is_interleaved = kind_of<Activate>(activate)->is_interleaved;
  joined.kind = GroupedGemmActivation{problem};
  joined.reads.push_back(read_of(activate, "probs"));
  joined.writes.front().is_optional = joined.writes.front().is_intermediate = true;
  Port q = write_of(activate, "output");
  q.role = "q";
  joined.writes.push_back(std::move(q));
  return joined;
}

}  // namespace

void fuse_activation(Graph& graph, const Layer& layer, const Target& target,
                     const PlanOptions& options, std::vector<std::string>& reasons) {
  if (std::string apart = activation_apart_reason(layer, target); !apart.empty()) {
    reasons.push_back(std::move(apart));
    return;
  }
  const bool is_written = options.keep_intermediates || is_saved(graph, "h1");
  const bool quantizes = has_scales(layer.recipe.activations);
  reasons.push_back(fmt::format(
      "gemm_fc1 and {} are one kernel: gate and up are activated in registers, "
      "and h1 [P, {}] is {}, which saves {} bytes a row",
      quantizes ? "activation_quantize" : "activation", 2 * layer.intermediate,
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
             has_scales(activate->format) == quantizes &&
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
    {"moejit_gemm_fc1_activation_", "fuse_activation"},
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
