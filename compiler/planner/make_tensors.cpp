// SPDX-License-Identifier: Apache-2.0
#include "compiler/launch.h"
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

// Tensors of the forward pass that the backward pass reads.
void mark_saved(const Layer& layer, std::vector<TensorPlan>& tensors) {
  constexpr std::string_view kAlways[] = {
      "counts",         "offs",       "colwise_offs",      "row_map",
      "permuted_probs", "permuted_q", "permuted_scale_inv"};
  constexpr std::string_view kUnlessRecomputed[] = {"h1", "act_q", "act_scale_inv"};
  for (TensorPlan& tensor : tensors) {
    const bool is_saved =
        std::ranges::count(kAlways, tensor.name) > 0 ||
        (layer.recompute == Recompute::kNone && std::ranges::count(kUnlessRecomputed, tensor.name));
    if (is_saved) tensor.role = TensorRole::kSaved;
  }
}

// What the backward pass touches beside the tensors of the forward pass.
std::vector<TensorPlan> gradient_tensors(const Layer& layer, const std::vector<Step>& steps,
                                         const PlanOptions& options) {
  const Dim t{"T", layer.max_tokens}, k{"K", layer.top_k}, e{"E", layer.local_experts};
  const Dim h{"H", layer.hidden}, i{"I", layer.intermediate}, i2{"2I", 2 * i.value};
  const Dim p{"P", layer.max_permuted_rows}, pc{"C", gradient_columns(layer)};
  const Dim hb{"ceil(H/128)", scale_blocks(h.value)}, ib{"ceil(I/128)", scale_blocks(i.value)};
  const Dim ib2{"2ceil(I/128)", 2 * ib.value}, cb{"C/128", pc.value / kScaleBlock};
  using enum DType;
  using enum TensorRole;
  const Layout compact = Layout::kScalesCompact, tiles = Layout::kScalesTiles;
  std::vector<TensorPlan> tensors = {
      tensor("dy", kBF16, kInput, {t, h}),
      tensor("w1_colwise_q", kF8E4M3, kQuantized, {e, h, i2}),
      tensor("w1_colwise_scale_inv", kF32, kQuantized, {e, hb, ib2}, tiles),
      tensor("w2_colwise_q", kF8E4M3, kQuantized, {e, i, h}),
      tensor("w2_colwise_scale_inv", kF32, kQuantized, {e, ib, hb}, tiles),
      tensor("dx", kBF16, kOutput, {t, h}),
      tensor("dprobs", kF32, kOutput, {t, k}),
      tensor("dw1", kF32, kOutput, {e, i2, h}),
      tensor("dw2", kF32, kOutput, {e, h, i}),
  };
  if (options.keep_intermediates || contains(steps, Operation::kQuantizeDy)) {
    tensors.push_back(tensor("dy_q", kF8E4M3, kWorkspace, {t, h}));
    tensors.push_back(tensor("dy_scale_inv", kF32, kWorkspace, {t, hb}, compact));
  }
  const std::vector<TensorPlan> workspace = {
      tensor("grad_permuted_q", kF8E4M3, kWorkspace, {p, h}),
      tensor("grad_permuted_scale_inv", kF32, kWorkspace, {p, hb}, compact),
      tensor("dact", kBF16, kWorkspace, {p, i}),
      tensor("grad_colwise_q", kF8E4M3, kWorkspace, {h, pc}),
      tensor("grad_colwise_scale_inv", kF32, kWorkspace, {hb, cb}, tiles),
      tensor("act_colwise_q", kF8E4M3, kWorkspace, {i, pc}),
      tensor("act_colwise_scale_inv", kF32, kWorkspace, {ib, cb}, tiles),
      tensor("dh1_q", kF8E4M3, kWorkspace, {p, i2}),
      tensor("dh1_scale_inv", kF32, kWorkspace, {p, ib2}, compact),
      tensor("dprobs_blocks", kF32, kWorkspace, {p, ib}),
      tensor("dh1_colwise_q", kF8E4M3, kWorkspace, {i2, pc}),
      tensor("dh1_colwise_scale_inv", kF32, kWorkspace, {ib2, cb}, tiles),
      tensor("x_colwise_q", kF8E4M3, kWorkspace, {h, pc}),
      tensor("x_colwise_scale_inv", kF32, kWorkspace, {hb, cb}, tiles),
      tensor("dx_permuted", kBF16, kWorkspace, {p, h}),
  };
  tensors.insert(tensors.end(), workspace.begin(), workspace.end());
  return tensors;
}

}  // namespace

std::vector<TensorPlan> make_tensors(const Layer& layer, const std::vector<Step>& steps,
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
  const bool has_x_q = options.keep_intermediates || contains(steps, Operation::kQuantize);
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
      options.keep_intermediates || has_backward(layer) || contains(steps, Operation::kGemmFc1);
  if (has_h1) {
    const auto act = std::ranges::find(permuted, "act_q", &TensorPlan::name);
    permuted.insert(act, tensor("h1", kBF16, kWorkspace, {p, i2}));
  }
  if (has_colwise_offs(layer)) {
    const auto offs = std::ranges::find(permuted, "offs", &TensorPlan::name);
    permuted.insert(offs + 1, tensor("colwise_offs", kI32, kWorkspace, offs->shape));
  }
  if (has_backward(layer)) mark_saved(layer, permuted);
  tensors.insert(tensors.end(), permuted.begin(), permuted.end());
  if (has_backward(layer)) {
    const std::vector<TensorPlan> gradients = gradient_tensors(layer, steps, options);
    tensors.insert(tensors.end(), gradients.begin(), gradients.end());
  }
  for (const Step& step : steps) {
    const std::string elapsed = elapsed_tensor(step);
    if (options.measure_gemms && is_gemm(step.operation))
      tensors.push_back(tensor(elapsed, kI64, kOutput, {Dim{"2", 2}}));
  }
  return tensors;
}

}  // namespace moejit::compiler
