// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/commands/bench_run.h"
#include "runtime/check/check_tensor_cores.h"
#include "runtime/check/tensor_check.h"

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace moejit::cli {

// How a layer of one recipe compared with the reference.
struct SelftestLayer {
  std::string_view recipe;
  std::vector<check::TensorCheck> checks;
  std::optional<Error> failure;  // why there are no checks
};

// What `moejit selftest` found out about a device.
struct SelftestReport {
  GemmsReport gemms;     // with what it ran on; no results in the simulator
  std::string target;    // "cuda:sm_120f"
  std::string evidence;  // what was known of the target before
  std::string compiler;  // of kernels, as it is in keys
  std::vector<check::AdditionRule> rules;
  std::vector<check::TensorCoreCheck> tensor_cores;
  std::vector<SelftestLayer> layers;
  std::optional<Error> tensor_cores_error;  // why not all were asked
};

// Returns a sentence for each thing that failed; none if the device passed.
std::vector<std::string> failures_of(const SelftestReport& report);

std::string selftest_table(const SelftestReport& report, int32_t width);
nlohmann::ordered_json selftest_json(const SelftestReport& report);

}  // namespace moejit::cli
