// SPDX-License-Identifier: Apache-2.0
#include "tests/support/edge_cases.h"

#include "runtime/reference/number_formats.h"
#include "tests/support/layer_inputs.h"
#include "tests/support/matchers.h"
#include "tests/support/reference_layer.h"

#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <set>

namespace moejit::testing {
namespace {

using reference::LayerInputs;
using reference::LayerShape;
using reference::ReferenceForward;
using Counts = std::vector<std::int32_t>;

class EveryEdgeCase : public ::testing::TestWithParam<std::string> {};

INSTANTIATE_TEST_SUITE_P(EdgeCases, EveryEdgeCase, ::testing::ValuesIn(edge_case_names()),
                         [](const auto& test) { return test.param; });

TEST_P(EveryEdgeCase, HasInputsOfItsShapeAndIsSmall) {
  const std::optional<EdgeCase> found = edge_case(GetParam());
  ASSERT_TRUE(found.has_value());
  const LayerShape& shape = found->shape;
  const LayerInputs& inputs = found->inputs;
  const auto tokens = static_cast<std::size_t>(inputs.tokens);
  const auto w2_size = static_cast<std::size_t>(shape.experts * shape.hidden * shape.intermediate);
  EXPECT_EQ(inputs.x.size(), tokens * shape.hidden);
  EXPECT_EQ(inputs.topk_ids.size(), tokens * shape.top_k);
  EXPECT_EQ(inputs.topk_probs.size(), tokens * shape.top_k);
  EXPECT_EQ(inputs.w1.size(), 2 * w2_size);
  EXPECT_EQ(inputs.w2.size(), w2_size);
  EXPECT_EQ(shape.hidden % 16, 0);
  EXPECT_EQ(shape.intermediate % 16, 0);
  EXPECT_LE(shape.top_k, shape.experts);
  EXPECT_GT(shape.max_rows, 0);
  EXPECT_EQ(shape.max_rows % shape.alignment, 0);
  EXPECT_LE(w2_size, 200000U);
  EXPECT_LE(tokens, 160U);
}

TEST_P(EveryEdgeCase, ReferenceKeepsItsPromises) {
  const std::optional<EdgeCase> found = edge_case(GetParam());
  ASSERT_TRUE(found.has_value());
  const ReferenceForward forward = reference::reference_forward(found->shape, found->inputs);
  EXPECT_LE(forward.offs.back(), found->shape.max_rows);
  EXPECT_EQ(forward.y.size(), found->inputs.x.size());
  for (std::size_t expert = 0; expert < forward.counts.size(); ++expert) {
    EXPECT_LE(forward.offs[expert] + forward.counts[expert], forward.offs[expert + 1]);
  }
}

Counts counts_of(std::string_view name) {
  const EdgeCase found = edge_case(name).value();
  return reference::route(found.inputs.topk_ids, found.inputs.tokens, found.shape).counts;
}

TEST(EdgeCases, AreWhatTheirNamesSay) {
  EXPECT_EQ(counts_of("empty_first_expert")[0], 0);
  EXPECT_EQ(counts_of("empty_middle_expert")[2], 0);
  EXPECT_EQ(counts_of("empty_last_expert")[3], 0);
  EXPECT_EQ(counts_of("all_to_one_expert"), (Counts{0, 0, 40, 0}));
  EXPECT_EQ(counts_of("every_token_unrouted"), (Counts{0, 0, 0, 0}));
  EXPECT_EQ(counts_of("rows_1"), (Counts{2, 1, 1, 0}));
  EXPECT_EQ(counts_of("rows_129"), (Counts{2, 129, 1, 0}));
  EXPECT_EQ(counts_of("experts_160").size(), 160U);
  EXPECT_EQ(counts_of("no_tokens"), (Counts{0, 0, 0, 0}));
  EXPECT_EQ(counts_of("row_overflow"), (Counts{22, 16, 0, 0}));
  EXPECT_EQ(counts_of("row_overflow_in_first_expert"), (Counts{16, 0, 0, 0}));
  EXPECT_EQ(edge_case("top_all")->shape.top_k, edge_case("top_all")->shape.experts);
  EXPECT_FALSE(edge_case("no_such_case").has_value());
}

TEST(EdgeCases, SetTheStatusTheyAreMeantTo) {
  std::set<std::string> bad_ids, overflow;
  for (const std::string& name : edge_case_names()) {
    const EdgeCase found = edge_case(name).value();
    const std::uint32_t status =
        reference::route(found.inputs.topk_ids, found.inputs.tokens, found.shape).status;
    if ((status & reference::kBadExpertId) != 0) bad_ids.insert(name);
    if ((status & reference::kRowOverflow) != 0) overflow.insert(name);
  }
  EXPECT_EQ(bad_ids, (std::set<std::string>{"bad_ids"}));
  EXPECT_EQ(overflow, (std::set<std::string>{"row_overflow", "row_overflow_in_first_expert"}));
}

TEST(EdgeCases, DuplicateExpertsAreThere) {
  const EdgeCase found = edge_case("duplicate_experts").value();
  std::int64_t duplicates = 0;
  for (std::int64_t token = 0; token < found.inputs.tokens; ++token) {
    const std::int32_t first = found.inputs.topk_ids[2 * token];
    if (first >= 0 && first == found.inputs.topk_ids[2 * token + 1]) ++duplicates;
  }
  EXPECT_GT(duplicates, 0);
}

TEST(EdgeCases, ZeroProbabilityGivesZeroRowsAndTheTokenOfZerosAZeroResult) {
  const EdgeCase found = edge_case("zero_probability").value();
  const std::int64_t hidden = found.shape.hidden;
  const ReferenceForward forward = reference::reference_forward(found.shape, found.inputs);
  for (std::int64_t col = 0; col < hidden; ++col) EXPECT_EQ(forward.y[3 * hidden + col], 0);
  const std::int64_t row = forward.row_map[0];
  for (std::int64_t col = 0; col < hidden; ++col) {
    EXPECT_EQ(forward.permuted_q[row * hidden + col], 0);
  }
  EXPECT_EQ(forward.permuted_scale_inv[row * 2], forward.x_scale_inv[0]);
}

TEST(EdgeCases, SpecialValuesReachTheResultOnlyInTheirTokens) {
  const EdgeCase found = edge_case("special_values").value();
  const ReferenceForward forward = reference::reference_forward(found.shape, found.inputs);
  std::int64_t nan_tokens = 0;
  for (std::int64_t token = 0; token < found.inputs.tokens; ++token) {
    if (std::isnan(reference::float_from_bf16(forward.y[token * found.shape.hidden]))) ++nan_tokens;
  }
  EXPECT_GT(nan_tokens, 0);
  EXPECT_LE(nan_tokens, found.inputs.tokens / 2);
}

TEST(EdgeCases, ExactCaseHasNoRoundingInItsGemms) {
  const EdgeCase found = edge_case("exact").value();
  const ReferenceForward forward = reference::reference_forward(found.shape, found.inputs);
  const reference::Route route =
      reference::route(found.inputs.topk_ids, found.inputs.tokens, found.shape);
  const reference::QuantizedRows act{route.rows(), found.shape.intermediate, forward.act_q,
                                     forward.act_scale_inv};
  const reference::QuantizedWeights w2{
      found.shape.experts, found.shape.hidden,  found.shape.intermediate, 1,
      forward.w2_q,        forward.w2_scale_inv};
  const std::vector<double> exact = reference::grouped_gemm_in_fp64(act, w2, route);
  for (std::size_t i = 0; i < exact.size(); ++i) {
    // An integer that fp32 holds: only the last rounding, to bf16, is left.
    ASSERT_EQ(exact[i], std::nearbyint(exact[i]));
    ASSERT_EQ(forward.h2[i], reference::bf16_from_float(static_cast<float>(exact[i])));
  }
}

}  // namespace
}  // namespace moejit::testing
