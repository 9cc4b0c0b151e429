// SPDX-License-Identifier: Apache-2.0
#include "compiler/planner/fusions.h"

#include <algorithm>
#include <fmt/core.h>

namespace moejit::compiler {
namespace {

using Operations = std::vector<Operation>;

bool is_quantize(const Operation& operation) { return kind_of<QuantizeRows>(operation) != nullptr; }

// Joins each operation that quantizes rows with the operation of its phase that permutes them.
void join_quantize(Operations& operations) {
  for (auto quantize = operations.begin(); quantize != operations.end();) {
    const auto permutes = [&](const Operation& operation) {
      return operation.phase == quantize->phase && kind_of<PermutePad>(operation) != nullptr &&
             reads(operation, write_of(*quantize, "output").tensor);
    };
    const auto permute = is_quantize(*quantize) ? std::find_if(quantize, operations.end(), permutes)
                                                : operations.end();
    if (permute == operations.end()) {
      ++quantize;
      continue;
    }
    *permute = with_quantize(*permute, *quantize);
    quantize = operations.erase(quantize);
  }
}

}  // namespace

void fuse_quantize(Graph& graph, const Layer& layer, std::vector<std::string>& reasons) {
  if (has_expert_scale(layer.recipe.tokens)) {
    reasons.push_back(fmt::format(
        "rows are cast as they are permuted: each destination has the scale of its expert, which "
        "{}",
        layer.recipe.has_history ? "follows from the steps before" : "a kernel before finds"));
    return;
  }
  if (keeps_rows(layer)) return;  // nothing permutes
  if (has_two_levels(layer.recipe.tokens)) {
    reasons.emplace_back(
        "permute_pad moves rows of x and dy as they are, and others cast them: the scale of an "
        "expert, below which blocks have theirs, is known only after a look at all of its rows");
    return;
  }
  if (std::ranges::none_of(graph.operations, is_quantize)) {
    reasons.emplace_back("nothing is quantized: permute_pad moves rows of x and dy as they are");
    return;
  }
  if (layer.dispatch != Dispatch::kNone) {
    reasons.push_back(fmt::format(
        "quantize and permute_pad stay apart: x_q is what dispatch \"{}\" sends between ranks",
        to_string(layer.dispatch)));
    return;
  }
  reasons.push_back(fmt::format(
      "quantize and permute_pad are one kernel: nothing is dispatched in between, and x_q "
      "[T, {0}] is not read, and not written but where backward wants it: {1} bytes a token less",
      layer.hidden, 2 * layer.hidden));
  join_quantize(graph.operations);
}

namespace {

// Returns how many rows the largest call routes at most, without pad rows.
int64_t routed_rows(const Layer& layer) {
  return std::min(layer.max_tokens * layer.top_k, layer.max_permuted_rows);
}

// Returns how many bytes per column are saved if both transposes gather rows: they read tokens
// instead of permuted rows. Without dispatch, x_q and dy_q must be written for this, and read. With
// recomputation x is permuted once more, but the permuted rows need not be saved, which is the
// purpose of recomputation.
int64_t bytes_not_moved(const Layer& layer) {
  const int64_t tokens = layer.max_tokens;
  const int64_t written = layer.dispatch == Dispatch::kNone ? 2 * tokens : 0;
  return 2 * (routed_rows(layer) - tokens) - written;
}

// Values are gathered from x and dy themselves, which are there anyway.
bool may_gather(const Layer& layer) {
  if (!layer.fuse_transpose) return false;
  if (is_cast_from_values(layer.recipe.wgrad_operands)) return true;
  if (layer.recompute == Recompute::kMoeExpert) return routed_rows(layer) > layer.max_tokens;
  return bytes_not_moved(layer) >= 0;  // with equal traffic, less memory is saved for backward
}

// Returns the operation that permuted the rows from which an operand of wgrad is made, or null.
const Operation* find_permute(const Graph& graph, const Operation& operation) {
  if (kind_of<Transpose>(operation) == nullptr && kind_of<QuantizeColumns>(operation) == nullptr &&
      kind_of<ScaleColumns>(operation) == nullptr && kind_of<CastColumns>(operation) == nullptr &&
      kind_of<CastBlocks>(operation) == nullptr)
    return nullptr;
  const std::string& rows = read_of(operation, "input").tensor;
  for (const Operation& other : graph.operations)
    if (kind_of<PermutePad>(other) != nullptr && defines(other, rows)) return &other;
  return nullptr;
}

bool permutes_x(const Operation& permute) { return find_write(permute, "output_probs") != nullptr; }

// Makes a transpose, or a cast by columns, fetch each row from its token.
void gather(Operation& operation, const Operation& permute) {
  const Port rows = read_of(without_quantize(permute), "input");
  *std::ranges::find(operation.reads, "input", &Port::role) = rows;
  operation.reads.push_back({.role = "row_tokens", .tensor = "row_tokens"});
  operation.name = fmt::format("permute_{}", operation.name);
  // A row of x is zeros if its probability is 0; a row of a gradient is not.
  const RowSource source = permutes_x(permute) ? RowSource::kGathered : RowSource::kGatheredAll;
  if (auto* const transpose = std::get_if<Transpose>(&operation.kind)) transpose->source = source;
  if (auto* const cast = std::get_if<QuantizeColumns>(&operation.kind)) cast->source = source;
  if (auto* const scales = std::get_if<ScaleColumns>(&operation.kind)) scales->source = source;
  if (auto* const cast = std::get_if<CastColumns>(&operation.kind)) cast->source = source;
  if (auto* const cast = std::get_if<CastBlocks>(&operation.kind)) cast->source = source;
}

// Adds an operation that permutes x again for rows that backward recomputes.
void permute_again(Graph& graph) {
  Operations& operations = graph.operations;
  const auto permute = std::ranges::find_if(operations, [](const Operation& operation) {
    return kind_of<PermutePad>(operation) != nullptr;
  });
  // Rows with scales of their own are quantized again: no kernel permutes them, and x is there.
  const std::optional<QuantizeRows>& quantize = kind_of<PermutePad>(*permute)->quantize;
  Operation again = quantize && has_row_scale(quantize->format) ? without_kept_rows(*permute)
                                                                : without_quantize(*permute);
  again.phase = Phase::kBackward;
  for (Port& port : again.writes) port.is_repeated = port.role != "output";
  const auto backward = std::ranges::find(operations, Phase::kBackward, &Operation::phase);
  operations.insert(backward, std::move(again));
}

std::string gathered_values_reason(const Layer& layer, bool of_x, bool of_dy) {
  return fmt::format(
      "permute and quantize_columns are one kernel: wgrad's operands are cast from {} [T, {}], "
      "gathered, and bf16 rows are not {}{}",
      of_x && of_dy ? "x and dy"
      : of_x        ? "x"
                    : "dy",
      layer.hidden, has_two_levels(layer.recipe.tokens) ? "read again" : "permuted",
      of_x ? ": backward reads x again, which is not saved" : "");
}

std::string gathered_reason(const Layer& layer, bool of_x, bool of_dy, bool saves_x) {
  return fmt::format(
      "permute and transpose are one kernel: wgrad's operands are made of {} [T, {}]"
      ", gathered{}",
      of_x && of_dy ? "x_q and dy_q"
      : of_x        ? "x_q"
                    : "dy_q",
      layer.hidden,
      saves_x ? fmt::format(", and x_q is saved instead of permuted_q [P, {}]", layer.hidden)
              : std::string());
}

std::string permute_apart_reason(const Layer& layer) {
  if (!layer.fuse_transpose) return "permute and transpose stay apart: \"fuse_transpose\" is false";
  return fmt::format(
      "permute and transpose stay apart: with {} rows of {} tokens in a largest call, "
      "gathering the rows would move more bytes than it saves",
      routed_rows(layer), layer.max_tokens);
}

}  // namespace

void tell_tokens(Graph& graph) {
  for (Operation& operation : graph.operations)
    if (kind_of<PermutePad>(operation) != nullptr && permutes_x(operation))
      operation.writes.push_back({.role = "row_tokens",
                                  .tensor = "row_tokens",
                                  .is_optional = true,
                                  .is_repeated = operation.phase == Phase::kBackward});
}

void fuse_transpose(Graph& graph, const Layer& layer, std::vector<std::string>& reasons) {
  if (!has_backward(layer) || !is_quantized(layer.recipe.wgrad_operands)) return;
  if (has_expert_scale(layer.recipe.wgrad_operands))
    return fuse_permuted_cast(graph, layer, reasons);
  if (keeps_rows(layer)) return;  // nothing permutes
  graph.gathers_tokens = may_gather(layer);
  bool of_x = false, of_dy = false;
  for (Operation& operation : graph.operations) {
    if (operation.phase == Phase::kForward) continue;  // which makes rows, no operands
    const Operation* const permute = find_permute(graph, operation);
    if (permute == nullptr) continue;
    (permutes_x(*permute) ? of_x : of_dy) = true;
    if (graph.gathers_tokens) gather(operation, *permute);
  }
  const bool makes_again = find_writer(graph, "h1", Phase::kBackward) != nullptr;
  if (!graph.gathers_tokens) {
    if (of_x || of_dy) reasons.push_back(permute_apart_reason(layer));
    return;
  }
  tell_tokens(graph);
  if (of_x || of_dy)
    reasons.push_back(is_cast_from_values(layer.recipe.wgrad_operands)
                          ? gathered_values_reason(layer, of_x, of_dy)
                          : gathered_reason(layer, of_x, of_dy, of_x || makes_again));
  // Rows in blocks below an expert's scale are saved as they were cast.
  if (!makes_again || has_two_levels(layer.recipe.tokens)) return;
  permute_again(graph);
  reasons.push_back(fmt::format(
      "{} again for the recomputed gemm_fc1",
      has_row_scale(layer.recipe.tokens) ? "x is quantized and permuted" : "x_q is permuted"));
}

}  // namespace moejit::compiler
