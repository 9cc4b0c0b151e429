// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/activation.h"

#include <optional>
#include <string>
#include <vector>

namespace moejit::compiler {

// Two finite bf16 numbers at which a formula computed in fp32 is not finite.
struct BadPoint {
  float gate = 0.0f;
  float up = 0.0f;
  float result = 0.0f;  // infinite or NaN
  bool operator==(const BadPoint&) const = default;
};

// Returns the bad point nearest to 0 among those that are tried; none if all results are finite.
// Tried are every finite bf16 number as gate beside a few values of up, the other way round, and
// all pairs of powers of two. The distance is the larger of the two magnitudes, then the smaller.
std::optional<BadPoint> find_bad_point(const Expression& formula);

// What `moejit` reports about one formula of an activation.
struct FormulaReport {
  std::string name;  // "value", "d / d gate" where there is one, "d / d up"
  std::string text;  // empty if the formula has more than a few hundred operations
  std::optional<BadPoint> bad_point;
};
struct ActivationReport {
  std::vector<FormulaReport> formulas;
  std::string value_code;     // the code in forward kernels
  std::string gradient_code;  // the code in backward kernels
};
ActivationReport report(const Activation& activation);

}  // namespace moejit::compiler
