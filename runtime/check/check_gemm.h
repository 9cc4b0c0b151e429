// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/measure/gemm_session.h"
#include "runtime/reference/compare.h"

#include <cstdint>

namespace moejit::check {

// Compares elements of the session's result with the CPU reference on the operands as the device
// holds them: of every group the first row, the last one and some between, and its first pad row,
// which has to be zeros; of these the first column, the last one and some between, others in each
// group. About 16 000 elements, chosen by the seed. The session has been launched.
Result<testing::Comparison> check_gemm(measure::GemmSession& session, uint64_t seed);

}  // namespace moejit::check
