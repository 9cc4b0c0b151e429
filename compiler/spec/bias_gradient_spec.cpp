// SPDX-License-Identifier: Apache-2.0
#include "compiler/spec/bias_gradient_spec.h"

#include <fmt/core.h>

namespace moejit::compiler {

std::string to_string(const ColumnSumsSpec& s) {
  return fmt::format(
      "column_sums input={} local_experts={} sections={} section_columns={} pitch={}{}{}{} "
      "threads={}",
      to_string(s.input), s.local_experts, s.sections, s.section_columns, s.pitch,
      s.is_interleaved ? " interleaved" : "", s.times_prob ? " times_prob" : "",
      s.adds ? " adds" : "", s.threads);
}

std::string to_string(const RowDotsSpec& s) {
  return fmt::format("row_dots input={} local_experts={} columns={} threads={}", to_string(s.input),
                     s.local_experts, s.columns, s.threads);
}

}  // namespace moejit::compiler
