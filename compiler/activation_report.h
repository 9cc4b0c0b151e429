// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/activation.h"

#include <optional>
#include <string>
#include <vector>

namespace moejit::compiler {

// Two finite numbers of bf16 at which something computed in fp32 is not finite.
struct BadPoint {
  float gate = 0.0f;
  float up = 0.0f;
  float result = 0.0f;  // infinite or NaN
  bool operator==(const BadPoint&) const = default;
};

// The point nearest to 0 among those that are tried: every finite bf16 number as gate beside a few
// of up, and the other way round, and all pairs of powers of two. Near: by the larger of the two
// magnitudes, then by the smaller.
std::optional<BadPoint> find_bad_point(const Expression& formula);

// What moejit makes of an activation.
struct FormulaReport {
  std::string name;  // "value", "d / d gate" where there is one, "d / d up"
  std::string text;  // empty where it has more than a few hundred operations
  std::optional<BadPoint> bad_point;
};
struct ActivationReport {
  std::vector<FormulaReport> formulas;
  std::string value_code;     // as forward kernels have it
  std::string gradient_code;  // and backward kernels
};
ActivationReport report(const Activation& activation);

}  // namespace moejit::compiler
