// SPDX-License-Identifier: Apache-2.0
#include "compiler/planner/fusions.h"
#include "compiler/planner/group_graph.h"

#include <algorithm>
#include <cstddef>
#include <utility>

// A layer with a router is a layer without one between two kernels. The first makes ids and
// probabilities of logits. The last makes the logits' gradient of the probabilities' gradient.
// So all else of a plan is as if the caller had chosen.

namespace moejit::compiler {
namespace {

using enum DType;

class LogitsRouting {
 public:
  LogitsRouting(Graph& graph, const Layer& layer, const std::string& status)
      : graph_(graph),
        layer_(layer),
        formula_(*layer.router),
        status_(status),
        place_(find_value(graph, "topk_probs") - graph.values.data() + 1) {}

  void run() {
    // The caller's counts are choices of all experts.
    find_value(graph_, "counts")->name = "rows_per_expert";
    for (Operation& operation : graph_.operations) rename(operation, "counts", "rows_per_expert");
    find_value(graph_, "topk_probs")->role = TensorRole::kOutput;
    if (formula_.ids == RouterIds::kChosen)
      find_value(graph_, "topk_ids")->role = TensorRole::kOutput;
    add_router();
    if (computes(layer_, Gradient::kDlogits)) add_router_backward();
  }

 private:
  bool has_aux() const { return formula_.aux != AuxCounts::kNone; }
  Dim tokens() const { return {"T", layer_.max_tokens}; }
  Dim choices() const { return {"K", layer_.top_k}; }
  Dim experts() const { return {"A", layer_.experts}; }

  template <typename Kind>
  Kind kind() const {
    return {.formula = formula_,
            .experts = layer_.experts,
            .top_k = layer_.top_k,
            .topk_ids = dtype_of(layer_.topk_ids_dtype)};
  }

  // Adds a tensor of the caller behind topk_probs and the others that were added.
  Value& add(std::string name, DType dtype, TensorRole role, std::vector<Dim> shape) {
    Value value{.name = std::move(name), .dtype = dtype, .shape = std::move(shape), .role = role};
    return *graph_.values.insert(graph_.values.begin() + place_++, std::move(value));
  }
  static Port port(const std::string& name) { return {.role = name, .tensor = name}; }
  void read(Operation& operation, const std::string& name, DType dtype, std::vector<Dim> shape) {
    operation.reads.push_back(port(name));
    if (find_value(graph_, name) == nullptr) add(name, dtype, TensorRole::kInput, std::move(shape));
  }
  Value& write(Operation& operation, const std::string& name, DType dtype, std::vector<Dim> shape) {
    operation.writes.push_back(port(name));
    return add(name, dtype, TensorRole::kOutput, std::move(shape));
  }

  void read_logits(Operation& operation) {
    read(operation, "logits", formula_.logits_dtype, {tokens(), experts()});
    if (formula_.has_expert_scale) read(operation, "expert_scale", kF32, {experts()});
  }

  void add_router() {
    Operation router{.name = "router", .kind = kind<Router>(), .tokens = TokensOf::kRank};
    if (layer_.dispatch_calls) router.dispatch_call = DispatchCall::kQuantize;
    read_logits(router);
    if (formula_.has_bias) read(router, "router_bias", kF32, {experts()});
    auto& of_ids = formula_.ids == RouterIds::kGiven ? router.reads : router.writes;
    of_ids.push_back(port("topk_ids"));
    router.writes.push_back(port("topk_probs"));
    write(router, "counts", kI32, {experts()}).is_optional = formula_.aux != AuxCounts::kChosen;
    if (formula_.aux == AuxCounts::kUnbiased) write(router, "unbiased_counts", kI32, {experts()});
    if (has_aux()) write(router, "score_sums", kI64, {experts()});
    if (formula_.z) write(router, "z_sum", kI64, {{"1", 1}});
    router.writes.push_back({.role = "status", .tensor = status_});
    auto& operations = graph_.operations;
    operations.insert(std::ranges::find(operations, Phase::kForward, &Operation::phase),
                      std::move(router));
  }

  // It is the last operation of the data half: no other one needs what it makes.
  void add_router_backward() {
    find_value(graph_, "dprobs")->role.reset();
    Operation router{.name = "router_backward",
                     .kind = kind<RouterBackward>(),
                     .phase = Phase::kBackward,
                     .tokens = TokensOf::kRank};
    if (layer_.backward_halves) router.half = BackwardHalf::kData;
    read_logits(router);
    for (const char* name : {"topk_ids", "dprobs", "saved_tokens"})
      router.reads.push_back(port(name));
    if (has_aux()) {
      const bool is_unbiased = formula_.aux == AuxCounts::kUnbiased;
      router.reads.push_back(
          {.role = "counts", .tensor = is_unbiased ? "unbiased_counts" : "counts"});
      read(router, "aux_coefficient", kF32, {{"1", 1}});
    }
    if (formula_.z) read(router, "z_coefficient", kF32, {{"1", 1}});
    write(router, "dlogits", formula_.logits_dtype, {tokens(), experts()});
    if (formula_.has_expert_scale) write(router, "dexpert_scale", kF32, {tokens(), choices()});
    router.writes.push_back({.role = "tokens_status", .tensor = status_, .is_repeated = true});
    auto& operations = graph_.operations;
    operations.insert(std::ranges::find(operations, BackwardHalf::kWeights, &Operation::half),
                      std::move(router));
  }

  Graph& graph_;
  const Layer& layer_;
  const RouterFormula& formula_;
  const std::string& status_;
  std::ptrdiff_t place_;
};

}  // namespace

void route_by_logits(Graph& graph, const Layer& layer, const std::string& status) {
  LogitsRouting(graph, layer, status).run();
}

}  // namespace moejit::compiler
