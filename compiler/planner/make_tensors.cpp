// SPDX-License-Identifier: Apache-2.0
#include "compiler/planner/operations.h"

#include <algorithm>

namespace moejit::compiler {
namespace {

constexpr int64_t kScaleBlock = 128;

int64_t scale_blocks(int64_t columns) { return (columns + kScaleBlock - 1) / kScaleBlock; }

TensorPlan tensor(std::string name, DType dtype, TensorRole role, std::vector<Dim> shape,
                  Layout layout = Layout::kRowMajor) {
  int64_t bytes = size_bytes(dtype);
  for (const Dim& dim : shape) bytes *= dim.value;
  return {.name = std::move(name),
          .dtype = dtype,
          .shape = std::move(shape),
          .layout = layout,
          .role = role,
          .bytes = bytes};
}

}  // namespace

std::vector<TensorPlan> make_tensors(const Layer& layer, const std::vector<Operation>& operations,
                                     const PlanOptions& options) {
  const Dim t{"T", layer.max_tokens}, k{"K", layer.top_k}, e{"E", layer.local_experts};
  const Dim h{"H", layer.hidden}, i{"I", layer.intermediate}, i2{"2I", 2 * i.value};
  const Dim p{"P", layer.max_permuted_rows}, one{"1", 1};
  const Dim hb{"ceil(H/128)", scale_blocks(h.value)}, ib{"ceil(I/128)", scale_blocks(i.value)};
  const Dim ib2{"2ceil(I/128)", 2 * ib.value};
  using enum DType;
  using enum TensorRole;
  const Layout compact = Layout::kScalesCompact, tiles = Layout::kScalesTiles;

  std::vector<TensorPlan> tensors = {
      tensor("x", kBF16, kInput, {t, h}),
      tensor("topk_ids", kI32, kInput, {t, k}),
      tensor("topk_probs", kF32, kInput, {t, k}),
      tensor("w1", kBF16, kWeight, {e, i2, h}),
      tensor("w2", kBF16, kWeight, {e, h, i}),
      tensor("w1_q", kF8E4M3, kQuantized, {e, i2, h}),
      tensor("w1_scale_inv", kF32, kQuantized, {e, ib2, hb}, tiles),
      tensor("w2_q", kF8E4M3, kQuantized, {e, h, i}),
      tensor("w2_scale_inv", kF32, kQuantized, {e, hb, ib}, tiles),
      tensor("y", kBF16, kOutput, {t, h}),
      tensor("status", kU32, kOutput, {one}),
  };
  const bool has_x_q =
      options.keep_intermediates || std::ranges::count(operations, Operation::kQuantize) > 0;
  if (has_x_q) {
    tensors.push_back(tensor("x_q", kF8E4M3, kWorkspace, {t, h}));
    tensors.push_back(tensor("x_scale_inv", kF32, kWorkspace, {t, hb}, compact));
  }
  std::vector<TensorPlan> permuted = {
      tensor("counts", kI32, kWorkspace, {e}),
      tensor("offs", kI32, kWorkspace, {Dim{"E+1", e.value + 1}}),
      tensor("row_map", kI32, kWorkspace, {t, k}),
      tensor("permuted_q", kF8E4M3, kWorkspace, {p, h}),
      tensor("permuted_scale_inv", kF32, kWorkspace, {p, hb}, compact),
      tensor("permuted_probs", kF32, kWorkspace, {p}),
      tensor("act_q", kF8E4M3, kWorkspace, {p, i}),
      tensor("act_scale_inv", kF32, kWorkspace, {p, ib}, compact),
      tensor("h2", kBF16, kWorkspace, {p, h}),
  };
  const bool has_h1 =
      options.keep_intermediates || std::ranges::count(operations, Operation::kGemmFc1) > 0;
  if (has_h1) {
    const auto act = std::ranges::find(permuted, "act_q", &TensorPlan::name);
    permuted.insert(act, tensor("h1", kBF16, kWorkspace, {p, i2}));
  }
  tensors.insert(tensors.end(), permuted.begin(), permuted.end());
  for (const Operation operation : operations)
    if (options.measure_gemms && is_gemm(operation))
      tensors.push_back(tensor(elapsed_tensor(operation), kI64, kOutput, {Dim{"2", 2}}));
  return tensors;
}

}  // namespace moejit::compiler
