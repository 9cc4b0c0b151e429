// SPDX-License-Identifier: Apache-2.0
#include "compiler/planner/complete_kernel.h"

#include "compiler/param_record.h"

#include <algorithm>

namespace moejit::compiler {
namespace {

CallRows largest_call(const CallBounds& bounds) {
  const int64_t routed = std::min(bounds.max_tokens * bounds.top_k, bounds.max_permuted_rows);
  return {.tokens = bounds.max_tokens,
          .routed = routed,
          .padded = bounds.max_permuted_rows,
          .routed_tokens = std::min(bounds.max_tokens, routed)};
}

}  // namespace

void complete_kernel(KernelPlan& kernel, const CallBounds& bounds) {
  kernel.bounds = bounds;
  kernel.launch = launch_shape(kernel.spec);
  kernel.launch.max_ctas = busy_ctas(kernel.spec, bounds, bounds.max_tokens);
  kernel.numbers = kernel_numbers(kernel.spec, bounds);
  set_access(kernel);
  const Work work = count_work(kernel, largest_call(bounds));
  kernel.min_bytes = work.min_bytes;
  kernel.multiply_adds = work.multiply_adds;
}

CallBounds bounds_of_rows(int64_t rows, int64_t groups, int32_t splits_alignment) {
  return {.max_tokens = rows,
          .top_k = 1,
          .groups = static_cast<int32_t>(groups),
          .splits_alignment = splits_alignment,
          .max_permuted_rows = rows};
}

}  // namespace moejit::compiler
