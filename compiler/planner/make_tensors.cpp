// SPDX-License-Identifier: Apache-2.0
#include "compiler/launch.h"
#include "compiler/planner/dataflow.h"
#include "compiler/planner/kernel_parts.h"

#include <algorithm>
#include <fmt/core.h>
#include <utility>

namespace moejit::compiler {
namespace {

constexpr int64_t kScaleBlock = 128;

Dim blocks_of(std::string symbol, const Dim& dim) {
  return {std::move(symbol), (dim.value + kScaleBlock - 1) / kScaleBlock};
}

// The dimensions that a layer's tensors have.
struct LayerDims {
  explicit LayerDims(const Layer& layer)
      : t{"T", layer.max_tokens},
        k{"K", layer.top_k},
        e{"E", layer.local_experts},
        h{"H", layer.hidden},
        i{"I", layer.intermediate},
        h1(sections_of(layer, i)),
        padded_h1(layer.intermediate == padded_intermediate(layer)
                      ? h1
                      : Dim{"2I'", 2 * int64_t{padded_intermediate(layer)}}),
        p{"P", layer.max_permuted_rows},
        hb(blocks_of("ceil(H/128)", h)),
        ib(blocks_of("ceil(I/128)", i)),
        h1b(sections_of(layer, ib)) {}
  Dim t, k, e, h, i;
  Dim h1, padded_h1;  // columns of h1, rows of w1
  Dim p, hb, ib, h1b;

 private:
  // Returns the dimension of gate and up, or of up alone.
  static Dim sections_of(const Layer& layer, const Dim& one) {
    if (w1_sections(layer) == 1) return one;
    return {"2" + one.symbol, 2 * one.value};
  }
};

// Collects tensors. Those that GEMMs multiply are e4m3 codes "<name>_q" beside their
// "<name>_scale_inv", or, of layers that do not quantise, bf16 "<name>".
class TensorList {
 public:
  TensorList(const Layer& layer, const Dataflow& flow)
      : is_quantized_(is_quantized(layer)), flow_(flow) {}

  void add(std::string name, DType dtype, TensorRole role, std::vector<Dim> shape,
           Layout layout = Layout::kRowMajor) {
    int64_t bytes = size_bytes(dtype);
    for (const Dim& dim : shape) bytes *= dim.value;
    tensors_.push_back({.name = std::move(name),
                        .dtype = dtype,
                        .shape = std::move(shape),
                        .layout = layout,
                        .role = role,
                        .bytes = bytes});
  }
  void add_optional(std::string name, DType dtype, TensorRole role, std::vector<Dim> shape) {
    add(std::move(name), dtype, role, std::move(shape));
    tensors_.back().is_optional = true;
  }
  // Forward calls need it, backward calls may do without.
  void add_status(bool has_backward) {
    add("status", DType::kU32, TensorRole::kOutput, {Dim{"1", 1}});
    tensors_.back().is_optional_in_backward = has_backward;
  }
  void add_quantized(std::string_view name, TensorRole role, std::vector<Dim> shape,
                     std::vector<Dim> scales_shape, Layout scales) {
    add(fmt::format("{}_q", name), DType::kF8E4M3, role, std::move(shape));
    add(fmt::format("{}_scale_inv", name), DType::kF32, role, std::move(scales_shape), scales);
  }
  // Adds what kernels leave each other: saved or deferred, or in the workspace.
  void add_between(std::string name, DType dtype, std::vector<Dim> shape) {
    const TensorRole role = role_between(name);
    add(std::move(name), dtype, role, std::move(shape));
  }
  // Adds such rows [rows, columns], with a scale for each block of a row.
  void add_rows(std::string_view name, const Dim& rows, const Dim& columns, const Dim& blocks) {
    if (is_quantized_) {
      add_quantized(name, role_between(name), {rows, columns}, {rows, blocks},
                    Layout::kScalesCompact);
    } else {
      add_between(std::string(name), DType::kBF16, {rows, columns});
    }
  }
  // Adds such an operand of wgrad, [rows, C] in blocks of 128 columns, with a scale for each
  // 128x128 tile.
  void add_colwise(std::string_view name, const Dim& rows, const Dim& row_blocks,
                   const Dim& columns) {
    const Dim blocks{"C/128", columns.value / kScaleBlock};
    add_quantized(name, role_between(name), {blocks, rows, {"128", kScaleBlock}},
                  {row_blocks, blocks}, Layout::kScalesTiles);
  }
  std::vector<TensorPlan> take() { return std::move(tensors_); }

 private:
  TensorRole role_between(std::string_view name) const {
    if (flow_.saves(name)) return TensorRole::kSaved;
    return flow_.defers(name) ? TensorRole::kDeferred : TensorRole::kWorkspace;
  }

  bool is_quantized_;
  const Dataflow& flow_;
  std::vector<TensorPlan> tensors_;
};

using enum DType;
using enum TensorRole;

void add_callers(TensorList& list, const Layer& layer, const LayerDims& d) {
  list.add("x", kBF16, kInput, {d.t, d.h});
  list.add("topk_ids", topk_ids_dtype(layer), kInput, {d.t, d.k});
  list.add("topk_probs", topk_probs_dtype(layer), kInput, {d.t, d.k});
  list.add("w1", kBF16, kWeight, {d.e, d.h1, d.h});
  list.add("w2", kBF16, kWeight, {d.e, d.h, d.i});
  if (layer.biases) {
    list.add("b1", kBF16, kWeight, {d.e, d.h1});
    list.add("b2", kBF16, kWeight, {d.e, d.h});
  }
  if (is_quantized(layer)) {
    const Layout tiles = Layout::kScalesTiles;
    list.add_optional("skip_update", kU32, kWeight, {Dim{"1", 1}});
    list.add_quantized("w1", kQuantized, {d.e, d.h1, d.h}, {d.e, d.h1b, d.hb}, tiles);
    list.add_quantized("w2", kQuantized, {d.e, d.h, d.i}, {d.e, d.hb, d.ib}, tiles);
  }
  list.add("y", kBF16, kOutput, {d.t, d.h});
  list.add_status(has_backward(layer));
}

void add_forward(TensorList& list, const Layer& layer, const LayerDims& d) {
  // First: at the same place for any T.
  if (has_backward(layer)) list.add("saved_tokens", kI64, kSaved, {Dim{"1", 1}});
  if (is_quantized(layer)) list.add_rows("x", d.t, d.h, d.hb);
  const Dim starts{"E+1", d.e.value + 1};
  list.add_between("counts", kI32, {d.e});
  list.add_between("offs", kI32, {starts});
  list.add_between("colwise_offs", kI32, {starts});
  list.add_between("row_map", kI32, {d.t, d.k});
  list.add_rows("permuted", d.p, d.h, d.hb);
  list.add_between("row_tokens", kI32, {d.p});
  list.add_between("permuted_probs", kF32, {d.p});
  list.add_between("h1", kBF16, {d.p, d.h1});
  list.add_rows("act", d.p, d.i, d.ib);
  list.add_between("h2", kBF16, {d.p, d.h});
}

// What the backward pass touches beside the tensors of the forward pass.
void add_backward(TensorList& list, const Layer& layer, const LayerDims& d) {
  const bool quantizes = is_quantized(layer);
  list.add("dy", kBF16, kInput, {d.t, d.h});
  if (quantizes) {
    const Layout tiles = Layout::kScalesTiles;
    list.add_quantized("w1_colwise", kQuantized, {d.e, d.h, d.padded_h1}, {d.e, d.hb, d.h1b},
                       tiles);
    list.add_quantized("w2_colwise", kQuantized, {d.e, d.i, d.h}, {d.e, d.ib, d.hb}, tiles);
  }
  list.add("dx", kBF16, kOutput, {d.t, d.h});
  list.add("dprobs", topk_probs_dtype(layer), kOutput, {d.t, d.k});
  const DType wgrad = layer.wgrad_dtype == WgradDtype::kBf16 ? kBF16 : kF32;
  list.add("dw1", wgrad, kOutput, {d.e, d.h1, d.h});
  list.add("dw2", wgrad, kOutput, {d.e, d.h, d.i});
  if (layer.biases) {
    list.add("db1", kF32, kOutput, {d.e, d.h1});
    list.add("db2", kF32, kOutput, {d.e, d.h});
    list.add_between("bias_dprobs", kF32, {d.p});
  }
  if (quantizes) list.add_rows("dy", d.t, d.h, d.hb);
  const Dim columns{"C", gradient_columns(call_bounds(layer))};
  list.add_rows("grad_permuted", d.p, d.h, d.hb);
  list.add_between("dact", kBF16, {d.p, d.i});
  if (quantizes) {
    list.add_colwise("grad_colwise", d.h, d.hb, columns);
    list.add_colwise("act_colwise", d.i, d.ib, columns);
  }
  list.add_rows("dh1", d.p, d.padded_h1, d.h1b);
  list.add_between("dprobs_blocks", kF32, {d.p, d.ib});
  if (quantizes) {
    list.add_colwise("dh1_colwise", d.padded_h1, d.h1b, columns);
    list.add_colwise("x_colwise", d.h, d.hb, columns);
  }
  list.add_between("dx_permuted", kBF16, {d.p, d.h});
}

}  // namespace

std::vector<TensorPlan> make_tensors(const Layer& layer, const std::vector<Step>& steps,
                                     const Dataflow& flow, const PlanOptions& options) {
  const LayerDims dims(layer);
  TensorList list(layer, flow);
  add_callers(list, layer, dims);
  add_forward(list, layer, dims);
  if (has_backward(layer)) add_backward(list, layer, dims);
  for (const Step& step : steps)
    if (options.measure_gemms && is_gemm(step.operation))
      list.add(elapsed_tensor(step), kI64, kOutput, {Dim{"2", 2}});
  return list.take();
}

}  // namespace moejit::compiler
