// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/terminal/terminal.h"
#include "compiler/plan.h"
#include "compiler/tuning.h"

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

namespace moejit::cli {

// How a plan uses tuning records.
struct TuningUse {
  int64_t kernels = 0;                   // that may be tuned
  int64_t recorded = 0;                  // of these, with the choices of a record
  int64_t hints = 0;                     // of these, measured on another GPU of the family
  std::vector<std::string> measured_on;  // the GPUs, each once
  std::string gpu;                       // that the plan is for
};

// Returns how a plan uses the records that it was made with; none without records.
std::optional<TuningUse> tuning_use(const compiler::Plan& plan, const compiler::Tuning* tuning);

// Returns the use as a sentence, such as `8 of 12 kernels have choices that were measured on the
// NVIDIA H200 (...); 8 of them are hints, since this is the NVIDIA H100 (...)`.
std::string tuning_text(const TuningUse& use);

// Tells the use on standard error, as a warning if there are hints; nothing without records.
void tell_tuning(const std::optional<TuningUse>& use, const Terminal& terminal);

// Adds the use as the field "tuning"; nothing without records.
void add_tuning(nlohmann::ordered_json& json, const std::optional<TuningUse>& use);

}  // namespace moejit::cli
