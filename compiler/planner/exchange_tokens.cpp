// SPDX-License-Identifier: Apache-2.0
#include "compiler/planner/exchange_operation.h"
#include "compiler/planner/fusions.h"
#include "compiler/planner/group_graph.h"
#include "compiler/planner/layer_values.h"

#include <algorithm>
#include <array>
#include <fmt/core.h>

namespace moejit::compiler {
namespace {

using Operations = std::vector<Operation>;

// Returns whether rows are permuted as they are, and their destinations follow from row_map alone.
bool only_permutes(const Operation& operation) {
  const auto* const permute = kind_of<PermutePad>(operation);
  return permute != nullptr && !permute->quantize && !permute->finds_amax;
}

// Makes the graph of a rank from the graph of its experts.
class TokenExchange {
 public:
  TokenExchange(Graph& graph, const Layer& described, int64_t rank,
                std::vector<std::string>& reasons)
      : graph_(graph),
        layer_(with_shared_chosen(described)),
        shared_(described.shared.experts),
        rank_(rank),
        reasons_(reasons) {}

  void run() {
    name_slots(graph_, layer_, own("group_status"));
    learn_choices();
    dispatch(Phase::kForward, "x");
    join_route();
    combine(Phase::kForward);
    if (!has_backward(layer_)) return;
    dispatch(Phase::kBackward, "dy");
    combine(Phase::kBackward);
  }

 private:
  std::string own(std::string_view field) const { return fmt::format("{}_{}", field, rank_); }

  bool has_value(std::string_view name) const { return find_value(graph_, name) != nullptr; }

  Exchange exchange_of(Phase phase) const {
    const Recipe& recipe = layer_.recipe;
    const Format& rows = phase == Phase::kBackward ? recipe.gradients : recipe.tokens;
    const bool is_fp8 = layer_.dispatch == Dispatch::kFp8;
    return {.ranks = layer_.expert_parallel.ranks,
            .rank = rank_,
            .experts = layer_.experts,
            .top_k = layer_.top_k,
            .shared = shared_,
            .max_tokens = layer_.max_tokens,
            .columns = layer_.hidden,
            .format = is_fp8 ? DType::kF8E4M3 : DType::kBF16,
            .epsilon = is_fp8 ? rows.epsilon : 0.0f,
            .topk_ids = dtype_of(layer_.topk_ids_dtype),
            .topk_probs = dtype_of(layer_.topk_probs_dtype),
            .sms = layer_.expert_parallel.sms,
            .max_permuted_rows = layer_.max_permuted_rows};
  }

  // Returns the operation of a step, and adds its values to the graph that are not there.
  Operation make(ExchangeStep step, const Exchange& exchange, Phase phase) {
    ExchangeOperation made = exchange_operation(step, exchange);
    made.operation.phase = phase;
    made.operation.tokens = TokensOf::kRank;
    if (phase == Phase::kBackward) made.operation.name += "_grad";
    return add_values(std::move(made));
  }
  Operation add_values(ExchangeOperation made) {
    for (Value& added : made.values) {
      if (has_value(added.name) || is_renamed(added.name)) continue;
      if (added.rank >= 0) added.role = TensorRole::kGroup;
      graph_.values.push_back(std::move(added));
    }
    return std::move(made.operation);
  }
  // Returns whether a step's value has another name in a layer.
  static bool is_renamed(std::string_view name) {
    constexpr std::array kRenamed =
        std::to_array<std::string_view>({"input", "output", "expert_rows", "permuted",
                                         "permuted_scale_inv", "kept_rows", "kept_rows_scale_inv"});
    return std::ranges::find(kRenamed, name) != kRenamed.end();
  }

  Operations::iterator first_of(Phase phase) {
    return std::ranges::find(graph_.operations, phase, &Operation::phase);
  }
  // Returns the first operation of a phase that reads a tensor.
  Operations::iterator first_reader(Phase phase, std::string_view tensor) {
    return std::ranges::find_if(graph_.operations, [&](const Operation& operation) {
      return operation.phase == phase && reads(operation, tensor);
    });
  }

  void learn_choices() {
    Operation choices = make(ExchangeStep::kChoices, exchange_of(Phase::kForward), Phase::kForward);
    graph_.operations.insert(first_of(Phase::kForward), std::move(choices));
  }

  void dispatch(Phase phase, const std::string& tokens) {
    auto reader = first_reader(phase, tokens);
    std::string rows = tokens, scales;
    if (layer_.dispatch == Dispatch::kFp8) {
      const Port quantized = write_of(*reader, "output");
      rows = quantized.tensor;
      scales = quantized.scale_inv;
      graph_.operations.erase(reader);
      reader = first_reader(phase, rows);
    }
    if (only_permutes(*reader))
      dispatch_permuted(reader, tokens, rows, scales);
    else
      dispatch_to_slots(reader, tokens);
  }

  // Adds the comparison of T to the dispatch of a backward call.
  static void compare_tokens(Operation& dispatch) {
    if (dispatch.phase == Phase::kBackward)
      dispatch.reads.push_back({.role = "saved_tokens", .tensor = "saved_tokens"});
  }

  // Joins dispatch with the operation that permutes rows. If others read the rows too, it keeps
  // them.
  void dispatch_permuted(Operations::iterator permute, const std::string& tokens,
                         const std::string& rows, const std::string& scales) {
    const Phase phase = permute->phase;
    const std::string kept = rows == tokens ? fmt::format("received_{}", tokens) : rows;
    Exchange exchange = exchange_of(phase);
    exchange.moves_probs = find_write(*permute, "output_probs") != nullptr;
    exchange.tells_tokens = find_write(*permute, "row_tokens") != nullptr;
    exchange.keeps_rows = std::ranges::count_if(graph_.operations, [&](const Operation& one) {
                            return reads(one, rows);
                          }) > 1;
    Operation dispatch = make(ExchangeStep::kDispatchPermute, exchange, phase);
    rename(dispatch, "input", tokens);
    for (const std::string_view role : {"output", "output_probs", "row_tokens"})
      if (const Port* const port = find_write(*permute, role); port != nullptr)
        *std::ranges::find(dispatch.writes, role, &Port::role) = *port;
    rename(dispatch, "kept_rows", kept);
    rename(dispatch, "kept_rows_scale_inv", scales);
    compare_tokens(dispatch);
    if (exchange.keeps_rows && kept != rows) add_received(kept);
    *permute = std::move(dispatch);
    if (kept != rows)
      for (Operation& one : graph_.operations)
        if (&one != &*permute) rename(one.reads, rows, kept);
  }

  // Joins the exchange of choices and the route with the dispatch behind them.
  void join_route() {
    const auto choices = first_of(Phase::kForward);
    const auto route = choices + 1, dispatch = choices + 2;
    if (!can_join_route_dispatch(*choices, *route, *dispatch)) return;
    *dispatch =
        add_values(join_route_dispatch(*choices, *route, *dispatch, static_cast<int32_t>(rank_)));
    graph_.operations.erase(choices, dispatch);
  }

  void add_received(const std::string& name) {
    graph_.values.push_back(
        {.name = name,
         .dtype = DType::kBF16,
         .shape = {{"S", layer_.expert_parallel.ranks * layer_.max_tokens}, {"H", layer_.hidden}}});
  }

  // Dispatches rows to slots, from which the experts read them. Rows that a backward call reads of
  // a forward call are kept.
  void dispatch_to_slots(Operations::iterator reader, const std::string& tokens) {
    const Phase phase = reader->phase;
    const std::string slots = own("slots"), kept = fmt::format("received_{}", tokens);
    const bool is_read_later = std::ranges::any_of(graph_.operations, [&](const Operation& one) {
      return one.phase > phase && reads(one, tokens);
    });
    for (Operation& one : graph_.operations)
      rename(one.reads, tokens, one.phase > phase ? kept : slots);
    std::vector<Operation> added;
    added.push_back(make(ExchangeStep::kDispatch, exchange_of(phase), phase));
    rename(added.back(), "input", tokens);
    compare_tokens(added.back());
    added.push_back(make(ExchangeStep::kAwait, exchange_of(phase), phase));
    if (is_read_later) {
      add_received(kept);
      added.push_back(
          {.name = fmt::format("keep_{}", tokens),
           .kind = QuantizeRows{.columns = layer_.hidden,
                                .reason = "backward reads rows of slots, which the next "
                                          "call overwrites"},
           .reads = {{.role = "input", .tensor = slots}},
           .writes = {{.role = "output", .tensor = kept}},
           .phase = phase});
    }
    graph_.operations.insert(reader, std::make_move_iterator(added.begin()),
                             std::make_move_iterator(added.end()));
    reasons_.push_back(fmt::format(
        "{} is dispatched to slots and permuted there: a row is cast in another way for each of "
        "its experts, or is looked at before it is cast",
        tokens));
  }

  // Joins the sum of a token's rows with their way home.
  void combine(Phase phase) {
    auto unpermute = std::ranges::find_if(graph_.operations, [&](const Operation& operation) {
      return operation.phase == phase && kind_of<Unpermute>(operation) != nullptr;
    });
    Exchange exchange = exchange_of(phase);
    exchange.has_dprobs = find_write(*unpermute, "dprobs") != nullptr;
    exchange.sends_rows = layer_.expert_parallel.combine == Combine::kRows;
    Operation combine = make(ExchangeStep::kCombineRows, exchange, phase);
    rename(combine, "expert_rows", read_of(*unpermute, "input").tensor);
    rename(combine, "output", write_of(*unpermute, "output").tensor);
    if (!exchange.has_dprobs) {
      *unpermute = std::move(combine);
      return;
    }
    std::erase_if(unpermute->writes, [](const Port& port) { return port.role == "output"; });
    narrow(*unpermute);
    graph_.operations.insert(unpermute + 1, std::move(combine));
  }
  Graph& graph_;
  Layer layer_;
  int64_t shared_;  // choices of shared experts
  int64_t rank_;
  std::vector<std::string>& reasons_;
};

}  // namespace

void exchange_tokens(Graph& graph, const Layer& layer, int64_t rank,
                     std::vector<std::string>& reasons) {
  Value& status = *std::ranges::find(graph.values, "status", &Value::name);
  const std::string name = fmt::format("group_status_{}", rank);
  status.name = name;
  status.role = TensorRole::kGroup;
  status.rank = static_cast<int32_t>(rank);
  status.is_optional_in_backward = false;
  if (uses_collectives(layer)) return exchange_by_collectives(graph, layer, name, reasons);
  if (layer.expert_parallel.ranks > 1) {
    TokenExchange(graph, layer, rank, reasons).run();
    return;
  }
  for (Operation& operation : graph.operations) rename(operation, "status", name);
}

}  // namespace moejit::compiler
