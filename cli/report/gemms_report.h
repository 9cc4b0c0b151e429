// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/report/bench_report.h"
#include "compiler/compiler.h"
#include "runtime/measure/gemm_case.h"

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace moejit::cli {

// The results of one case.
struct GemmResult {
  measure::GemmCase gemm;
  compiler::KernelPlan kernel;
  compiler::CallRows rows;
  int64_t compared = 0;  // elements of the result that were compared with the reference's bits
  measure::CoolRun cool;
  measure::HotRun hot;
};

std::string gemms_table(const std::vector<GemmResult>& results, const BenchRun& run);
// With a member for each result under "gemms".
nlohmann::ordered_json gemms_json(const std::vector<GemmResult>& results, const BenchRun& run);

}  // namespace moejit::cli
