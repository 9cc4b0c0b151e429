// SPDX-License-Identifier: Apache-2.0
// moejit-formula FORMULA [--check] [--ir] [--json]: what LLVM makes of a formula. `moejit
// activation` has read the arguments, and runs it.
#include "compiler/ir/formula_check.h"
#include "compiler/ir/formula_ir.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace moejit {
namespace {

using compiler::UserFormula;
using ir::PartCheck;
using Json = nlohmann::ordered_json;

std::string place_text(const UserFormula& formula, const std::vector<double>& at) {
  std::string text;
  for (std::size_t i = 0; i < at.size(); ++i)
    text += fmt::format("{}{} = {:g}", i == 0 ? "" : ", ", formula.variables[i], at[i]);
  return text;
}

std::string text_of(const UserFormula& formula, const PartCheck& check) {
  if (check.places == 0) return fmt::format("{:<11} nowhere finite\n", check.name);
  const ir::WorstPlace& worst = check.worst;
  return fmt::format(
      "{:<11} {} at {} places; worst at {}: got {:.9g}, {} {:.9g}, {:.2g} of what it may be off\n",
      check.name, check.has_passed ? "right" : "WRONG", check.places,
      place_text(formula, worst.variables), worst.got,
      check.name == "value" ? "wanted" : "differences give", worst.wanted, worst.ratio);
}

Json json_of(const UserFormula& formula, const PartCheck& check) {
  Json at;
  for (std::size_t i = 0; i < check.worst.variables.size(); ++i)
    at[formula.variables[i]] = check.worst.variables[i];
  return {{"name", check.name},
          {"places", check.places},
          {"passed", check.has_passed},
          {"at", at},
          {"got", check.worst.got},
          {"wanted", check.worst.wanted},
          {"allowed", check.worst.allowed}};
}

// The value and its derivatives in one function of fp32 numbers.
Result<ir::CompiledFormula> compile_all(const UserFormula& formula) {
  std::vector<compiler::Expression> all;
  for (const auto& [name, part] : value_and_derivatives(formula)) all.push_back(part);
  return ir::CompiledFormula::compile(compiler::straight_line(all), formula.variables,
                                      ir::Number::kFloat);
}

struct Wanted {
  bool check = false, ir = false, is_json = false;
};

// Returns whether all that was checked is right.
Result<bool> run(std::string_view text, const Wanted& wanted) {
  MOEJIT_TRY_ASSIGN(const UserFormula formula, compiler::parse_user_formula(text));
  Json json = {{"llvm", ir::llvm_version()}};
  std::string lines = fmt::format("LLVM {}\n", ir::llvm_version());
  bool is_right = true;
  if (wanted.check) {
    MOEJIT_TRY_ASSIGN(const std::vector<PartCheck> checks,
                      ir::check_formula(value_and_derivatives(formula), formula.variables));
    json["checks"] = Json::array();
    for (const PartCheck& check : checks) {
      lines += text_of(formula, check);
      json["checks"].push_back(json_of(formula, check));
      is_right = is_right && check.has_passed;
    }
  }
  if (wanted.ir) {
    MOEJIT_TRY_ASSIGN(const ir::CompiledFormula compiled, compile_all(formula));
    json["operations"] = compiled.operations();
    json["ir"] = compiled.text();
    lines += fmt::format("{} operations for value and derivatives of an element\n\n{}",
                         compiled.operations(), compiled.text());
  }
  fmt::print("{}", wanted.is_json ? json.dump(2) + "\n" : lines);
  return is_right;
}

}  // namespace
}  // namespace moejit

int main(int argc, char** argv) {
  moejit::Wanted wanted;
  std::string_view formula;
  for (const std::string_view word : std::span(argv, static_cast<std::size_t>(argc)).subspan(1)) {
    if (word == "--check")
      wanted.check = true;
    else if (word == "--ir")
      wanted.ir = true;
    else if (word == "--json")
      wanted.is_json = true;
    else
      formula = word;
  }
  const auto is_right = moejit::run(formula, wanted);
  if (is_right) return *is_right ? 0 : exit_code_of(moejit::ErrorCode::kCheckFailed);
  fmt::print(stderr, "{}\n", to_string(is_right.error()));
  return exit_code_of(is_right.error().code);
}
