// SPDX-License-Identifier: Apache-2.0
#include "compiler/planner/group_graph.h"
#include "compiler/planner/layer_values.h"
#include "compiler/support/integer.h"

#include <algorithm>
#include <fmt/core.h>

namespace moejit::compiler {
namespace {

using Operations = std::vector<Operation>;

// What travels is laid out by ranks, with places for T_max tokens of each. Every rank gets the rows
// of all tokens, and sends its experts' results to the tokens' ranks. This is no more than a fixed
// place for each token that might come.
class CollectiveExchange {
 public:
  CollectiveExchange(Graph& graph, const Layer& described, const std::string& status)
      : graph_(graph),
        layer_(with_shared_chosen(described)),
        shared_(described.shared.experts),
        status_(status) {}

  void run() {
    name_slots(graph_, layer_, status_);
    dispatch(Phase::kForward, "x");
    combine(Phase::kForward, "y");
    if (!has_backward(layer_)) return;
    dispatch(Phase::kBackward, "dy");
    combine(Phase::kBackward, "dx");
  }

 private:
  Dim ranks() const { return {"R", layer_.expert_parallel.ranks}; }
  Dim most() const { return {"T_max", layer_.max_tokens}; }
  Dim slots() const { return {"S", layer_.expert_parallel.ranks * layer_.max_tokens}; }
  Dim choices() const { return {"K", layer_.top_k}; }
  Dim columns() const { return {"H", layer_.hidden}; }

  void add(const std::string& name, DType dtype, std::vector<Dim> shape,
           Layout layout = Layout::kRowMajor) {
    if (find_value(graph_, name) != nullptr) return;
    graph_.values.push_back(
        {.name = name, .dtype = dtype, .shape = std::move(shape), .layout = layout});
  }

  static std::string of_phase(std::string name, Phase phase) {
    return phase == Phase::kBackward ? name + "_grad" : name;
  }

  ExchangeShape shape() const {
    // So many neighboring tokens are one step of a CTA that adds what came home.
    constexpr int32_t kChunkTokens = 4;
    return {.ranks = layer_.expert_parallel.ranks,
            .rank_experts = layer_.experts / layer_.expert_parallel.ranks,
            .top_k = layer_.top_k,
            .shared = shared_,
            .max_tokens = static_cast<int32_t>(layer_.max_tokens),
            .chunk_tokens = kChunkTokens,
            .topk_ids = dtype_of(layer_.topk_ids_dtype)};
  }

  Operation pack_choices() {
    add("packed_ids", DType::kI32, {most(), choices()});
    add("packed_probs", DType::kF32, {most(), choices()});
    return {.name = "pack_choices",
            .kind = PackChoices{{.exchange = shape(), .probs = dtype_of(layer_.topk_probs_dtype)}},
            .reads = {{.role = "topk_ids", .tensor = "topk_ids"},
                      {.role = "topk_probs", .tensor = "topk_probs"}},
            .writes = {{.role = "packed_ids", .tensor = "packed_ids"},
                       {.role = "packed_probs", .tensor = "packed_probs"},
                       {.role = "saved_tokens", .tensor = "saved_tokens", .is_optional = true}},
            .tokens = TokensOf::kRank};
  }

  Operation take_choices() {
    for (const std::string_view of : {"choice", "slot"}) {
      add(fmt::format("{}_ids", of), DType::kI32, {slots(), choices()});
      add(fmt::format("{}_probs", of), DType::kF32, {slots(), choices()});
    }
    ExchangeShape of_ranks = shape();
    of_ranks.topk_ids = DType::kI32;
    return {.name = "take_choices",
            .kind = TakeChoices{{.exchange = of_ranks}},
            .reads = {{.role = "choice_ids", .tensor = "choice_ids"},
                      {.role = "choice_probs", .tensor = "choice_probs"}},
            .writes = {{.role = "slot_ids", .tensor = "slot_ids"},
                       {.role = "slot_probs", .tensor = "slot_probs"}},
            .tokens = TokensOf::kRank};
  }

  // Its status bit goes to all ranks, with the bits of the experts.
  Operation compare_tokens() const {
    return {.name = "compare_tokens",
            .kind = CompareTokens{},
            .reads = {{.role = "saved_tokens", .tensor = "saved_tokens"}},
            .writes = {{.role = "tokens_status", .tensor = status_}},
            .phase = Phase::kBackward,
            .tokens = TokensOf::kRank};
  }

  // Returns an empty step.
  static Operation step(std::string name, Phase phase, std::string reason) {
    return {.name = std::move(name),
            .kind = Collective{.reasons = {std::move(reason)}},
            .phase = phase};
  }
  static void move(Operation& step, Movement movement, Port from, Port to) {
    std::get<Collective>(step.kind).movements.push_back(movement);
    step.reads.push_back(std::move(from));
    step.writes.push_back(std::move(to));
  }

  // Makes the operation that leaves this rank's rows where the transport takes them, and the port
  // in which the rows of all ranks arrive. It replaces the cast of the rows of all slots, if
  // dispatch is in FP8.
  Operation send_rows(Phase phase, const std::string& tokens, Port& arrived) {
    const std::string sent = fmt::format("sent_{}", tokens);
    if (layer_.dispatch == Dispatch::kFp8) {
      const auto cast = std::ranges::find_if(graph_.operations, [&](const Operation& operation) {
        return operation.phase == phase && reads(operation, tokens);
      });
      Operation sending = std::move(*cast);
      graph_.operations.erase(cast);
      arrived = write_of(sending, "output");
      Port& output = *std::ranges::find(sending.writes, "output", &Port::role);
      const Dim blocks{"ceil(H/128)", ceil_div(int64_t{layer_.hidden}, int64_t{128})};
      output.tensor = sent;
      output.scale_inv = sent + "_scale_inv";
      add(output.tensor, DType::kF8E4M3, {most(), columns()});
      add(output.scale_inv, DType::kF32, {most(), blocks}, Layout::kScalesCompact);
      return sending;
    }
    arrived = {.role = "output", .tensor = fmt::format("received_{}", tokens)};
    for (Operation& operation : graph_.operations) rename(operation.reads, tokens, arrived.tensor);
    add(arrived.tensor, DType::kBF16, {slots(), columns()});
    add(sent, DType::kBF16, {most(), columns()});
    return {.name = fmt::format("send_{}", tokens),
            .kind = QuantizeRows{.columns = layer_.hidden,
                                 .reason = "the transport takes T_max rows in every call"},
            .reads = {{.role = "input", .tensor = tokens}},
            .writes = {{.role = "output", .tensor = sent}},
            .phase = phase};
  }

  void dispatch(Phase phase, const std::string& tokens) {
    Operation gather =
        step(of_phase("gather_tokens", phase), phase,
             "every rank gets the rows of all tokens: as many bytes for any routing, so that "
             "nobody waits on a host");
    Operations front;
    if (phase == Phase::kForward) {
      front.push_back(pack_choices());
      for (const std::string_view of : {"ids", "probs"})
        move(gather, Movement::kGather, {.role = "block", .tensor = fmt::format("packed_{}", of)},
             {.role = "blocks", .tensor = fmt::format("choice_{}", of)});
    }
    if (phase == Phase::kBackward) front.push_back(compare_tokens());
    Port arrived;
    front.push_back(send_rows(phase, tokens, arrived));
    front.back().tokens = TokensOf::kRank;
    move(gather, Movement::kGather, write_of(front.back(), "output"), arrived);
    front.push_back(std::move(gather));
    if (phase == Phase::kForward) front.push_back(take_choices());
    graph_.operations.insert(std::ranges::find(graph_.operations, phase, &Operation::phase),
                             std::make_move_iterator(front.begin()),
                             std::make_move_iterator(front.end()));
  }

  Operations::iterator unpermute_of(Phase phase) {
    return std::ranges::find_if(graph_.operations, [&](const Operation& operation) {
      return operation.phase == phase && kind_of<Unpermute>(operation) != nullptr;
    });
  }

  // Leaves the row of each choice where the transport takes it, as if each choice were a token with
  // one row.
  void spread_rows(Phase phase, const std::string& sent) {
    const auto unpermute = unpermute_of(phase);
    Operation spread{.name = of_phase("spread_rows", phase),
                     .kind = Unpermute{.columns = layer_.hidden, .top_k = 1},
                     .reads = {read_of(*unpermute, "input"), read_of(*unpermute, "row_map")},
                     .writes = {{.role = "output", .tensor = sent}},
                     .phase = phase,
                     .tokens = TokensOf::kChoices};
    if (find_write(*unpermute, "dprobs") == nullptr) {
      *unpermute = std::move(spread);
      return;
    }
    std::erase_if(unpermute->writes, [](const Port& port) { return port.role == "output"; });
    narrow(*unpermute);
    graph_.operations.insert(unpermute + 1, std::move(spread));
  }

  // Sends home what the experts made of each rank's tokens, and adds up what comes back.
  void combine(Phase phase, const std::string& output) {
    const bool sends_rows = layer_.expert_parallel.combine == Combine::kRows;
    const bool has_dprobs = find_write(*unpermute_of(phase), "dprobs") != nullptr;
    std::vector<Dim> places = {slots(), columns()};
    if (sends_rows) places.insert(places.begin() + 1, choices());
    add("sent_results", DType::kBF16, places);
    add("results", DType::kBF16, places);
    add("status_of_ranks", DType::kU32, {ranks()});
    if (sends_rows)
      spread_rows(phase, "sent_results");
    else
      rename(unpermute_of(phase)->writes, output, "sent_results");
    Operation exchange = step(of_phase("exchange_results", phase), phase,
                              sends_rows ? "the row of each choice goes to the rank of its token"
                                         : "a rank's sum of a token's rows goes to its rank");
    move(exchange, Movement::kExchange, {.role = "blocks", .tensor = "sent_results"},
         {.role = "blocks", .tensor = "results"});
    if (has_dprobs) {
      add("slot_dprobs", DType::kF32, {slots(), choices()});
      add("dprobs_of_ranks", DType::kF32, {slots(), choices()});
      move(exchange, Movement::kExchange, {.role = "blocks", .tensor = "slot_dprobs"},
           {.role = "blocks", .tensor = "dprobs_of_ranks"});
    }
    move(exchange, Movement::kGather, {.role = "block", .tensor = status_},
         {.role = "blocks", .tensor = "status_of_ranks"});
    const auto last = std::ranges::find_if(
        graph_.operations.rbegin(), graph_.operations.rend(), [&](const Operation& operation) {
          return std::ranges::count(operation.writes, "sent_results", &Port::tensor) > 0 &&
                 operation.phase == phase;
        });
    auto place = graph_.operations.insert(last.base(), std::move(exchange));
    graph_.operations.insert(place + 1, combine_arrived(phase, output, sends_rows, has_dprobs));
  }

  Operation combine_arrived(Phase phase, const std::string& output, bool adds_rows,
                            bool has_dprobs) const {
    Operation combine{.name = of_phase("combine_arrived", phase),
                      .kind = CombineArrived{{.exchange = shape(),
                                              .adds_rows = adds_rows,
                                              .columns = layer_.hidden,
                                              .has_dprobs = has_dprobs,
                                              .probs = dtype_of(layer_.topk_probs_dtype)}},
                      .reads = {{.role = "results", .tensor = "results"},
                                {.role = "status_of_ranks", .tensor = "status_of_ranks"}},
                      .writes = {{.role = "output", .tensor = output},
                                 {.role = "status", .tensor = status_, .is_repeated = true}},
                      .phase = phase,
                      .tokens = TokensOf::kRank};
    if (adds_rows || has_dprobs)
      combine.reads.push_back({.role = "topk_ids", .tensor = "topk_ids"});
    if (has_dprobs) {
      combine.reads.push_back({.role = "dprobs_of_ranks", .tensor = "dprobs_of_ranks"});
      combine.writes.push_back({.role = "dprobs", .tensor = "dprobs"});
    }
    return combine;
  }

  Graph& graph_;
  Layer layer_;
  int32_t shared_;  // choices of shared experts
  const std::string& status_;
};

}  // namespace

void exchange_by_collectives(Graph& graph, const Layer& layer, const std::string& status,
                             std::vector<std::string>& reasons) {
  CollectiveExchange(graph, layer, status).run();
  reasons.emplace_back(
      "NCCL moves bytes between ranks, as many in every call: T_max rows of each rank to all "
      "others, whether they have experts of them or not");
}

}  // namespace moejit::compiler
