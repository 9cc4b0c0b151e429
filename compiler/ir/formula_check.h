// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/user_formula.h"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace moejit::ir {

// A formula at the place where it comes closest to what it may be off, or is off by more.
struct WorstPlace {
  std::vector<double> variables;
  double got = 0.0;
  double wanted = 0.0;
  double allowed = 0.0;  // |got - wanted| may be this much
  double ratio = 0.0;    // |got - wanted| / allowed
};

// What a check found of the value, or of a derivative.
struct PartCheck {
  std::string name;    // as of value_and_derivatives()
  int64_t places = 0;  // at which there was something to compare
  WorstPlace worst;
  bool has_passed = true;
};

// Compiles a formula's value and derivatives with LLVM, and compares them at finite bf16 numbers.
// One variable takes all of them, two take 100,000 pairs drawn with a fixed seed. `parts` are those
// that value_and_derivatives() returns, with a derivative for each of `variables`.
//
// The value in fp32 is compared with the tree's in double. It may be off by twice the bound of
// evaluate_with_error(), where no step overflows or underflows. A derivative in double is compared
// with the central difference of the compiled value. That one may be off by the difference of both
// one-sided ones, by what another step changes, and by the value's rounding. So kinks and jumps
// pass, at the places next to them alone. Places where something is not finite are left out. Error
// kInternal: as of CompiledFormula::compile().
Result<std::vector<PartCheck>> check_formula(std::span<const compiler::NamedFormula> parts,
                                             const std::vector<std::string>& variables);

}  // namespace moejit::ir
