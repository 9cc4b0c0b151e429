// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/plan.h"

#include <cstdint>

namespace moejit::runtime {

// How many CTAs a kernel gets for T tokens on a device with so many SMs. Known on the host without
// knowing the routing: the most work that T tokens can make, cut at what the device holds at once
// where the kernel is persistent. Results never depend on it.
int64_t cta_count(const compiler::KernelPlan& kernel, const compiler::Layer& layer, int64_t tokens,
                  int32_t sm_count);

// The most permuted rows that T tokens can need, pad rows included: never more than the plan's P.
int64_t most_permuted_rows(const compiler::Layer& layer, int64_t tokens);

// Whether a row chain's input rows are those of the groups, P at most, rather than tokens.
bool walks_permuted_rows(const compiler::RowChainSpec& spec);

}  // namespace moejit::runtime
