// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/support/error.h"
#include "runtime/measure/gemm_case.h"

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace moejit::cli {

// Reads {"gemms": [...]}, whose fields docs/cli.md describes with their ranges. Errors are as for a
// layer description: they name the place, what was got and what was wanted.
Result<std::vector<measure::GemmCase>> parse_gemm_cases(std::string_view json,
                                                        std::string_view source_name);

// Reads and parses a file of cases.
Result<std::vector<measure::GemmCase>> read_gemm_cases(const std::string& path);

// Returns every key that a case of this operation may have.
std::span<const std::string_view> gemm_case_keys(measure::GemmOperation operation);

}  // namespace moejit::cli
