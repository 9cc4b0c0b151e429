// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/reference/route.h"
#include "tests/support/layer_inputs.h"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace moejit::testing {

// A small layer with inputs that some implementation got wrong once, or may. Small enough for the
// simulator: hidden and intermediate are mostly 128 to 272, rows at most a few hundred.
struct EdgeCase {
  std::string name;  // letters, digits and '_': fit for a test's name
  reference::LayerShape shape;
  reference::LayerInputs inputs;
};

// The names of all cases, for INSTANTIATE_TEST_SUITE_P; making a case is left to edge_case().
//   no_tokens, one_token                       T = 0 and 1
//   empty_first_expert, _middle_, _last_       and two_empty_experts, every_token_unrouted
//   all_to_one_expert
//   rows_N                                     one expert has N rows: 1 15 16 17 127 128 129
//   hidden_N, intermediate_N                   not multiples of 128, the smallest (16) included
//   zero_probability                           some probabilities 0, -0, and all of a token's
//   unrouted_ids, bad_ids, duplicate_experts
//   experts_1, experts_7, experts_160
//   top_1, top_all                             K = 1 and K = E
//   alignment_1, alignment_16, alignment_128
//   row_overflow, row_overflow_in_first_expert             max_rows below what is needed
//   special_values, special_weights            NaN, Inf, -0, subnormals, amax on a scale's step
//   zero_rows_beside_tiny_rows
//   exact                                      every intermediate is exact: equal bit for bit
std::vector<std::string> edge_case_names();

// The case of that name; nothing if there is none.
std::optional<EdgeCase> edge_case(std::string_view name);

}  // namespace moejit::testing
