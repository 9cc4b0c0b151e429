// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace moejit::graph {

// The last argument of the operators: "moejit VERSION TARGET DIGEST JSON", with "@GROUP " before
// the JSON of a layer of a group. The JSON is the description of a layer or an operation with every
// field. VERSION and DIGEST come from the library that planned it. So a compiled graph that was
// kept on disk says which library's sizes it holds.
struct PlanText {
  std::string_view version;
  std::string_view target;
  std::string_view digest;
  std::string_view group;  // with its '@'; empty for all else
  std::string_view json;
};

// Reads the text of the argument "plan"; throws if it is malformed. The views point into `text`.
PlanText read_plan_text(std::string_view text);

// Throws a sentence that calls the compiled graph stale if version or digest of the text are not
// these.
void check_is_current(const PlanText& text, std::string_view version, std::string_view digest);

}  // namespace moejit::graph
