// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/expression.h"

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

// This component runs formulas as LLVM IR in this process, as a second opinion on how they are read
// and differentiated. Only tests and the program moejit-formula link it. Two copies of LLVM in one
// process abort, and the frameworks that load the run-time library bring their own. The tool runs
// that program instead: to load LLVM takes longer than most commands.
namespace moejit::ir {

// The type that every value of a formula has.
enum class Number { kDouble, kFloat };

// A verified, optimized and compiled formula. Any thread may call it.
class CompiledFormula {
 public:
  // Compiles `code`. A call takes its variables in the order of `variables`. Error kInternal: IR
  // that does not verify or compile, with LLVM's message.
  static Result<CompiledFormula> compile(const compiler::StraightLine& code,
                                         std::vector<std::string> variables, Number number);
  ~CompiledFormula();
  CompiledFormula(CompiledFormula&&) noexcept;
  CompiledFormula& operator=(CompiledFormula&&) noexcept;

  // Returns the values of the results of `code`.
  std::vector<double> operator()(std::span<const double> variables) const;

  const std::string& text() const;  // the optimized IR
  int64_t operations() const;       // in it, without loads and stores

 private:
  struct Parts;
  explicit CompiledFormula(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

// Returns the version of LLVM, such as "14.0.6".
std::string llvm_version();

}  // namespace moejit::ir
