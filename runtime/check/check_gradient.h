// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/measure/gemm_session.h"
#include "runtime/reference/compare.h"

#include <cstdint>

namespace moejit::check {

// check_gemm() of a contraction-grouped GEMM: of every group's matrix the first row and column, the
// last ones and some between, others in each group. The session has been launched once since its
// result was new.
Result<testing::Comparison> check_gradient(measure::GemmSession& session, uint64_t seed);

}  // namespace moejit::check
