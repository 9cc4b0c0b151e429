// SPDX-License-Identifier: Apache-2.0
#include "compiler/planner/fusions.h"
#include "compiler/planner/planner_steps.h"
#include "tests/unit/planner/training_layers.h"

#include <algorithm>

namespace moejit::compiler {
namespace {

// x -> rows -> y, and a gradient of rows that nothing but dx needs.
Graph small_graph() {
  const auto value = [](std::string name, std::optional<TensorRole> role = {}) {
    return Value{.name = std::move(name), .shape = {{"T", 8}, {"H", 128}}, .role = role};
  };
  Graph graph;
  graph.values = {value("x", TensorRole::kInput), value("rows"), value("rows_q"),
                  value("y", TensorRole::kOutput), value("dx", TensorRole::kOutput)};
  graph.operations = {{.name = "make",
                       .kind = QuantizeRows{},
                       .reads = {{"input", "x"}},
                       .writes = {{"output", "rows"}}},
                      {.name = "use",
                       .kind = QuantizeRows{},
                       .reads = {{"input", "rows"}},
                       .writes = {{"output", "y"}}},
                      {.name = "differentiate",
                       .kind = QuantizeRows{},
                       .reads = {{"input", "rows"}},
                       .writes = {{"output", "dx"}},
                       .phase = Phase::kBackward}};
  return graph;
}

Names names_of(const Graph& graph) {
  Names names;
  for (const Operation& operation : graph.operations) names.push_back(operation.name);
  return names;
}

TensorRole role_of(const Graph& graph, std::string_view name) {
  const std::vector<TensorPlan> tensors = make_tensors(graph);
  return std::ranges::find(tensors, name, &TensorPlan::name)->role;
}

TEST(Graph, SavesWhatForwardWritesAndBackwardReads) {
  Graph graph = small_graph();
  EXPECT_EQ(role_of(graph, "rows"), TensorRole::kSaved);
  graph.operations.pop_back();
  EXPECT_EQ(role_of(graph, "rows"), TensorRole::kWorkspace);
}

TEST(Graph, SavesNothingThatBackwardMakesAgain) {
  Graph graph = small_graph();
  Operation again = graph.operations.front();
  again.phase = Phase::kBackward;
  graph.operations.insert(graph.operations.end() - 1, again);
  EXPECT_EQ(role_of(graph, "rows"), TensorRole::kWorkspace);
  graph.operations[2].writes.front().is_repeated = true;  // the same values
  EXPECT_EQ(role_of(graph, "rows"), TensorRole::kSaved);
}

TEST(Graph, HasNoTensorThatNoOperationTouches) {
  const std::vector<TensorPlan> tensors = make_tensors(small_graph());
  EXPECT_EQ(std::ranges::count(tensors, "rows_q", &TensorPlan::name), 0);
  EXPECT_EQ(tensors.size(), 4U);
}

TEST(Graph, KeepsTheOperationsThatAnOutputNeeds) {
  Graph graph = small_graph();
  prune(graph, {"y"}, false);
  EXPECT_EQ(names_of(graph), (Names{"make", "use"}));
  graph = small_graph();
  prune(graph, {"dx"}, false);
  EXPECT_EQ(names_of(graph), (Names{"make", "differentiate"}));
}

TEST(Graph, LeavesOutOptionalWritesThatNobodyReads) {
  const auto writes_of_make = [](bool is_intermediate, bool keeps) {
    Graph graph = small_graph();
    graph.operations.front().writes.push_back({.role = "more",
                                               .tensor = "rows_q",
                                               .is_optional = true,
                                               .is_intermediate = is_intermediate});
    prune(graph, {"y"}, keeps);
    return graph.operations.front().writes;
  };
  EXPECT_EQ(writes_of_make(false, false).size(), 1U);
  EXPECT_EQ(writes_of_make(false, true).size(), 1U);
  EXPECT_EQ(writes_of_make(true, false).size(), 1U);
  ASSERT_EQ(writes_of_make(true, true).size(), 2U);
  EXPECT_TRUE(writes_of_make(true, true).back().is_for_caller);
}

TEST(ValidateGraph, TakesEveryGraphOfALayer) {
  for (const Layer& layer : training_layers()) EXPECT_TRUE(validate(layer_graph(layer)));
}

TEST(ValidateGraph, RefusesToReadWhatNobodyWrites) {
  Graph graph = small_graph();
  graph.operations[1].reads.push_back({"scales", "rows_q"});
  const Result<void> result = validate(graph);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::kInternal);
  EXPECT_EQ(result.error().message,
            "the operation use reads rows_q, which no operation before it writes");
}

TEST(ValidateGraph, RefusesToReadBeforeTheWrite) {
  Graph graph = small_graph();
  std::swap(graph.operations[0], graph.operations[1]);
  EXPECT_FALSE(validate(graph));
}

TEST(ValidateGraph, RefusesWhatIsNoValue) {
  Graph graph = small_graph();
  graph.operations.back().writes.front().tensor = "dz";
  EXPECT_EQ(validate(graph).error().message,
            "the operation differentiate writes dz, which is no value");
}

TEST(ValidateGraph, RefusesToWriteAgainWhatWasNeverWritten) {
  Graph graph = small_graph();
  graph.operations.front().writes.front().is_repeated = true;
  EXPECT_FALSE(validate(graph));
}

// Whatever a layer asks for, each operation that is left is needed: without it the graph is not
// complete, or an output is gone.
TEST(Graph, HasNoOperationTooMany) {
  for (const Layer& layer : training_layers()) {
    Graph graph = layer_graph(layer);
    prune(graph, layer_outputs(layer), false);
    for (std::size_t i = 0; i < graph.operations.size(); ++i) {
      if (graph.operations[i].gradient_mode) continue;  // a mode without the other is complete
      Graph lacking = graph;
      lacking.operations.erase(lacking.operations.begin() + static_cast<std::ptrdiff_t>(i));
      const bool is_output = std::ranges::any_of(graph.operations[i].writes, [&](const Port& port) {
        return std::ranges::count(layer_outputs(layer), port.tensor) > 0;
      });
      const bool is_recomputed =
          graph.operations[i].phase == Phase::kBackward && layer.recompute != Recompute::kNone;
      EXPECT_TRUE(is_output || is_recomputed || !validate(lacking)) << graph.operations[i].name;
    }
  }
}

}  // namespace
}  // namespace moejit::compiler
