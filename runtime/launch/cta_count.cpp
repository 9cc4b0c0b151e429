// SPDX-License-Identifier: Apache-2.0
#include "runtime/launch/cta_count.h"

#include "compiler/launch.h"

#include <algorithm>

namespace moejit::runtime {

int64_t cta_count(const compiler::KernelPlan& kernel, int64_t tokens, int32_t sm_count) {
  const int64_t busy = compiler::busy_ctas(kernel.spec, kernel.bounds,
                                           kernel.has_slots ? kernel.bounds.max_tokens : tokens);
  if (kernel.launch.ctas_per_sm == 0) return busy;
  const int64_t cluster = kernel.launch.cluster_ctas;
  const int64_t held = int64_t{kernel.launch.ctas_per_sm} * sm_count / cluster * cluster;
  return std::min(busy, std::max(held, cluster));
}

}  // namespace moejit::runtime
