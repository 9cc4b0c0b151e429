// SPDX-License-Identifier: Apache-2.0
#include "compiler/planner/layer_values.h"

#include "compiler/kernels/row_chain.h"
#include "compiler/launch.h"

#include <algorithm>
#include <fmt/core.h>
#include <utility>

namespace moejit::compiler {

std::string data_name(std::string_view name, const Format& format) {
  return is_quantized(format) ? fmt::format("{}_q", name) : std::string(name);
}

std::string scales_name(std::string_view name, const Format& format) {
  return has_scales(format) || has_two_levels(format) ? fmt::format("{}_scale_inv", name)
                                                      : std::string();
}

std::string scale_name(std::string_view name) { return fmt::format("{}_scale", name); }

std::string amax_name(std::string_view name) { return fmt::format("{}_amax", name); }

std::string colwise_amax_name(std::string_view name) {
  return amax_name(fmt::format("{}_colwise", name));
}

StateNames state_names(std::string_view linear, Pass pass) {
  const std::string_view part = pass == Pass::kBackward ? "_grad" : "";
  return {.amax_history = fmt::format("{}{}_amax_history", linear, part),
          .scale = fmt::format("{}{}_scale", linear, part)};
}

int32_t state_columns(Pass pass) { return pass == Pass::kBackward ? 2 : 3; }

std::vector<std::string> tensors_of(const Layer& layer, Gradient gradient) {
  if (gradient == Gradient::kDw1 && has_separate_gate_up(layer)) return {"dw1_gate", "dw1_up"};
  if (gradient == Gradient::kDprobs && layer.shared.gate) return {"dprobs", "dshared_probs"};
  return {std::string(to_string(gradient))};
}

StateOf state_of(std::string_view name) {
  const bool is_weight = name == "w1" || name == "w2";
  const bool is_gradient = name == "grad_permuted" || name == "dh1";
  const bool is_of_fc1 = name == "permuted" || name == "w1" || name == "dh1";
  const Pass pass = is_gradient ? Pass::kBackward : Pass::kForward;
  return {.linear = is_of_fc1 ? "fc1" : "fc2",
          .pass = pass,
          .columns = {.stride = state_columns(pass), .first = is_weight ? 1 : 0}};
}

WeightCheckSpec weight_check_of(const Layer& layer) {
  return weight_check(layer.local_experts, w1_sections(layer) * layer.intermediate, layer.hidden,
                      layer.intermediate);
}

int32_t wgrad_intermediate(const Layer& layer) {
  const bool sorts_rows =
      layer.gate_up_layout == GateUpLayout::kInterleaved && has_scales(layer.recipe.weights);
  if (!sorts_rows || !has_row_scale(layer.recipe.gradients)) return padded_intermediate(layer);
  return (layer.intermediate + 127) / 128 * 128;
}

bool has_colwise_offs(const Layer& layer) {
  return has_backward(layer) && has_scales(layer.recipe.wgrad_operands) &&
         layer.splits_alignment % 128 != 0;
}

namespace {

constexpr int64_t kScaledColumns = 128;

Dim blocks_of(std::string symbol, const Dim& dim) {
  return {std::move(symbol), (dim.value + kScaledColumns - 1) / kScaledColumns};
}

// The dimensions of a layer's tensors.
struct LayerDims {
  explicit LayerDims(const Layer& layer)
      : t{"T", layer.max_tokens},
        k{"K", layer.top_k},
        e{"E", layer.local_experts},
        h{"H", layer.hidden},
        i{"I", layer.intermediate},
        h1(sections_of(layer, i)),
        padded_h1(padded(layer, padded_intermediate(layer))),
        wgrad_h1(padded(layer, wgrad_intermediate(layer))),
        p{"P", layer.max_permuted_rows},
        c{"C", gradient_columns(call_bounds(layer))},
        hb(blocks_of("ceil(H/128)", h)),
        ib(blocks_of("ceil(I/128)", i)),
        h1b(sections_of(layer, ib)) {}
  Dim t, k, e, h, i;
  Dim h1, padded_h1;  // columns of h1, rows of w1
  Dim wgrad_h1;       // columns of dh1 as wgrad takes them
  Dim p, c, hb, ib, h1b;

 private:
  // Returns the dimension of gate and up together, of so many columns each.
  Dim padded(const Layer& layer, int64_t columns) const {
    return columns == layer.intermediate ? h1 : Dim{"2I'", 2 * columns};
  }
  // Returns the dimension of gate and up together, or of up alone.
  static Dim sections_of(const Layer& layer, const Dim& one) {
    if (w1_sections(layer) == 1) return one;
    return {"2" + one.symbol, 2 * one.value};
  }
};

using enum DType;
using enum TensorRole;

class ValueList {
 public:
  ValueList(const Recipe& recipe, Dim experts) : recipe_(recipe), experts_(std::move(experts)) {}

  // Adds a value that operations pass to each other; callers' values get a role as well.
  Value& add(std::string name, DType dtype, std::vector<Dim> shape) {
    values_.push_back({.name = std::move(name), .dtype = dtype, .shape = std::move(shape)});
    return values_.back();
  }
  void add(std::string name, DType dtype, std::optional<TensorRole> role, std::vector<Dim> shape) {
    add(std::move(name), dtype, std::move(shape)).role = role;
  }
  // Adds matrices of weights and the scales of their tiles or rows, if the format has scales.
  // Without a role they belong to the calls that make and read them.
  void add_tiles(std::string_view name, const Format& format, std::vector<Dim> shape,
                 std::vector<Dim> scales_shape, int32_t sections = 1,
                 std::optional<TensorRole> role = kQuantized) {
    if (!is_quantized(format)) return;
    if (is_packed(format))
      return add_packed(name, format, std::move(scales_shape), shape.back(), sections);
    add(data_name(name, format), stored_dtype(format), role, shape);
    if (!has_scales(format) || has_expert_scale(format)) return;
    if (has_row_scale(format)) {
      shape.pop_back();
      return add(scales_name(name, format), kF32, kQuantized, std::move(shape));
    }
    add(scales_name(name, format), kF32, role, std::move(scales_shape));
    values_.back().layout = Layout::kScalesTiles;
  }
  // Adds packed tiles, which the caller has made, and their scales. `blocks` are the tiles of
  // 128x128, and `columns` are the contraction.
  void add_packed(std::string_view name, const Format& format, std::vector<Dim> tiles,
                  const Dim& columns, int32_t sections) {
    const PackedTile& tile = packed_tile(format.packed);
    if (tile.has_block_scale) {
      add(scales_name(name, format), kF32, kWeight, tiles);
      values_.back().layout = Layout::kScalesTiles;
    } else {
      add(scales_name(name, format), kF32, kWeight,
          {experts_, {std::to_string(sections), sections}});
    }
    tiles.back() = {fmt::format("ceil({}/{})", columns.symbol, tile.columns),
                    (columns.value + tile.columns - 1) / tile.columns};
    tiles.push_back({std::to_string(tile.bytes), tile.bytes});
    add(data_name(name, format), kU8, kWeight, std::move(tiles));
  }
  // Adds the scales of the experts' matrices or rows, if the format has such scales, and the
  // magnitudes that they come from.
  void add_expert_scales(std::string_view name, const Format& format, std::vector<Dim> magnitudes,
                         std::optional<TensorRole> role = {}) {
    if (!has_expert_factor(format)) return;
    add(amax_name(name), kF32, std::move(magnitudes)).role = role;
    add(scale_name(name), kF32, {experts_}).role = role;
    add(scales_name(name, format), kF32, {experts_}).role = role;
  }
  // Adds rows [rows, columns] of a format in which an expert's rows share a scale.
  void add_expert_rows(std::string_view name, const Format& format, const Dim& rows,
                       const Dim& columns, const Dim& magnitudes) {
    add(data_name(name, format), stored_dtype(format), {rows, columns});
    add_expert_scales(name, format, {rows, magnitudes});
  }
  // Adds rows [rows, columns] with a scale for each block of a row, or for all of it.
  void add_rows(std::string_view name, const Format& format, const Dim& rows, const Dim& columns,
                const Dim& blocks, std::optional<TensorRole> role = {}) {
    if (has_two_levels(format)) return;  // rows are cast where their expert is known
    add(fmt::format("{}_q", name), format.is_recovered ? kBF16 : kF8E4M3, {rows, columns}).role =
        role;
    if (format.is_recovered) return;
    const bool is_whole = has_row_scale(format);
    Value& scales = add(fmt::format("{}_scale_inv", name), kF32,
                        is_whole ? std::vector{rows} : std::vector{rows, blocks});
    if (!is_whole) scales.layout = Layout::kScalesCompact;
    scales.role = role;
  }
  // Adds rows with a scale for each block, or for each expert where the format has such scales. In
  // bf16 they have `bf16_columns`. `part` is gate or up alone, where rows have both.
  void add_rows_and_bf16(std::string_view name, const Format& format, const Dim& rows,
                         const Dim& columns, const Dim& blocks, const Dim& part,
                         const Dim& bf16_columns) {
    if (has_expert_factor(format)) {
      const Dim& looked_at = has_two_levels(format) ? bf16_columns : part;
      add_expert_rows(name, format, rows, columns, sets_of(looked_at));
    } else {
      add_rows(name, format, rows, columns, blocks);
    }
    add(std::string(name), kBF16, {rows, bf16_columns});
  }
  // Adds an operand of wgrad, [rows, C] in blocks of 128 columns. It has a scale for each 128x128
  // tile, for each row and block, or for each row of an expert. Or it has the bytes of rows and
  // their scales. Recovered values are [tokens, rows].
  void add_colwise(std::string_view name, const Format& of_rows, const Dim& rows,
                   const Dim& row_blocks, const Dim& columns, const Dim& tokens) {
    const Format& format = recipe_.wgrad_operands;
    if (format.is_recovered) add(data_name(name, format), stored_dtype(format), {tokens, rows});
    if (!has_scales(format)) return;
    const Dim blocks{"C/128", columns.value / kScaledColumns};
    const bool keeps_bytes = has_expert_scale(format);
    add(data_name(name, format), keeps_bytes ? of_rows.dtype : format.dtype,
        {blocks, rows, {"128", kScaledColumns}});
    if (keeps_bytes) return;
    if (format.scale == ScaleOf::kColumn) {
      add(scales_name(name, format), kF32, {experts_, rows});
      return;
    }
    const bool has_tiles = format.scale == ScaleOf::k128x128;
    add(scales_name(name, format), kF32,
        has_tiles ? std::vector{row_blocks, blocks} : std::vector{blocks, rows})
        .layout = has_tiles ? Layout::kScalesTiles : Layout::kScalesColumns;
  }
  std::vector<Value> take() { return std::move(values_); }

 private:
  static Dim sets_of(const Dim& columns) {
    return {fmt::format("ceil({}/512)", columns.symbol), magnitudes_of_row(columns.value)};
  }

  const Recipe& recipe_;
  Dim experts_;
  std::vector<Value> values_;
};

// Returns the pieces of a matrix in which its largest magnitudes are found.
Dim pieces(const Dim& rows, const Dim& columns) {
  const MatrixAmax amax{.rows = static_cast<int32_t>(rows.value),
                        .columns = static_cast<int32_t>(columns.value)};
  return {"pieces", pieces_of(amax)};
}

void add_callers(ValueList& list, const Layer& layer, const LayerDims& d) {
  list.add("x", kBF16, kInput, {d.t, d.h});
  if (is_grouped(layer)) {
    list.add("tokens_per_expert", dtype_of(layer.tokens_per_expert_dtype), kInput, {d.e});
    list.add("probs", kF32, kInput, {d.t});
  } else {
    list.add("topk_ids", dtype_of(layer.topk_ids_dtype), kInput, {d.t, d.k});
    list.add("topk_probs", dtype_of(layer.topk_probs_dtype), kInput, {d.t, d.k});
  }
  if (has_separate_gate_up(layer)) {
    list.add("w1_gate", kBF16, kWeight, {d.e, d.i, d.h});
    list.add("w1_up", kBF16, kWeight, {d.e, d.i, d.h});
  } else {
    list.add("w1", kBF16, kWeight, {d.e, d.h1, d.h});
  }
  list.add("w2", kBF16, kWeight, {d.e, d.h, d.i});
  list.add("b1", kBF16, kWeight, {d.e, d.h1});
  list.add("b2", kBF16, kWeight, {d.e, d.h});
  Value& skip = list.add("skip_update", kU32, {Dim{"1", 1}});
  skip.role = kWeight;
  skip.is_optional = true;
  if (layer.weight_checks)
    list.add("weights_digest", kU32, kQuantized,
             {Dim{"digest", digest_words(weight_check_of(layer))}});
  list.add_tiles("w1", layer.recipe.weights, {d.e, d.h1, d.h}, {d.e, d.h1b, d.hb},
                 w1_sections(layer));
  list.add_expert_scales("w1", layer.recipe.weights, {d.e, pieces(d.h1, d.h)}, kQuantized);
  list.add_tiles("w2", layer.recipe.weights, {d.e, d.h, d.i}, {d.e, d.hb, d.ib});
  list.add_expert_scales("w2", layer.recipe.weights, {d.e, pieces(d.h, d.i)}, kQuantized);
  list.add("y", kBF16, kOutput, {d.t, d.h});
  // Forward calls need the status word; backward calls may leave it out.
  Value& status = list.add("status", kU32, {Dim{"1", 1}});
  status.role = kOutput;
  status.is_optional_in_backward = has_backward(layer);
}

// Adds the states of delayed scaling of a pass.
void add_states(ValueList& list, const Layer& layer, const LayerDims& d, Pass pass) {
  const int32_t count = state_columns(pass);
  const Dim columns{fmt::format("{}E", count), count * d.e.value};
  const Dim steps{"L", layer.amax_history_len};
  for (const std::string_view linear : {"fc1", "fc2"}) {
    const StateNames names = state_names(linear, pass);
    list.add(names.amax_history, kF32, kState, {steps, columns});
    Value& scale = list.add(names.scale, kF32, {columns});
    scale.role = kState;
    scale.first_value = 1.0f;
  }
}

// Returns the role of the rows that the host dispatches; none if the host dispatches no rows.
std::optional<TensorRole> dispatched_role(const Layer& layer) {
  return layer.dispatch_calls ? std::optional(kDispatched) : std::nullopt;
}

void add_forward(ValueList& list, const Layer& layer, const LayerDims& d) {
  list.add("saved_tokens", kI64, kSaved, {Dim{"1", 1}});  // first: at one place for any T
  list.add_rows("x", layer.recipe.tokens, d.t, d.h, d.hb, dispatched_role(layer));
  const Dim starts{"E+1", d.e.value + 1};
  list.add("counts", kI32, {d.e});
  list.add("offs", kI32, {starts});
  list.add("colwise_offs", kI32, {starts});
  list.add("row_map", kI32, {d.t, d.k});
  list.add_rows_and_bf16("permuted", layer.recipe.tokens, d.p, d.h, d.hb, d.h, d.h);
  list.add("row_tokens", kI32, {d.p});
  list.add("permuted_probs", kF32, {d.p});
  list.add("h1", kBF16, {d.p, d.h1});
  list.add_rows_and_bf16("act", layer.recipe.activations, d.p, d.i, d.ib, d.i, d.i);
  list.add("h2", kBF16, {d.p, d.h});
}

// Adds the tensors that only the backward pass touches.
void add_backward(ValueList& list, const Layer& layer, const LayerDims& d) {
  list.add("dy", kBF16, kInput, {d.t, d.h});
  const Format& weights = layer.recipe.weights_colwise;
  // Values stay as they lie, since dgrad reads bf16 along either dimension.
  const bool stays = weights.is_recovered;
  const auto role = layer.backward_quantizes_weights ? std::nullopt : std::optional(kQuantized);
  if (!has_square_blocks(weights)) {
    list.add_tiles("w1_colwise", weights,
                   stays ? std::vector{d.e, d.h1, d.h} : std::vector{d.e, d.h, d.padded_h1},
                   {d.e, d.hb, d.h1b}, 1, role);
    list.add_tiles("w2_colwise", weights,
                   stays ? std::vector{d.e, d.h, d.i} : std::vector{d.e, d.i, d.h},
                   {d.e, d.ib, d.hb}, 1, role);
  }
  list.add("dx", kBF16, kOutput, {d.t, d.h});
  list.add("dprobs", dtype_of(layer.topk_probs_dtype), kOutput,
           is_grouped(layer) ? std::vector{d.t} : std::vector{d.t, d.k});
  const DType wgrad = layer.wgrad_dtype == WgradDtype::kBf16 ? kBF16 : kF32;
  for (const std::string& name : tensors_of(layer, Gradient::kDw1))
    list.add(name, wgrad, kOutput, {d.e, has_separate_gate_up(layer) ? d.i : d.h1, d.h});
  list.add("dw2", wgrad, kOutput, {d.e, d.h, d.i});
  list.add("db1", kF32, kOutput, {d.e, d.h1});
  list.add("db2", kF32, kOutput, {d.e, d.h});
  list.add("bias_dprobs", kF32, {d.p});
  list.add_rows("dy", layer.recipe.gradients, d.t, d.h, d.hb, dispatched_role(layer));
  const Recipe& recipe = layer.recipe;
  list.add_rows_and_bf16("grad_permuted", recipe.gradients, d.p, d.h, d.hb, d.h, d.h);
  list.add("dact", kBF16, {d.p, d.i});
  list.add_colwise("grad_colwise", recipe.gradients, d.h, d.hb, d.c, d.p);
  list.add_colwise("act_colwise", recipe.activations, d.i, d.ib, d.c, d.p);
  list.add_rows_and_bf16("dh1", recipe.gradients, d.p, d.padded_h1, d.h1b, d.i, d.wgrad_h1);
  list.add("dprobs_blocks", kF32, {d.p, d.ib});
  list.add_colwise("dh1_colwise", recipe.gradients, d.wgrad_h1, d.h1b, d.c, d.p);
  list.add_colwise("x_colwise", recipe.tokens, d.h, d.hb, d.c, d.p);
  list.add("dx_permuted", kBF16, {d.p, d.h});
  if (recipe.wgrad_operands.scale == ScaleOf::kColumn) {
    const Dim tiles{"C/128", d.c.value / kScaledColumns};
    list.add(amax_name("dh1"), kF32, {d.p, d.ib});
    list.add(colwise_amax_name("dh1"), kBF16, {tiles, d.wgrad_h1});
    list.add(colwise_amax_name("act"), kBF16, {tiles, d.i});
  }
}

}  // namespace

std::vector<Value> layer_values(const Layer& layer) {
  const LayerDims dims(layer);
  ValueList list(layer.recipe, dims.e);
  add_callers(list, layer, dims);
  if (layer.recipe.has_history) add_states(list, layer, dims, Pass::kForward);
  if (layer.recipe.has_history && has_backward(layer))
    add_states(list, layer, dims, Pass::kBackward);
  add_forward(list, layer, dims);
  if (has_backward(layer)) add_backward(list, layer, dims);
  return list.take();
}

}  // namespace moejit::compiler
